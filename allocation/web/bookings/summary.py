"""The texts of a booking's page: state, reasons, cost and actions. No database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from allocation.models import Booking
from allocation.queries.bookings.bookings import NodePlace
from allocation.reasons.catalogue import BY_ID
from allocation.rules.ask import AskDocument
from allocation.rules.ask.line.text import (
    alternative_text,
    document_text,
    duration_text,
    host_resources_text,
    pin_text,
    pin_words,
    shape_text,
    window_text,
)
from allocation.rules.states import ON_WAITLIST, OPEN, State
from allocation.services.overrides.waiting import more_for
from allocation.services.record.costs import booking_cost, rate_of
from allocation.services.runs.no_shows import no_show_limit, presence_policy
from allocation.solver import UNITS_PER_GPU
from allocation.web.bookings.costs import CostLine, booking_costs, returned_text
from allocation.web.bookings.idle import can_check_in, can_keep_idle, idle_words
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.pausing.notice import paused_words
from allocation.web.parts.planned_start import mover_words, waiting_words
from allocation.web.parts.times import clock, length_words, moment_words, window_words
from allocation.words.reasons import stored_sentence
from billing.peak_text import peak_words
from billing.rules import money_text
from tenants.platform.words import more_text

CHECKS = (
    ("together", "GPUs free together", "Enough GPUs are free together."),
    ("line", "Queue", "No booking ahead of yours is in the way."),
    ("quota", "Quota", "Within the limits of your organisation and project."),
    ("budget", "Budget", ""),
    ("policy", "Policy", "No tier rule prevents it."),
    ("hardware", "Hardware", "No delay from GPUs that are out of service."),
)
OUTCOMES = {
    "released": "released early",
    "cancelled": "cancelled while running",
    "failed": "hardware failure",
    "no_show": "no-show",
    "idle": "ended, its GPUs were idle",
    "": "ran its full time",
    "completed": "ran its full time",
    "not_resumed": "paused, and could not resume in time",
}
AGENT_FOLDER = "/var/lib/gpu-agent/bookings"
UNDO = timedelta(seconds=60)
WAITS = (State.REQUESTED, State.QUEUED, State.REFUSED, State.EXPIRED)
BEFORE_START = (
    State.REQUESTED, State.AWAITING_APPROVAL, *ON_WAITLIST, State.QUEUED, State.SCHEDULED,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Check:
    """One of the six checks; `blocks` when it delays the booking."""

    name: str
    blocks: bool
    sentences: tuple[str, ...]
    frees: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """A link to book an alternative that was possible."""

    when: str
    what: str
    href: str


@dataclass(frozen=True, slots=True)
class ExtendChoice:
    """A possible extension with its price."""

    seconds: int
    words: str


@dataclass(frozen=True, slots=True)
class BookingSummary:
    """The texts of a booking's page without its placement and history."""

    headline: str
    detail: str
    what: str
    window: str
    checks: tuple[Check, ...]
    sooner: tuple[Alternative, ...]
    costs: tuple[CostLine, ...]
    price: str
    again: str
    give_back: str
    returns: str
    extend: tuple[ExtendChoice, ...]
    no_later: str
    can_check_in: bool
    can_keep_idle: bool
    idle: str
    can_undo: bool
    undo_seconds: int
    borrowed: str
    more: str
    more_words: str


def booking_summary(booking: Booking, ctx: PageContext, *, may_change: bool) -> BookingSummary:
    """Returns the page's texts; without `may_change` no actions."""
    state = State(booking.state)
    ask = AskDocument.from_json(booking.ask)
    since = ctx.now - booking.submitted
    can_undo = may_change and state in BEFORE_START and since < UNDO
    waits = state in (*WAITS, State.PAUSED)
    has_reasons = (booking.reasons or ctx.frozen) and (waits or state == State.SCHEDULED)
    more = more_for(booking) if may_change and waits else {}
    return BookingSummary(
        headline=_headline(booking, ctx),
        detail=_detail(booking, ctx),
        what=what_words(ask, ctx.labels),
        window=_window(booking, ask, ctx),
        checks=_checks(booking, ctx) if has_reasons else (),
        sooner=_sooner(booking, ctx) if waits else (),
        costs=booking_costs(booking, ctx),
        price=_price_words(booking),
        again=f"{ctx.base}book?q={quote(_again(ask))}",
        give_back=_give_back(state) if may_change else "",
        returns=returned_text(booking, ctx.now),
        extend=_extensions(booking, ctx) if may_change else (),
        no_later=ctx.no_later if may_change and not ctx.ends else "",
        can_check_in=may_change and can_check_in(booking),
        can_keep_idle=may_change and can_keep_idle(booking),
        idle=idle_words(booking, ctx),
        can_undo=can_undo,
        more=urlencode(more),
        more_words=more_text(more) if more else "",
        undo_seconds=int((UNDO - since).total_seconds()) if can_undo else 0,
        borrowed=_borrowed(booking, ctx) if state in OPEN else "",
    )


