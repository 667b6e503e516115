"""The texts of a booking's page: state, reasons, cost and actions. No database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from textwrap import indent
from typing import Any
from urllib.parse import quote, urlencode

from allocation.models import Booking, Node
from allocation.queries.bookings.bookings import NodePlace
from allocation.rules.ask import AskDocument
from allocation.rules.ask.line.text import (
    data_text,
    document_text,
    duration_text,
    host_resources_text,
    pin_text,
    pin_words,
    shape_text,
    where_text,
)
from allocation.rules.states import ON_HARDWARE, ON_WAITLIST, OPEN, State
from allocation.services.bookings.checks.remedies import request_as
from allocation.services.overrides.waiting import more_for
from allocation.services.quotes.start_checks import CHECKS, StartCheck, is_delay, start_checks
from allocation.services.record.costs import booking_cost, rate_of
from allocation.web.bookings.costs import CostLine, booking_costs, returned_text
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.state_words import (
    borrowed_words,
    can_check_in,
    can_keep_idle,
    detail_words,
    headline_words,
    idle_words,
)
from allocation.web.parts.times import length_words, moment_words, window_words
from allocation.words.amounts import unit_of
from allocation.words.reasons import sentence_for
from allocation.words.where import where_words
from billing.peak_text import peak_words
from billing.rules import money_text, rest_in_cents
from tenants.platform.nouns import unit_text
from tenants.platform.words import more_text
from wire.kubernetes_names import gang_queue_name, queue_names, rank_name

# What is true of a booking that is not delayed by the check.
FINE = {
    "line": "No booking ahead of yours is in the way.",
    "quota": "Within the limits of your organisation and project.",
    "policy": "No tier rule prevents it.",
    "hardware": "No delay from GPUs that are out of service.",
}
AGENT_FOLDER = "/var/lib/gpu-agent/bookings"
UNDO = timedelta(seconds=60)
HAS_CLASS = frozenset({*ON_HARDWARE, State.SCHEDULED, State.PAUSED, State.ENDED, State.FAILED})
WAITS = (State.REQUESTED, State.QUEUED, State.REFUSED, State.EXPIRED)
BEFORE_START = (
    State.REQUESTED,
    State.AWAITING_APPROVAL,
    *ON_WAITLIST,
    State.QUEUED,
    State.SCHEDULED,
)


@dataclass(frozen=True, slots=True)
class Check:
    """One of the six checks; `blocks` when it delays the booking, `is_open` when nobody knows."""

    name: str
    blocks: bool
    is_open: bool
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
    borrowed: str
    more: Mapping[str, str]
    more_query: str
    more_words: str
    unit: str
    """`GPU` or `core`."""

    def worded(self) -> "BookingSummary":
        """Returns it with the noun of what the booking is for. What people wrote is in none of these."""

        def said(text: str) -> str:
            return unit_text(text, are_cores=self.unit != "GPU")

        return replace(
            self,
            headline=said(self.headline),
            detail=said(self.detail),
            checks=tuple(replace(each, sentences=tuple(map(said, each.sentences))) for each in self.checks),
            no_later=said(self.no_later),
            idle=said(self.idle),
            borrowed=said(self.borrowed),
            more_words=said(self.more_words),
        )


def booking_summary(
    booking: Booking, ctx: PageContext, *, may_change: bool, may_give_back: bool = False
) -> BookingSummary:
    """Returns the page's texts; without `may_change` no actions but, with `may_give_back`, its end."""
    state = State(booking.state)
    ask = AskDocument.from_json(booking.ask)
    can_undo = may_change and state in BEFORE_START and ctx.now - booking.submitted < UNDO
    waits = state in (*WAITS, State.PAUSED)
    has_reasons = (booking.reasons or ctx.frozen) and (waits or state == State.SCHEDULED)
    more = more_for(booking) if may_change and waits else {}
    return BookingSummary(
        headline=headline_words(booking, ctx),
        detail=detail_words(booking, ctx),
        what=booking_what(booking, ctx.labels),
        window=_window(booking, ask, ctx),
        checks=_checks(booking, ctx) if has_reasons else (),
        sooner=_sooner(booking, ctx) if waits else (),
        costs=booking_costs(booking, ctx),
        price=_price_words(booking),
        again=f"{ctx.base}book?q={quote(_again(ask))}",
        give_back=_give_back(state) if may_change or may_give_back else "",
        returns=returned_text(booking, ctx.now),
        extend=_extensions(booking, ctx) if may_change else (),
        no_later=_no_later(booking, ctx) if may_change else "",
        can_check_in=may_change and can_check_in(booking),
        can_keep_idle=may_change and can_keep_idle(booking),
        idle=idle_words(booking, ctx),
        can_undo=can_undo,
        more=more,
        more_query=urlencode(more),
        more_words=more_text(more) if more else "",
        borrowed=borrowed_words(booking, ctx) if state in OPEN else "",
        unit=unit_of(booking.ask),
    ).worded()


