"""Plans that pause, made by hand: what the solver would say, written as a cycle writes it."""

from datetime import datetime, timedelta

from allocation.models import Allocation, Booking, Pause, PolicyVersion, SolverState
from allocation.services.decide.decision_log import DecisionLog
from allocation.services.plans.plan_diff import changes_of
from allocation.services.plans.transactions import plan_apply
from allocation.services.snapshot.snapshot import seconds, snapshot_take
from solver import Assign, Place, Plan, Waiting
from solver import Pause as Notice
from solver.reasons.reason import reason
from tests.roles import as_system

GRACE = timedelta(minutes=10)
BORROWED = reason("taken_back", tier="priority", lost=0)


def places_on(booking: Booking) -> tuple[Place, ...]:
    """Where the booking's live rows lie; under the system's role."""
    rows = booking.allocations.filter(state__in=Allocation.LIVE).order_by("id")
    return tuple(Place(str(row.gpu_id), row.profile, row.start, row.size) for row in rows)


def pause_plan(
    victim: Booking,
    beneficiary: Booking,
    at: datetime,
    *,
    resume: datetime | None = None,
    is_placed: bool = True,
) -> Plan:
    """The victim goes at `at`; the beneficiary has its first places from then on.

    `resume`: when the victim resumes, where it was. Not `is_placed`: the beneficiary waits with
    a planned start.
    """
    places = places_on(victim)
    row = victim.allocations.filter(state__in=Allocation.LIVE).earliest("id")
    upto = beneficiary.ask["count"]
    starts = seconds(at)
    given = (
        str(beneficiary.id),
        "h100",
        places[:upto],
        starts,
        starts + beneficiary.duration_seconds,
    )
    waits = []
    if resume is not None:
        left = seconds(row.period.upper) - starts
        begin = seconds(resume)
        waits.append(Waiting(str(victim.id), "h100", places, begin, begin + left, ()))
    if not is_placed:
        waits.append(Waiting(*given, ()))
    return Plan(
        assigns=(Assign(*given),) if is_placed else (),
        waits=tuple(waits),
        refusals=(),
        extensions=(),
        pauses=(Notice(str(victim.id), str(beneficiary.id), starts, 0, (BORROWED,)),),
    )


def plan_written(plan: Plan, now: datetime) -> None:
    """As a cycle that leads does it. Raises PlanStale."""
    with as_system():
        snapshot = snapshot_take(now)
        live = PolicyVersion.objects.get(state="live")
        decision = DecisionLog().record(snapshot, plan, live, now)
        decision.leader_term = SolverState.objects.get(id=1).leader_term
        plan_apply(changes=changes_of(plan, now), snapshot=snapshot, decision=decision, now=now)


def pause_of(booking: Booking) -> Pause:
    """Its last pause."""
    with as_system():
        return Pause.objects.filter(booking=booking).select_related("cause").latest("number")