def what_words(ask: AskDocument, labels: Mapping[str, str]) -> str:
    """`2 × H100 80 GB`, `1g.10gb slice of H100 80 GB`, `2 × H100 80 GB + 4 × L40S`."""
    if ask.groups:
        rows = ((g.count, labels.get(g.gpu_class, g.gpu_class), g.profile) for g in ask.every_group)
        return " + ".join(shape_words(*row) for row in rows)
    classes = " or ".join(labels.get(slug, slug) for slug in ask.classes)
    where = f" (pinned to {pin_words(ask.pin)})" if ask.pin else ""
    return shape_words(ask.count, classes, ask.profile, ask.share) + where


def shape_words(count: int, gpu_class: str, profile: str | None, share: int | None = None) -> str:
    """`2 × H100 80 GB`, `2 × 1g.10gb slices of H100 80 GB`, `0.25 of an H100 80 GB …`."""
    if share is not None:
        return f"{share / 1000:g} of one {gpu_class}, shared, not isolated"
    if profile is None:
        return f"{count} × {gpu_class}"
    return (
        f"{count} × {profile} slices of {gpu_class}"
        if count > 1
        else f"{profile} slice of {gpu_class}"
    )


def state_words(booking: Booking, ctx: PageContext) -> str:
    """Returns the state with its time, for a row of a list."""
    row = PageContext(ctx.now, ctx.zone, "", {}, estimates=ctx.estimates)
    return _headline(booking, row)


def commands_of(booking: Booking, places: Sequence[NodePlace]) -> list[tuple[str, str]]:
    """Returns the shell commands per node; empty until the devices are ready."""
    if booking.state not in (State.ACTIVE, State.PAUSING):
        return []
    found = []
    for place in places:
        if place.allocation is None:
            continue
        folder = f"{AGENT_FOLDER}/{booking.tenant.slug}.{booking.node_name}"
        found.append((place.name, f"ssh {place.name}\nsource {folder}/env"))
    return found


def _headline(booking: Booking, ctx: PageContext) -> str:
    def at(moment: datetime | None) -> str:
        return moment_words(moment, ctx.zone, ctx.now) if moment else "soon"

    state = State(booking.state)
    sayings = {
        State.REQUESTED: "Waiting: decisions are frozen" if ctx.frozen else "Being placed",
        State.AWAITING_APPROVAL: "Waiting for approval",
        State.WAITLISTED: "On the waiting list",
        State.OFFERED: f"A place is offered, {at(booking.planned_starts)}",
        State.QUEUED: _unplanned(booking, ctx) or waiting_words(booking, ctx.zone, ctx.now),
        State.SCHEDULED: f"{_starts_word(booking, ctx.now)} {at(booking.planned_starts)}",
        State.STARTING: "Starting: waiting for its node"
        if _is_stalled(booking)
        else "Starting: preparing your devices",
        State.ACTIVE: f"Running until {at(booking.planned_ends)}",
        State.PAUSING: f"Pauses {at(ctx.pauses[-1].deadline)}" if ctx.pauses else "Pausing",
        State.PAUSED: f"Paused, resumes {at(booking.expected_start)}"
        if booking.expected_start
        else "Paused until GPUs are free",
        State.ENDING: "Ending: clearing the devices",
        State.ENDED: f"Ended {at(booking.ended_at)}",
        State.REFUSED: "Refused",
        State.REJECTED: "Not approved",
        State.EXPIRED: "Deadline passed",
        State.CANCELLED: f"Cancelled {at(booking.ended_at)}",
        State.FAILED: "Failed",
    }
    return sayings[state]


def _unplanned(booking: Booking, ctx: PageContext) -> str:
    """Returns what the booking waits for without a planned start; empty with one."""
    if not booking.is_unplanned:
        return ""
    if booking.reasons[0]["code"] == "awaits_booking":
        estimate = ctx.estimates.get(booking.id)
        when = f", not before {moment_words(estimate, ctx.zone, ctx.now)}" if estimate else ""
        return f"Waits for {booking.reasons[0]['numbers']['booking']}{when}"
    if booking.reasons[0]["code"] == "none_in_service":
        return "Waiting for GPUs to return to service"
    return "Waiting: no start can be planned yet"


