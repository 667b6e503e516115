"""What follows from cuts over time: pauses that they ask for, and their end."""

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.features.limit_cuts.above import Booked, is_on, scope_name
from allocation.features.limit_cuts.models import CutPause, KeptBooking, LimitCut
from allocation.features.limit_cuts.services import above_now, cut_end, limit_of, owner_name
from allocation.models import Booking, PauseRelation
from allocation.queries.bookings.rung_effects import pausable
from allocation.rules.states import ON_HARDWARE
from allocation.services.plans.pauses import limit_pause_begin
from allocation.services.runs.transition import booking_lock
from solver.reasons.reason import reason
from tenants.failures import each_apart
from tenants.outbox import task_request


def cuts_open() -> QuerySet[LimitCut]:
    """Returns the cuts that are not over."""
    return LimitCut.objects.filter(ended=None)


def cuts_enforce(now: datetime) -> int:
    """Pauses what runs above cut limits where their owners asked for it, releases what fits again, and
    ends cuts that are met; returns how many bookings and cuts have changed."""
    return each_apart("limit cuts", cuts_open().order_by("id"), lambda cut: _enforce(cut.id, now), now)


def _enforce(cut_id: UUID, now: datetime) -> int:
    with transaction.atomic():
        cut = cuts_open().select_for_update().filter(id=cut_id).first()
        if cut is None:
            return 0
        rows = above_now(cut, now)
        if not rows:
            cut_end(cut, LimitCut.Outcome.MET, now)
            return 1
        changed = _release(cut, rows, now)
        if cut.answer == LimitCut.Answer.PAUSE and is_on(limit_of(cut), now):
            changed += sum(_pause(cut, each, now) for each in reversed(rows))
        if changed:
            task_request("allocation.cycle")
    return changed


def _release(cut: LimitCut, rows: list[Booked], now: datetime) -> int:
    """Lets those stay that fit the limit again, or whose cut asks for no pause any more."""
    open_ones = cut.pauses.filter(released=None, pause__resumed_at=None, pause__ended_at=None)
    if cut.answer == LimitCut.Answer.PAUSE:
        open_ones = open_ones.exclude(pause__booking__in=[each.booking.id for each in rows])
    return open_ones.update(released=now)


def _pause(cut: LimitCut, above_it: Booked, now: datetime) -> int:
    """Gives notice to a running booking if its tier allows to pause it now."""
    if above_it.is_planned or not Booking.objects.filter(pausable(now), id=above_it.booking.id).exists():
        return 0
    booking = booking_lock(above_it.booking.id, "tier")
    if not Booking.objects.filter(pausable(now), id=booking.id).exists():
        return 0
    why = reason("limit_cut", gpu_class=cut.gpu_class_id, owner=owner_name(limit_of(cut)))
    pause = limit_pause_begin(booking, why, _relation(cut), now)
    if pause is None:
        return 0
    CutPause.objects.create(tenant_id=cut.tenant_id, cut=cut, pause=pause)
    return 1


def _relation(cut: LimitCut) -> str:
    """Returns who pays for the pause: the organisation for its own limits, nobody for the operators'."""
    is_operators = cut.project_id is None and cut.lab_id is None and not cut.of_persons
    return "" if is_operators else PauseRelation.TENANT


def pauses_wanted() -> Q:
    """Returns the filter of pauses that an open cut still asks for."""
    rows = CutPause.objects.filter(released=None, cut__ended=None, cut__answer=LimitCut.Answer.PAUSE)
    return Q(id__in=rows.values("pause"))


def uses_kept() -> list[tuple[UUID, str, str, bool]]:
    """Returns what open cuts keep: bookings, names of limits' owners, classes, and whether it is a
    guarantee. A drained limit keeps what runs, also from new work inside it that could have it paused."""
    is_kept = Q(cut__answer=LimitCut.Answer.KEEP)
    is_kept |= Q(cut__answer=LimitCut.Answer.DRAIN, booking__state__in=ON_HARDWARE)
    rows = KeptBooking.objects.filter(is_kept, cut__ended=None)
    rows = rows.select_related("cut", "booking")
    return [
        (
            row.booking_id,
            scope_name(limit_of(row.cut), row.booking),
            row.cut.gpu_class_id,
            row.cut.of_guarantee,
        )
        for row in rows
    ]
