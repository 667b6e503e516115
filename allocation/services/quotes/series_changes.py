"""Quotes of changes of series: how many dates change, and what that costs."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db import transaction

from allocation.models import Approval, Booking, BookingChange, Series
from allocation.services.bookings.change.series import DateAnswer, SeriesPatch, series_patch
from allocation.services.record.terms import Terms
from tenants.access import Actor
from tenants.platform.rows import rows_in_turn


@dataclass(frozen=True, slots=True)
class SeriesQuote:
    """What a change of a series would do: dates by outcome, and the most that they cost before and
    after, with the late fee. `refusals` are the sentences of dates that can't change. By `rules` it
    needs an approval first."""

    outcomes: dict[str, int]
    before: Decimal
    after: Decimal
    fee: Decimal
    currency: str
    refusals: tuple[str, ...]
    rules: tuple[str, ...] = ()


def series_change_quote(
    *, actor: Actor, series: Series, date: Booking, patch: SeriesPatch, now: datetime
) -> SeriesQuote:
    """Returns what the change would do; nothing is written. Run inside the tenant's transaction.

    Raises:
        Refused: as `series_patch`.
    """
    old = {each.id: each for each in series.bookings.all()}
    with transaction.atomic(), rows_in_turn():
        answers = series_patch(actor=actor, series=series, date=date, patch=patch, tag=None, now=now)
        ids = [each.booking.id for each in answers]
        rows = BookingChange.objects.filter(booking__in=ids, state__in=BookingChange.OPEN)
        asked = {row.booking_id: row for row in rows}
        waiting = Approval.objects.filter(booking__in=ids, state=Approval.State.OPEN, asked=now)
        rules = {rule["name"]: None for each in waiting for rule in each.rules}
        transaction.set_rollback(True)
    before = sum((old[key].hold_amount for key in ids), Decimal(0))
    after = sum((_costs(each, asked) for each in answers), Decimal(0))
    fee = sum((_fee(each, old[each.booking.id], asked) for each in answers), Decimal(0))
    return SeriesQuote(
        outcomes=dict(Counter(each.outcome for each in answers)),
        before=before,
        after=after,
        fee=fee,
        currency=date.currency,
        refusals=tuple(each.refusal.sentence for each in answers if each.refusal is not None),
        rules=tuple(rules),
    )


def _costs(answer: DateAnswer, asked: dict[UUID, BookingChange]) -> Decimal:
    change = asked.get(answer.booking.id)
    if answer.outcome != "asked" or change is None:
        return answer.booking.hold_amount
    return Terms.from_json(change.target).hold_amount


def _fee(answer: DateAnswer, old: Booking, asked: dict[UUID, BookingChange]) -> Decimal:
    change = asked.get(answer.booking.id)
    if answer.outcome == "asked" and change is not None:
        return change.late_fee
    return answer.booking.late_fees - old.late_fees
