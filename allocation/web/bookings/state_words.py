"""What the state of a booking says: its headline and detail, and borrowed or idle GPUs."""

from datetime import datetime, timedelta

from allocation.models import Booking
from allocation.rules.states import State
from allocation.services.record.costs import cancellation_cost
from allocation.services.runs.idle_use import MOST_VETOES, is_idle_warned
from allocation.services.runs.no_shows import no_show_limit, presence_policy
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.pausing.notice import paused_words
from allocation.web.parts.planned_start import mover_words, waiting_words
from allocation.web.parts.times import clock, length_words, moment_words
from allocation.words.reasons import sentence_for
from billing.rules import money_text
from solver import UNITS_PER_GPU
from tenants.models import Tier

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


def state_words(booking: Booking, ctx: PageContext) -> str:
    """Returns the state with its time, for a row of a list."""
    row = PageContext(ctx.now, ctx.zone, "", {}, estimates=ctx.estimates, planned_pauses=ctx.planned_pauses)
    return headline_words(booking, row)


def headline_words(booking: Booking, ctx: PageContext) -> str:
    """Returns the state with its time."""

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
        State.ACTIVE: _running(booking, ctx),
        State.PAUSING: f"Pauses {at(ctx.pauses[-1].deadline)}" if ctx.pauses else "Pausing",
        State.PAUSED: f"Paused, resumes {at(booking.expected_start)}"
        if booking.expected_start
        else "Paused until GPUs are free",
        State.ENDING: "Ending: clearing the devices",
        State.ENDED: f"Ended {at(booking.ended_at)}",
        State.REFUSED: "Refused",
        State.REJECTED: "Not approved",
        State.EXPIRED: _expired(booking),
        State.CANCELLED: f"Cancelled {at(booking.ended_at)}",
        State.FAILED: "Failed",
    }
    return sayings[state]


def _expired(booking: Booking) -> str:
    """Returns why a booking was given up: its deadline, a limit, or no place that it can have."""
    ended = booking.ended_at
    is_late = booking.deadline is not None and ended is not None and booking.deadline <= ended
    if is_late:
        return "Deadline passed"
    check = booking.reasons[0].get("check") if booking.reasons else ""
    return "Expired: a limit does not allow it" if check == "quota" else "Expired: it can't get a place"


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


def detail_words(booking: Booking, ctx: PageContext) -> str:
    """Returns what comes next, or why it is so; empty if there is nothing to say."""
    state = State(booking.state)
    if booking.extension_until is not None:
        until = moment_words(booking.extension_until, ctx.zone, ctx.now)
        return f"An extension until {until} is being decided."
    if state in (State.REFUSED, State.EXPIRED) or _is_stalled(booking):
        return sentence_for(booking.ask, booking.reasons[0]) if booking.reasons else ""
    sayings = {
        State.ENDED: OUTCOMES.get(booking.outcome, booking.outcome).capitalize() + ".",
        State.QUEUED: _lost(booking)
        + (sentence_for(booking.ask, booking.reasons[0]) if booking.is_unplanned else mover_words(booking)),
        State.REQUESTED: str(ctx.frozen["sentence"])
        if ctx.frozen
        else "The solver is placing it; this takes a few seconds.",
        State.SCHEDULED: _until_start(booking, ctx.now),
        State.ACTIVE: _running_note(booking, ctx),
        State.PAUSED: paused_words(booking, ctx.pauses, ctx),
    }
    return sayings.get(state, "")


def _lost(booking: Booking) -> str:
    """Returns how long a booking ran whose GPUs were lost, and what is left; else empty."""
    if not booking.replacement_count or not booking.used_seconds:
        return ""
    left = float(booking.duration_seconds - booking.used_seconds)
    if booking.planned_starts is not None and booking.planned_ends is not None:
        left = (booking.planned_ends - booking.planned_starts).total_seconds()
    ran = length_words(booking.used_seconds)
    return f"It lost its GPUs after {ran} and waits for others; {length_words(left)} are left. "


def _is_stalled(booking: Booking) -> bool:
    """Returns whether its owner was notified that the node is slow to start."""
    is_told = any(reason.get("code") == "start_slow" for reason in booking.reasons)
    return is_told and booking.state in (State.SCHEDULED, State.STARTING)


