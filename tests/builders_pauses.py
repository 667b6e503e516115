"""Makers of pauses, for tests of what people and programs see of them."""

from datetime import datetime, timedelta

from allocation.models import Booking, Decision, Pause, PauseCause, PolicyVersion
from allocation.rules.states import State
from tests.roles import as_system

GRACE = timedelta(minutes=10)


def a_decision(now: datetime) -> Decision:
    """A decision that says nothing, of the live policy."""
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
