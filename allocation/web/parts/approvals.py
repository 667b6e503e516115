"""An approval in words, for pages of bookings and of approvals."""

from datetime import datetime, tzinfo

from allocation.models import Approval, Booking
from allocation.rules.approvals import Step
from allocation.rules.states import State
from allocation.web.parts.times import moment_words

_SHOWN = (State.AWAITING_APPROVAL, State.REJECTED)


def step_words(step: Step, project: str) -> str:
    """`A lead of Genomics`, `2 admins of the organisation`."""
    noun, where = ("admin", "the organisation") if step.role == "admin" else ("lead", project)
    if step.needed > 1:
        return f"{step.needed} {noun}s of {where}"
    return f"{'An' if noun == 'admin' else 'A'} {noun} of {where}"


def outcome_words(approval: Approval, zone: tzinfo, now: datetime) -> str:
    """`Approved by Ada Lind, today 10:32: for the deadline`; empty while it is open."""
    if approval.state == Approval.State.OPEN or approval.decided is None:
        return ""
    by = approval.decided_by
    name = f" by {by.display_name}" if by else ""
    reason = f": {approval.reason}" if approval.reason else ""
    state = approval.get_state_display()
    return f"{state}{name}, {moment_words(approval.decided, zone, now)}{reason}"


def approval_line(booking: Booking, zone: tzinfo, now: datetime) -> tuple[Approval, str] | None:
    """The request of a booking that awaits an approval or got none, and who decides it."""
    if booking.state not in _SHOWN:
        return None
    rows = booking.approvals.select_related("project", "decided_by").order_by("-asked", "-id")
    approval = rows.first()
    if approval is None:
        return None
    words = outcome_words(approval, zone, now)
    if not words:
        who = step_words(approval.present_step, approval.project.name)
        words = f"{who} decides by {moment_words(approval.decide_by, zone, now)}."
        if booking.planned_starts is not None and booking.place_until is not None:
            starts, until = booking.planned_starts, booking.place_until
            words += (
                f" If it is approved by {moment_words(until, zone, now)}, it starts by"
                f" {moment_words(starts, zone, now)} at the latest: its GPUs are kept until then."
            )
    return approval, words