def borrowed_words(booking: Booking, ctx: PageContext) -> str:
    """Returns how many GPUs it borrows at most until it ends, and from when another booking waits
    for them."""
    if not booking.borrowed_units:
        return ""
    what = _borrowed_part(booking.borrowed_units, ctx.units)
    if not booking.tier.pausable:
        return f"Borrows {what} before it ends: never paused, ends at its time."
    if booking.at_risk_from is None:
        return f"Borrows {what} before it ends: can be paused when their owner needs them."
    since = moment_words(booking.at_risk_from, ctx.zone, ctx.now)
    return f"Borrows {what}: at risk from {since}."


def _borrowed_part(borrowed: int, every: int) -> str:
    """Returns `up to 2 of its 10 GPUs`, or `all its GPUs`."""
    if borrowed >= every:
        return "up to all its GPUs"
    part, whole = (f"{units / UNITS_PER_GPU:.3g}" for units in (borrowed, every))
    return f"up to {part} of its {whole} GPU{'' if every == UNITS_PER_GPU else 's'}"


def _until_start(booking: Booking, now: datetime) -> str:
    seconds = (booking.planned_starts - now).total_seconds() if booking.planned_starts else 0.0
    return f"In {length_words(seconds)}." if seconds > 0 else "Starts as soon as its devices are empty."


def _running(booking: Booking, ctx: PageContext) -> str:
    """Returns until when it runs: the planned pause, if there is one."""
    pause = ctx.planned_pauses.get(booking.id)
    if pause is not None:
        return f"Pauses about {moment_words(pause.at, ctx.zone, ctx.now)}"
    ends = booking.planned_ends
    return f"Running until {moment_words(ends, ctx.zone, ctx.now) if ends else 'soon'}"


def _running_note(booking: Booking, ctx: PageContext) -> str:
    rest = _pause_to_come(booking, ctx) or _left(booking, ctx.now)
    return f"{rest} {_absence(booking, ctx)}".strip()


def _pause_to_come(booking: Booking, ctx: PageContext) -> str:
    """Returns what it is to be paused for and what happens to the rest; empty without such a plan."""
    pause = ctx.planned_pauses.get(booking.id)
    if pause is None or booking.planned_ends is None:
        return ""
    who = pause.label or "A higher-priority booking"
    rest = length_words((booking.planned_ends - pause.at).total_seconds())
    ends = moment_words(booking.planned_ends, ctx.zone, ctx.now)
    if booking.starts is not None:
        return f"{who} needs its GPUs then. It resumes if GPUs are free before {ends}."
    return (
        f"{who} needs its GPUs then. The last {rest} run as soon as GPUs are free again; "
        f"without a pause it ends {ends}."
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


def idle_words(booking: Booking, ctx: PageContext) -> str:
    """Returns when idle GPUs can be taken and what is charged then; empty without a warning."""
    if booking.state in (State.PAUSING, State.PAUSED) and booking.awaits_check_in:
        return "Its GPUs were idle: it resumes after you check in."
    until = booking.idle_veto_until
    if not is_idle_warned(booking) or until is None:
        return ""
    what = "be paused" if booking.tier.idle_action == Tier.IdleAction.PAUSE else "end"
    when = f"from {clock(until, ctx.zone)} on" if until > ctx.now else "any moment"
    charged = money_text(cancellation_cost(booking, max(until, ctx.now)), booking.currency)
    return (
        f"All its GPUs have been idle for {length_words(booking.idle_seconds)}. If another booking "
        f"can start earlier with them, it can {what} {when}: {charged} is charged then, no fee."
    )


def can_keep_idle(booking: Booking) -> bool:
    """Returns whether the owner can say that the idle GPUs are still needed."""
    return is_idle_warned(booking) and booking.idle_vetoes < MOST_VETOES


def can_check_in(booking: Booking) -> bool:
    """Returns whether a check-in of the owner changes something."""
    if booking.state in (State.PAUSING, State.PAUSED):
        return booking.awaits_check_in
    return booking.state == State.ACTIVE and booking.checked_in_at is None