def _starts_word(booking: Booking, now: datetime) -> str:
    is_due = booking.planned_starts is not None and booking.planned_starts <= now
    return "Due since" if is_due else "Starts"


def _detail(booking: Booking, ctx: PageContext) -> str:
    state = State(booking.state)
    if booking.extension_until is not None:
        until = moment_words(booking.extension_until, ctx.zone, ctx.now)
        return f"An extension until {until} is being decided."
    if state in (State.REFUSED, State.EXPIRED) or _is_stalled(booking):
        return stored_sentence(booking.reasons[0]) if booking.reasons else ""
    sayings = {
        State.ENDED: OUTCOMES.get(booking.outcome, booking.outcome).capitalize() + ".",
        State.QUEUED: stored_sentence(booking.reasons[0])
        if booking.is_unplanned
        else mover_words(booking),
        State.REQUESTED: str(ctx.frozen["sentence"])
        if ctx.frozen
        else "The solver is placing it; this takes a few seconds.",
        State.SCHEDULED: _until_start(booking, ctx.now),
        State.ACTIVE: f"{_left(booking, ctx.now)} {_absence(booking, ctx)}".strip(),
        State.PAUSED: paused_words(booking, ctx.pauses, ctx),
    }
    return sayings.get(state, "")


def _is_stalled(booking: Booking) -> bool:
    """Returns whether its owner was notified that the node is slow to start."""
    is_told = any(reason.get("code") == "start_slow" for reason in booking.reasons)
    return is_told and booking.state in (State.SCHEDULED, State.STARTING)


def _borrowed(booking: Booking, ctx: PageContext) -> str:
    """Returns how many GPUs are borrowed, and from when another booking waits for them."""
    if not booking.borrowed_units:
        return ""
    own, borrowed = (
        f"{units / UNITS_PER_GPU:.3g}"
        for units in (max(0, ctx.units - booking.borrowed_units), booking.borrowed_units)
    )
    if booking.at_risk_from is None:
        return (
            f"On borrowed GPUs ({own} own + {borrowed} borrowed): can be paused when their "
            "owner needs them."
        )
    since = moment_words(booking.at_risk_from, ctx.zone, ctx.now)
    return f"On borrowed GPUs ({own} own + {borrowed} borrowed): at risk from {since}."


def _until_start(booking: Booking, now: datetime) -> str:
    seconds = (booking.planned_starts - now).total_seconds() if booking.planned_starts else 0.0
    return (
        f"In {length_words(seconds)}."
        if seconds > 0
        else "Starts as soon as its devices are empty."
    )


def _left(booking: Booking, now: datetime) -> str:
    seconds = (booking.planned_ends - now).total_seconds() if booking.planned_ends else 0.0
    return f"{length_words(seconds)} left." if seconds > 0 else ""


def _absence(booking: Booking, ctx: PageContext) -> str:
    """Returns when an inactive booking ends, once its owner was warned."""
    if booking.checked_in_at is not None or not booking.absence_warnings:
        return ""
    limit = no_show_limit(booking, presence_policy())
    if limit is None:
        return ""
    left = timedelta(seconds=max(0, limit - booking.absent_seconds))
    ends = clock(ctx.now + left, ctx.zone)
    seen = length_words(booking.absent_seconds)
    return f"No activity for {seen}: start a program or check in, or it ends at {ends}."


def _window(booking: Booking, ask: AskDocument, ctx: PageContext) -> str:
    is_planned = not booking.is_unplanned
    if is_planned and booking.planned_starts is not None and booking.planned_ends is not None:
        words = window_words(booking.planned_starts, booking.planned_ends, ctx.zone, ctx.now)
    else:
        words = f"from {moment_words(booking.not_before, ctx.zone, ctx.now)}"
    kind = ""
    if ask.workload is not None:
        kind = f" of {ask.workload} on {ctx.labels.get(ask.classes[0], ask.classes[0])}"
    return f"{words}, {length_words(ask.duration)}{kind} requested"


