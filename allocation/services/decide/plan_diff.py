"""What of a plan is news to the database."""

from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from allocation.models import Booking
from allocation.rules.ask import MIN_DURATION_SECONDS
from allocation.rules.states import State
from allocation.services.decide.borrowing import BorrowingMark, borrowing_marks
from allocation.services.record.places import place_data
from allocation.services.runs.lost_runs import has_earlier_run, time_remaining
from allocation.services.snapshot.snapshot import instant
from allocation.solver import Assign, Plan, Reason, Refuse, Waiting


@dataclass(frozen=True, slots=True)
class Changes:
    """What of a plan is new to the database, and worth a stored decision."""

    plan: Plan
    marks: tuple[BorrowingMark, ...]

    def __bool__(self) -> bool:
        plan = self.plan
        answers = plan.assigns or plan.waits or plan.refusals or plan.extensions
        others = self.marks or plan.pauses or plan.moves or plan.withdrawn or plan.orders
        return bool(answers or others)


def changes_of(plan: Plan, now: datetime) -> Changes:
    """Leaves out waiting bookings whose promise and reasons are what is stored already, and
    refusals of such as are to begin anew: while they have time left, they wait."""
    answers: tuple[Waiting | Assign | Refuse, ...] = (*plan.waits, *plan.assigns, *plan.refusals)
    known = {
        str(booking.id): booking
        for booking in Booking.objects.filter(id__in=[UUID(each.booking) for each in answers])
    }
    # Who is told to go, now or before, is promised a place to go on; it gets one when it is out.
    leaving = {pause.booking for pause in plan.pauses}
    leaving |= {key for key, booking in known.items() if booking.state == State.PAUSING}
    kept = leaving | {key for key, booking in known.items() if _keeps_waiting(booking, now)}
    promised = (_promised(each) for each in plan.assigns if each.booking in leaving)
    waits = (*plan.waits, *promised)
    news = replace(
        plan,
        assigns=tuple(each for each in plan.assigns if each.booking not in leaving),
        waits=tuple(wait for wait in waits if not _is_known(wait, known.get(wait.booking))),
        refusals=tuple(each for each in plan.refusals if each.booking not in kept),
        extensions=tuple(each for each in plan.extensions if each.booking not in leaving),
    )
    return Changes(news, borrowing_marks(plan))


def _promised(assign: Assign) -> Waiting:
    return Waiting(
        assign.booking, assign.gpu_class, assign.places, assign.starts, assign.ends, assign.reasons
    )


def _keeps_waiting(booking: Booking, now: datetime) -> bool:
    """Not to be had now is no end: begun anew with time left, or the rest of a fixed window that is
    paused, which the clock ends."""
    if booking.state == State.PAUSED:
        return booking.starts is not None
    return has_earlier_run(booking) and time_remaining(booking, now)[0] >= MIN_DURATION_SECONDS


def reason_data(reason: Reason) -> dict[str, object]:
    """A reason as it is stored. `allocation.words` adds its sentence where it is shown."""
    return {
        "rule": reason.rule,
        "code": reason.code,
        "check": reason.check,
        "numbers": dict(reason.numbers),
        "frees_at": instant(reason.frees_at).isoformat() if reason.frees_at else None,
    }


def _is_known(wait: Waiting, booking: Booking | None) -> bool:
    return (
        booking is not None
        and booking.state in (State.QUEUED, State.PAUSING, State.PAUSED)
        and booking.planned_starts == instant(wait.starts)
        and booking.planned_places == [place_data(place) for place in wait.places]
        and booking.reasons == [reason_data(reason) for reason in wait.reasons]
    )
