"""Makers of pauses, for tests of what people and programs see of them."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from allocation.features.appeals.models import PauseAppeal
from allocation.features.limit_cuts.models import LimitCut
from allocation.models import Booking, Decision, Pause, PauseCause, PolicyVersion
from allocation.rules.states import State
from tenants.models import Project
from tests.builders_allocation import a_booking
from tests.roles import as_owner, as_system

GRACE = timedelta(minutes=10)


def a_decision(now: datetime, counts: Mapping[str, int] | None = None) -> Decision:
    """A decision that says nothing, of the live policy; `counts` are the rows of parts of its plan."""
    with as_system():
        policy, _ = PolicyVersion.objects.get_or_create(
            number=1, defaults={"document": {}, "state": "live", "created": now}
        )
        return Decision.objects.create(
            at=now,
            policy=policy,
            snapshot=b"",
            snapshot_sha256="",
            plan=b"",
            plan_sha256="",
            software="",
            solve_ms=0,
            leader_term=0,
            counts=dict(counts or {}),
        )


def a_pause(
    booking: Booking,
    beneficiary: Booking,
    *,
    now: datetime,
    ready: datetime,
    ends: datetime,
    label: str = "",
    may_wait: bool = True,
) -> Pause:
    """The notice, at `now`, for a booking that runs since `ready` and would until `ends`."""
    decision = a_decision(now)
    with as_system():
        pause = Pause.objects.create(
            tenant_id=booking.tenant_id,
            booking=booking,
            number=1,
            cause=PauseCause.objects.create(beneficiary=beneficiary),
            beneficiary_label=label,
            may_wait=may_wait,
            decision=decision,
            policy_version=1,
            rule="R46",
            sentence="It borrows what others are guaranteed, and started last.",
            method="stop",
            ready_at=ready,
            notified_at=now,
            deadline=now + GRACE,
            grace_seconds=600,
            ends_before=ends,
        )
        Booking.objects.filter(id=booking.id).update(
            state=State.PAUSING,
            ready_at=ready,
            notified_at=now,
            pause_count=1,
            planned_starts=None,
            planned_ends=None,
        )
    return pause


def a_limit_cut(project: Project, now: datetime) -> LimitCut:
    """The limit of the project was cut, and everything above it is drained."""
    with as_owner():
        return LimitCut.objects.create(
            tenant_id=project.tenant_id,
            gpu_class_id="h100",
            project=project,
            limit_units=0,
            answer="drain",
            created=now,
            changed=now,
        )


def an_open_appeal(project: Project, person: int, now: datetime) -> PauseAppeal:
    """A paused booking of the person, who contests the pause; operators answer."""
    running = a_booking(project, person, state=State.ACTIVE, starts=now)
    ahead = a_booking(project, person, state=State.QUEUED, starts=now)
    ends = now + timedelta(hours=2)
    pause = a_pause(running, ahead, now=now, ready=now - timedelta(minutes=5), ends=ends)
    with as_owner():
        return PauseAppeal.objects.create(
            tenant_id=project.tenant_id,
            booking=running,
            pause=pause,
            reason="I had hours left.",
            decider="operator",
            raised=now,
            raised_by_id=person,
        )