def _checks(booking: Booking, ctx: PageContext) -> tuple[Check, ...]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for reason in (*([ctx.frozen] if ctx.frozen else []), *booking.reasons):
        rule = BY_ID.get(reason.get("rule", ""))
        if reason.get("code") == "borrowed" or (rule and rule.effect == "explains"):
            # This reason explains the placement; it does not delay the booking.
            continue
        found.setdefault(reason.get("check", "policy"), []).append(reason)
    checks = []
    # The decision's first reason has the longest delay and comes first.
    places = {key: place for place, key in enumerate(found)}
    for key, name, fine in sorted(CHECKS, key=lambda each: places.get(each[0], len(places))):
        reasons = found.get(key, [])
        good = (
            fine or f"{money_text(booking.hold_amount, booking.currency)} is held for this booking."
        )
        if key == "budget" and booking.state not in OPEN:
            good = "The budget was sufficient; the money is no longer held."
        if key == "line" and ctx.ahead:
            good = "The bookings ahead of yours are listed below."
        if key == "together" and booking.is_unplanned:
            good = "No start can be planned, so this was not checked."
        checks.append(
            Check(
                name=name,
                blocks=bool(reasons or (key == "line" and ctx.ahead)),
                sentences=tuple(map(stored_sentence, reasons)) or (good,),
                frees=_frees(reasons, ctx),
            )
        )
    return tuple(checks)


def _frees(reasons: Sequence[Mapping[str, Any]], ctx: PageContext) -> str:
    times = [reason["frees_at"] for reason in reasons if reason.get("frees_at")]
    if not times:
        return ""
    return moment_words(max(datetime.fromisoformat(time) for time in times), ctx.zone, ctx.now)


def _sooner(booking: Booking, ctx: PageContext) -> tuple[Alternative, ...]:
    cards = []
    for each in booking.alternatives[:3]:
        starts, ends = (datetime.fromisoformat(each[key]) for key in ("starts", "ends"))
        if starts < ctx.now:
            # The alternative has passed since the decision.
            continue
        if each.get("groups"):
            ask = replace(AskDocument.from_json(booking.ask), not_before=None, deadline=None)
            text = document_text(replace(ask, starts=starts), ctx.zone)
            shape = what_words(ask, ctx.labels)
        else:
            text = window_text(alternative_text(each), (starts, ends), ctx.zone)
            host = host_resources_text(booking.ask.get("cores", 0), booking.ask.get("memory", 0))
            text = " ".join([text, *host, *pin_text(each.get("pin", ()))])
            label = ctx.labels.get(each["gpu_class"], each["gpu_class"])
            shape = shape_words(each["count"], label, each["profile"], each.get("share"))
        cards.append(
            Alternative(
                when=moment_words(starts, ctx.zone, ctx.now),
                what=f"{shape}, {length_words((ends - starts).total_seconds())}",
                href=f"{ctx.base}book?q={quote(text)}",
            )
        )
    return tuple(cards)


def _price_words(booking: Booking) -> str:
    plain = f"{money_text(booking.price_per_hour, booking.currency)} per hour"
    if booking.peak_weekly:
        rate = rate_of(booking)
        peak = money_text(rate.peak, booking.currency)
        plain += f", {peak} in peak hours ({peak_words(rate.hours)})"
    if booking.setup_fee:
        plain += f", {money_text(booking.setup_fee, booking.currency)} once at its first start"
    return f"{plain}, fixed at booking (price book version {booking.price_version})"


def _give_back(state: State) -> str:
    if state in BEFORE_START or state == State.PAUSED:
        return "cancel"
    return "release" if state in (State.STARTING, State.ACTIVE, State.PAUSING) else ""


def _extensions(booking: Booking, ctx: PageContext) -> tuple[ExtendChoice, ...]:
    if booking.planned_ends is None:
        return ()
    choices = []
    for until in ctx.ends:
        seconds = int((until - booking.planned_ends).total_seconds())
        added = rate_of(booking).between(booking.planned_ends, until)
        price = money_text(booking_cost(booking, added), booking.currency)
        words = f"{length_words(seconds)} more, until {moment_words(until, ctx.zone, ctx.now)}"
        choices.append(ExtendChoice(seconds, f"{words}, for {price}"))
    return tuple(choices)


def _again(ask: AskDocument) -> str:
    if ask.groups:
        anytime = replace(ask, starts=None, not_before=None, deadline=None)
        return document_text(anytime, UTC)
    shape = shape_text(ask.count, " or ".join(ask.classes), ask.profile, ask.share)
    host = host_resources_text(ask.cores, ask.memory)
    return " ".join([shape, duration_text(ask.duration), *host, *pin_text(ask.pin)])