def _no_later(booking: Booking, ctx: PageContext) -> str:
    """Returns why it can't end later than it does now, which may be later than it was asked for."""
    if ctx.ends or not ctx.no_later or booking.planned_ends is None or booking.id in ctx.planned_pauses:
        return ""
    return f"Can't end after {moment_words(booking.planned_ends, ctx.zone, ctx.now)}: {ctx.no_later}"


def booking_what(booking: Booking, labels: Mapping[str, str]) -> str:
    """Returns what a booking has; before it has a class, the alternatives that it requests."""
    ask = AskDocument.from_json(booking.ask)
    if booking.state in HAS_CLASS and booking.planned_class in ask.classes:
        ask = replace(ask, classes=(booking.planned_class,))
    return what_words(ask, labels)


def what_words(ask: AskDocument, labels: Mapping[str, str]) -> str:
    """`2 × H100 80 GB`, `1g.10gb slice of H100 80 GB`, `2 × H100 80 GB + 4 × L40S`."""
    if ask.groups:
        rows = ((g.count, labels.get(g.gpu_class, g.gpu_class), g.profile) for g in ask.every_group)
        return " ".join([" + ".join(shape_words(*row) for row in rows), where_words(ask)]).rstrip()
    classes = " or ".join(labels.get(slug, slug) for slug in ask.classes)
    pinned = f" (pinned to {pin_words(ask.pin)})" if ask.pin else ""
    near = f" (near {' and '.join(ask.data)})" if ask.data else ""
    where = " ".join(["", where_words(ask)]).rstrip()
    return shape_words(ask.count, classes, ask.profile, ask.share) + where + pinned + near


def shape_words(count: int, gpu_class: str, profile: str | None, share: int | None = None) -> str:
    """`2 × H100 80 GB`, `2 × 1g.10gb slices of H100 80 GB`, `0.25 of an H100 80 GB …`."""
    if share is not None:
        return f"{share / 1000:g} of one {gpu_class}, shared, not isolated"
    if profile is None:
        return f"{count} × {gpu_class}"
    return f"{count} × {profile} slices of {gpu_class}" if count > 1 else f"{profile} slice of {gpu_class}"


def commands_of(booking: Booking, places: Sequence[NodePlace]) -> list[tuple[str, str]]:
    """Returns the shell commands per node; empty until the devices are ready."""
    if booking.state not in (State.ACTIVE, State.PAUSING):
        return []
    found = []
    for place in places:
        if place.allocation is None:
            continue
        if place.job is not None:
            name = f"{place.name}, on {place.chosen}" if place.chosen else place.name
            found.append((name, f"srun --jobid={place.job} --overlap --pty bash -l"))
            continue
        if place.engine == Node.Engine.KUBERNETES:
            queue = queue_names(booking.tenant.slug, booking.node_name).local
            found.append((place.name, f"kueue.x-k8s.io/queue-name: {queue}"))
            continue
        if place.engine in (Node.Engine.QUOTA, Node.Engine.VOLCANO):
            lines = _pod_lines(booking, place.host)
            is_queued = place.engine == Node.Engine.VOLCANO
            found.append((place.name, _queued_lines(booking, lines) if is_queued else lines))
            continue
        folder = f"{AGENT_FOLDER}/{booking.tenant.slug}.{booking.node_name}"
        found.append((place.name, f"ssh {place.name}\nsource {folder}/env"))
    return found


def _queued_lines(booking: Booking, lines: str) -> str:
    """Returns what a pod needs for its turn in the booking's queue of Volcano, with what its quota needs."""
    queue = gang_queue_name(queue_names(booking.tenant.slug, booking.node_name).queue)
    spec = indent(f"schedulerName: volcano\n{lines}", "  ")
    return f"metadata:\n  annotations: {{scheduling.volcano.sh/queue-name: {queue}}}\nspec:\n{spec}"


