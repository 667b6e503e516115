"""The open pause of a booking and its two ends: the booking resumes, or it is over."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet

from allocation.models import Allocation, Booking, Pause
from allocation.points import ORDERED_PAUSES
from allocation.rules.states import TERMINAL, State
from allocation.services.record.history import event_add
from allocation.words.events import event_text
from solver.reasons.catalogue import BY_CODE
from tenants.platform.database.compiled import Compiled
from tenants.platform.database.look import ASKED_AT

OPEN = Q(resumed_at=None, ended_at=None)
MACHINE_LEAVES = BY_CODE["machine_leaves"].id
# Nodes receive a withdrawal within seconds. One that does not would act on the old deadline.
NOTIFY_MARGIN = timedelta(seconds=15)


# A constraint allows one for each booking.
_open_of = Compiled(lambda _, keys: Pause.objects.filter(OPEN, booking__in=keys))


def pause_open(booking: Booking) -> Pause | None:
    """The pause that is neither resumed nor over. Lock the booking before changing it."""
    return next(iter(_open_of(ASKED_AT, [booking.id])), None)


def pauses_due(now: datetime) -> QuerySet[Pause]:
    """Open pauses whose GPUs are to be released: the grace period is over, or all is saved."""
    grace_over = Q(deadline__lte=now) | Q(acknowledged_at__isnull=False)
    return Pause.objects.filter(OPEN, grace_over, emptied_at=None)


def open_pauses() -> QuerySet[Pause]:
    """Open pauses of all kinds."""
    return Pause.objects.filter(OPEN)


def pauses_to_extend() -> QuerySet[Pause]:
    """Open pauses whose owners asked for more time and have no answer."""
    return Pause.objects.filter(OPEN, more_asked_at__isnull=False, acknowledged_at=None)


def pauses_withdrawable(now: datetime) -> QuerySet[Pause]:
    """Open pauses in their grace period that can be withdrawn, if nobody needs the GPUs any more.

    Only while nothing has been released, the owner has not confirmed a save, and the nodes answer
    and can still be notified in time. One that a stop, a budget or a feature ordered only when that no
    longer asks for it, and never one before hardware that leaves.
    """
    left_or_unreachable = Allocation.objects.filter(booking=OuterRef("booking")).filter(
        Q(state=Allocation.State.RELEASING)
        | Q(state__in=Allocation.LIVE) & (Q(abandoned=True) | Q(gpu__node__unreachable_since__isnull=False))
    )
    return Pause.objects.filter(
        OPEN,
        Q(cause__beneficiary__isnull=False) | Q(booking__is_drained=False),
        ~Q(Exists(left_or_unreachable)),
        ~Q(rule=MACHINE_LEAVES),
        *(~wanted() for wanted in ORDERED_PAUSES),
        booking__state=State.PAUSING,
        acknowledged_at=None,
        emptied_at=None,
        deadline__gt=now + NOTIFY_MARGIN,
    )


def pauses_unneeded(now: datetime) -> QuerySet[Pause]:
    """Those of them for which the record alone shows that nobody needs the GPUs any more.

    The beneficiary is over or starts elsewhere before the deadline, or nothing asks for an ordered
    pause. Of the others the solver finds it out, because it depends on what else is planned.
    """
    # What a beneficiary that is itself paused has until its own deadline is not what it waits for.
    starts_earlier = Allocation.objects.filter(
        booking=OuterRef("cause__beneficiary"),
        state__in=Allocation.LIVE,
        abandoned=False,
        period__startswith__lt=OuterRef("deadline"),
    ).exclude(booking__state=State.PAUSING)
    is_over = Q(cause__beneficiary__state__in=[*TERMINAL, State.ENDING])
    return pauses_withdrawable(now).filter(is_over | Q(cause__beneficiary=None) | Q(Exists(starts_earlier)))


def pauses_expired(now: datetime) -> QuerySet[Pause]:
    """Open pauses of fixed windows that have ended: nothing is left to resume."""
    return Pause.objects.filter(
        OPEN, emptied_at__isnull=False, ends_before__lte=now, booking__starts__isnull=False
    )


def pause_end(booking: Booking, now: datetime) -> None:
    """Closes the pause of a booking that ends before it could resume."""
    pauses_end([booking], now)


def pauses_end(bookings: Sequence[Booking], now: datetime) -> None:
    """Like `pause_end`, for many bookings in one statement."""
    Pause.objects.filter(OPEN, booking__in=bookings).update(ended_at=now)


def pause_resume(booking: Booking, now: datetime) -> bool:
    """Closes the pause of a booking that runs again; False when no pause was open."""
    found = Pause.objects.filter(OPEN, booking=booking, emptied_at__isnull=False)
    return bool(found.update(resumed_at=now))


def pause_acknowledge(
    booking: Booking, saved: datetime, now: datetime, *, actor_id: int | None = None
) -> bool:
    """Records that everything was saved at `saved`, which ends an earlier grace. Idempotent."""
    if booking.state != State.PAUSING:
        return False
    pause = pause_open(booking)
    # An agent's clock has whole seconds.
    if pause is None or pause.acknowledged_at or saved < pause.notified_at.replace(microsecond=0):
        return False
    pause.acknowledged_at, pause.more_asked_at = now, None
    pause.save(update_fields=["acknowledged_at", "more_asked_at"])
    event_add(
        booking,
        kind="saved",
        sentence=event_text("saved"),
        now=now,
        actor_id=actor_id,
    )
    return True
