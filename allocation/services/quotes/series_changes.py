"""Quotes of changes of series: how many dates change, and what that costs."""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db import transaction

from allocation.models import Approval, Booking, BookingChange, PolicyVersion, Series
from allocation.services.bookings.change.series import DateAnswer, SeriesPatch, series_patch
from allocation.services.gc_paused import gc_paused
from allocation.services.policy.policies import SOLVER_FAULTS, policy_of
from allocation.services.quotes.moves import MOST_ROWS
from allocation.services.record.terms import Terms
from allocation.services.snapshot.published import published_snapshot
from allocation.services.snapshot.snapshot import asked_changes_read
from allocation.words.reasons import sentence
from solver import Change, solve
from tenants.access import Actor
from tenants.platform.rows import rows_in_turn


@dataclass(frozen=True, slots=True)
class DateConflict:
    """A date that can't change now, by a rule or because the plan has no room, and why."""

    booking: Booking
    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class SeriesTrial:
    """What became of each date in a trial that wrote nothing. `conflicts` are the dates that can't
    change now; without `is_known` only those that a rule refuses."""

    answers: list[DateAnswer]
    conflicts: dict[UUID, DateConflict]
    is_known: bool


@dataclass(frozen=True, slots=True)
class SeriesQuote:
    """What a change of a series would do: dates by outcome, and the most that they cost before and
    after, with the late fee. `conflicts` are the dates that can't change now; without `is_known` only
    those that a rule refuses. By `rules` it needs an approval first."""

    outcomes: dict[str, int]
    before: Decimal
    after: Decimal
    fee: Decimal
    currency: str
    conflicts: tuple[DateConflict, ...]
    is_known: bool
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
        changes = asked_changes_read(now, frozenset(ids))
        transaction.set_rollback(True)
    trial = _trial(answers, changes, now)
    before = sum((old[key].hold_amount for key in ids), Decimal(0))
    after = sum((_costs(each, asked) for each in answers), Decimal(0))
    fee = sum((_fee(each, old[each.booking.id], asked) for each in answers), Decimal(0))
    return SeriesQuote(
        outcomes=dict(Counter(each.outcome for each in answers)),
        before=before,
        after=after,
        fee=fee,
        currency=date.currency,
        conflicts=tuple(trial.conflicts.values()),
        is_known=trial.is_known,
        rules=tuple(rules),
    )


def series_trial(
    *,
    actor: Actor,
    series: Series,
    date: Booking | None,
    patch: SeriesPatch,
    tag: str | None,
    now: datetime,
) -> SeriesTrial:
    """Tries a change for a dry run, in the caller's transaction, which has to be rolled back.

    Raises:
        Refused: as `series_patch`.
    """
    answers = series_patch(actor=actor, series=series, date=date, patch=patch, tag=tag, now=now)
    changes = asked_changes_read(now, frozenset(each.booking.id for each in answers))
    return _trial(answers, changes, now)


def _trial(answers: list[DateAnswer], changes: tuple[Change, ...], now: datetime) -> SeriesTrial:
    """Asks the next turn for each date apart: of dates that change all or none, only those without
    room are in conflict."""
    found = {
        each.booking.id: DateConflict(each.booking, each.refusal.code, each.refusal.sentence)
        for each in answers
        if each.refusal is not None
    }
    if not changes:
        return SeriesTrial(answers, found, is_known=True)
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    site = published_snapshot(now, policy)
    if len(site.held) + len(site.requests) > MOST_ROWS:
        return SeriesTrial(answers, found, is_known=False)
    apart = tuple(replace(each, group="") for each in changes)
    try:
        with gc_paused():
            plan = solve(replace(site, changes=apart), policy)
    except SOLVER_FAULTS:
        # The cycle reports a fault of its own; here the trial leaves it out.
        return SeriesTrial(answers, found, is_known=False)
    rows = {str(each.booking.id): each.booking for each in answers}
    for each in plan.changes:
        if not each.granted and each.booking in rows:
            row, why = rows[each.booking], each.reasons[0]
            found[row.id] = DateConflict(row, why.code, sentence(why))
    order = [each.booking.id for each in answers]
    return SeriesTrial(answers, {key: found[key] for key in order if key in found}, is_known=True)


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
