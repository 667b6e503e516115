"""The bookings that one waits for, and those that wait for it, in words."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from allocation.models import Booking, Dependency
from allocation.queries.bookings.after_parents import estimated_starts
from allocation.rules.states import TERMINAL, WAITING, State
from allocation.services.bookings.results import REPORTED_WITHIN
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.state_words import state_words
from allocation.web.parts.times import moment_words
from tenants.access import Actor

_NEEDS = {Dependency.Needs.END: "has to end", Dependency.Needs.SUCCESS: "has to succeed"}
_MINUTES = int(REPORTED_WITHIN.total_seconds()) // 60
MOST_NAMED = 8
OF_ANOTHER = "a booking of another project"


@dataclass(frozen=True, slots=True)
class ParentLine:
    """A booking that has to be over first; `when` is what it does now."""

    booking: Booking | None
    """None: one of a project that the reader does not see."""
    state: str
    needs: str
    when: str


@dataclass(frozen=True, slots=True)
class ParentsCard:
    """What a booking waits for, when it can start by that, and what follows if it fails."""

    title: str
    lines: tuple[ParentLine, ...]
    failure: str
    estimate: str


def parents_card(actor: Actor, booking: Booking, ctx: PageContext) -> ParentsCard | None:
    """Returns what a booking that has not begun waits for; None if it depends on nothing."""
    if booking.state not in (*WAITING, State.AWAITING_APPROVAL, State.CANCELLED):
        return None
    rows = list(booking.dependencies.select_related("parent__tier"))
    if not rows or (booking.state == State.CANCELLED and booking.outcome != "dependency"):
        return None
    above = replace(ctx, estimates=estimated_starts(row.parent for row in rows))
    lines = tuple(
        ParentLine(
            row.parent if actor.role_in(row.parent.project_id) else None,
            row.parent.state,
            _NEEDS[Dependency.Needs(row.needs)],
            _when(row, above),
        )
        for row in rows
    )
    waits = booking.awaits_parents
    failure, estimate = (_failure(rows), _estimate(booking, ctx)) if waits else ("", "")
    return ParentsCard(_title(rows, lines), lines, failure, estimate)


def dependents_lost(booking: Booking) -> list[str]:
    """Returns what a cancellation of a booking does to those that wait for it."""
    rows = booking.dependents.filter(booking__awaits_parents=True, booking__state__in=WAITING)
    labels = [row.booking.label for row in rows.select_related("booking")]
    if not labels:
        return []
    verb = "depends on it and is" if len(labels) == 1 else "depend on it and are"
    return [f"{_names(labels)} {verb} cancelled, too."]


def _title(rows: Sequence[Dependency], lines: Sequence[ParentLine]) -> str:
    """`Starts after BK-12 succeeds`, `Starts after 3 bookings`."""
    if len(rows) > 1:
        return f"Starts after {len(rows)} bookings"
    verb = "succeeds" if rows[0].needs == Dependency.Needs.SUCCESS else "ends"
    return f"Starts after {OF_ANOTHER if lines[0].booking is None else rows[0].parent.label} {verb}"


def _when(row: Dependency, ctx: PageContext) -> str:
    said = {"success": ", reported success", "failure": ", reported a failure"}
    words = state_words(row.parent, ctx)
    if row.needs == Dependency.Needs.SUCCESS and row.parent.state in TERMINAL:
        return words + said.get(row.parent.result, ", has reported no result")
    return words


def _estimate(booking: Booking, ctx: PageContext) -> str:
    starts = ctx.estimates.get(booking.id)
    if starts is None:
        return "No start can be estimated yet: not all of them have a planned end."
    when = moment_words(max(starts, ctx.now), ctx.zone, ctx.now)
    return (
        f"Estimated start: not before {when}, the planned end of what it waits for. "
        "No GPUs are reserved for it before that."
    )


def _failure(rows: Sequence[Dependency]) -> str:
    who = "If it" if len(rows) == 1 else "If one of them"
    causes = f"{who} fails or is cancelled before it runs"
    if any(row.needs == Dependency.Needs.SUCCESS for row in rows):
        causes += f", or has reported no success {_MINUTES} minutes after its end"
    return f"{causes}, this booking is cancelled at no cost."


def _names(labels: Sequence[str]) -> str:
    shown = ", ".join(labels[:MOST_NAMED])
    more = len(labels) - MOST_NAMED
    return f"{shown} and {more} more" if more > 0 else shown
