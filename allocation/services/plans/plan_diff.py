"""The part of a plan that changes the database."""

from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from allocation.models import Booking
from allocation.reasons.catalogue import UNPROVEN
from allocation.rules.ask import MIN_DURATION_SECONDS
from allocation.rules.states import State
from allocation.services.plans.borrowing import BorrowingMark, borrowing_marks
from allocation.services.plans.soft_places import soft_places_changed
from allocation.services.record.places import place_data
from allocation.services.runs.resume import has_earlier_run, time_remaining
from allocation.services.snapshot.snapshot import instant
from allocation.solver import Assign, Plan, Refuse, Waiting
from allocation.words.reasons import reason_data
from tenants.platform.database.compiled import Compiled

# Only what is compared here: a booking has a hundred columns.
_answered = Compiled(
    lambda _, keys: Booking.objects.filter(id__in=keys).only(
        *("state", "starts", "deadline", "duration_seconds", "used_seconds", "replacement_count"),
        *("planned_starts", "planned_strength", "planned_places", "reasons"),
    )
)


@dataclass(frozen=True, slots=True)
class Changes:
    """The part of a plan that changes the database, and deserves a stored decision."""

    plan: Plan
    marks: tuple[BorrowingMark, ...]

    def __bool__(self) -> bool:
        plan = self.plan
        answers = plan.assigns or plan.waits or plan.refusals or plan.extensions or plan.changes
        others = self.marks or plan.pauses or plan.moves or plan.withdrawn or plan.orders
        offers = plan.offers or plan.offers_withdrawn
        return bool(answers or others or plan.soft or offers or plan.idle)


def changes_of(plan: Plan, now: datetime) -> Changes:
    """Leaves out waiting bookings whose planned start and reasons are stored already.

    Refusals of requeued bookings are left out too: they wait while they have time left.
    """
    answers: tuple[Waiting | Assign | Refuse, ...] = (*plan.waits, *plan.assigns, *plan.refusals)
    answered = _answered(now, [UUID(each.booking) for each in answers]) if answers else ()
    known = {str(booking.id): booking for booking in answered}
    # A pausing booking gets a planned start now, and GPUs to resume on when it is paused.
    leaving = {pause.booking for pause in plan.pauses}
    leaving |= {key for key, booking in known.items() if booking.state == State.PAUSING}
    kept = leaving | {key for key, booking in known.items() if _keeps_waiting(booking, now)}
    planned = (_as_waiting(each) for each in plan.assigns if each.booking in leaving)
    waits = (*plan.waits, *planned)
    changed = {each.booking for each in plan.changes if each.granted}
    news = replace(
        plan,
        assigns=tuple(each for each in plan.assigns if each.booking not in leaving),
        waits=tuple(
            wait
            for wait in waits
            if wait.booking in changed or not _is_known(wait, known.get(wait.booking))
        ),
        refusals=tuple(each for each in plan.refusals if each.booking not in kept),
        extensions=tuple(each for each in plan.extensions if each.booking not in leaving),
        soft=soft_places_changed(plan.soft),
    )
    return Changes(news, borrowing_marks(plan, now))


def _as_waiting(assign: Assign) -> Waiting:
    return Waiting(
        assign.booking, assign.gpu_class, assign.places, assign.starts, assign.ends, assign.reasons,
    )  # fmt: skip


def _keeps_waiting(booking: Booking, now: datetime) -> bool:
    """Returns whether the booking survives a refusal.

    It is requeued with time left, or on the waiting list or the paused rest of a fixed window,
    which the clock ends.
    """
    if booking.state == State.WAITLISTED:
        return True
    if booking.state == State.PAUSED:
        return booking.starts is not None
    return has_earlier_run(booking) and time_remaining(booking, now)[0] >= MIN_DURATION_SECONDS


def has_planned_start(wait: Waiting) -> bool:
    """Returns whether the start is planned: without a proof it is a guess and is not shown."""
    is_proven = all(reason.code not in UNPROVEN for reason in wait.reasons[:1])
    return bool(wait.places) and is_proven


def _is_known(wait: Waiting, booking: Booking | None) -> bool:
    return (
        booking is not None
        and booking.state in (State.QUEUED, State.PAUSING, State.PAUSED)
        and booking.planned_starts == instant(wait.starts)
        and booking.planned_strength == (wait.strength if has_planned_start(wait) else None)
        and booking.planned_places == [place_data(place) for place in wait.places]
        and (wait.as_before or booking.reasons == [reason_data(each) for each in wait.reasons])
    )