def _pod_lines(booking: Booking, node: str) -> str:
    """Returns what a pod needs to run in the quota of a booking."""
    rank = rank_name(queue_names(booking.tenant.slug, booking.node_name).queue, node)
    tolerated = "{key: gpu-portal/node, operator: Exists}"
    return (
        f"priorityClassName: {rank}\n"
        f"nodeSelector: {{kubernetes.io/hostname: {node}}}\n"
        f"tolerations: [{tolerated}]"
    )


def _window(booking: Booking, ask: AskDocument, ctx: PageContext) -> str:
    if booking.state in (State.PAUSED, State.PAUSING) and booking.expected_start is None:
        return f"not planned yet, {length_words(ask.duration)} requested"
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
    checks = start_checks(booking, [ctx.frozen] if ctx.frozen else [])
    # The decision's first reason has the longest delay and comes first.
    delays = [each.get("check", "policy") for each in booking.reasons if is_delay(each)]
    first = ["policy", *delays] if ctx.frozen else delays
    order = {key: place for place, key in reversed([*enumerate(first)])}
    ordered = sorted(checks, key=lambda each: order.get(each.check, len(first)))
    return tuple(_check(booking, each, ctx) for each in ordered)


def _check(booking: Booking, check: StartCheck, ctx: PageContext) -> Check:
    blocks = check.passed is False
    # What explains is left out next to what blocks; borrowed GPUs have a line of their own.
    reasons = [each for each in check.reasons if is_delay(each) == blocks and each.get("code") != "borrowed"]
    is_behind = check.check == "line" and bool(ctx.ahead)
    sentences = tuple(sentence_for(booking.ask, each) for each in reasons)
    return Check(
        name=CHECKS[check.check],
        blocks=blocks or is_behind,
        is_open=check.passed is None and not is_behind,
        sentences=sentences or (_fine(booking, check, ctx),),
        frees=_frees(reasons, booking.expected_start, ctx) if blocks else "",
    )


def _fine(booking: Booking, check: StartCheck, ctx: PageContext) -> str:
    """Returns what is true of a check without a reason."""
    is_open = booking.state in OPEN
    if check.check == "budget":
        held = money_text(rest_in_cents(booking.hold_amount, booking.settled), booking.currency)
        over = "The budget was sufficient; the money is no longer held."
        return f"{held} is held for this booking." if is_open else over
    if check.check == "line" and ctx.ahead:
        return "The bookings ahead of yours are listed below."
    if check.passed is None:
        return f"No start {'can' if is_open else 'could'} be planned, so this was not checked."
    if not is_open:
        return "Not the reason."
    return FINE[check.check] if check.check in FINE else _places_words(booking, ctx)


def _places_words(booking: Booking, ctx: PageContext) -> str:
    if booking.expected_start is None:
        return "Enough GPUs are planned for it."
    starts = moment_words(booking.expected_start, ctx.zone, ctx.now)
    return f"Enough GPUs are planned for it together from its start, {starts}."


def _frees(reasons: Sequence[Mapping[str, Any]], starts: datetime | None, ctx: PageContext) -> str:
    """Returns when the reasons end: by the planned start, because a pause can end them earlier."""
    times = [datetime.fromisoformat(each["frees_at"]) for each in reasons if each.get("frees_at")]
    if not times:
        return ""
    last = max(times)
    is_sooner = starts is not None and ctx.now < starts < last
    return moment_words(starts if starts is not None and is_sooner else last, ctx.zone, ctx.now)


def _sooner(booking: Booking, ctx: PageContext) -> tuple[Alternative, ...]:
    cards = []
    ask = AskDocument.from_json(booking.ask)
    for each in booking.alternatives[:3]:
        other = request_as(each, ask)
        if other.starts is None or other.starts < ctx.now:
            # The alternative has passed since the decision.
            continue
        text = document_text(other, ctx.zone, says_end=True)
        cards.append(
            Alternative(
                when=moment_words(other.starts, ctx.zone, ctx.now),
                what=f"{what_words(other, ctx.labels)}, {length_words(other.duration)}",
                href=f"{ctx.base}book?q={quote(f'{text} {booking.tier_id}')}",
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
    if ask.groups or ask.host:
        anytime = replace(ask, starts=None, not_before=None, deadline=None)
        return document_text(anytime, UTC)
    shape = shape_text(ask.count, " or ".join(ask.classes), ask.profile, ask.share)
    host = host_resources_text(ask.cores, ask.memory)
    where = [*where_text(ask.to_json()), *data_text(ask.data)]
    return " ".join([shape, duration_text(ask.duration), *host, *pin_text(ask.pin), *where])
