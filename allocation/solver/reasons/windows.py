"""What is wrong with the window of a booking by itself, whatever the fleet looks like."""

from allocation.reasons.reason import Reason, reason
from allocation.solver.model.inputs import Request
from allocation.solver.state.working import Working


def why_window_impossible(working: Working, request: Request) -> Reason | None:
    """The rule against it; None: it lies ahead, is near enough, and holds its own length."""
    now, ends = working.now, request.earliest + request.duration
    if request.duration <= 0:
        return reason("too_short")
    if working.first_start(request.earliest) > now + working.policy.horizon:
        return reason(
            "advance_window",
            request.earliest - working.policy.horizon,
            horizon_seconds=working.policy.horizon,
        )
    if request.fixed:
        return reason("window_past") if ends <= now else None
    return _too_late(working, request)


def _too_late(working: Working, request: Request) -> Reason | None:
    now = working.now
    if request.latest is None:
        return None
    if request.latest <= now:
        return reason("deadline_passed")
    # A paused booking gets what is left before its deadline, however little that is.
    ends = working.first_start(request.earliest) + request.duration
    if request.latest < (max(now, request.earliest) + 1 if request.paused else ends):
        return reason("deadline_unreachable", duration=request.duration)
    return None
