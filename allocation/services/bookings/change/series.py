"""Changes of a series: of one date, of it and those that follow, or of all that have not begun.

The changes of the dates are a group: all are made or none, unless the asker takes those that fit.
A series that changes from one date on is cut in two when its dates change.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

from django.db import transaction

from allocation.errors import AskError
from allocation.models import Booking, BookingChange, Series
from allocation.rules.ask import AskDocument
from allocation.rules.changes import Strength, Target, strength_of
from allocation.rules.recurrence import dates_overlap, recurrence_read
from allocation.rules.states import State
from allocation.services.bookings.approval.changes import (
    dates_approval_replace,
    group_approval_request,
)
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.change.series_cuts import series_cut, skipped_from
from allocation.services.bookings.change.waiting import group_wait
from allocation.services.bookings.change_rows import is_change_open
from allocation.services.bookings.checks.policy_hook import changes_ask
from allocation.services.bookings.checks.terms import target_of
from allocation.services.record.history import Event, events_add
from allocation.services.runs.transition import booking_change
from allocation.words.refusals import coded_text, refusal_text
from tenants.access import Actor
from tenants.audit import actor_record
from tenants.platform.errors import Refused, invalid

COMING = (State.REQUESTED, State.AWAITING_APPROVAL, State.QUEUED, State.SCHEDULED)


class Scope(StrEnum):
    """Which dates of a series change."""

    THIS = "this"
    FOLLOWING = "following"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class SeriesPatch:
    """What changes at each date; None: that part stays as it is. `at` is the local time of the
    start. `is_partial`: dates that can't change stay, and the others change. `overwrite`: also
    dates that were changed on their own. `waits`: what does not fit stays open until there is
    room, all dates together or, if it is partial, each on its own."""

    scope: Scope
    duration: int | None = None
    at: time | None = None
    count: int | None = None
    classes: tuple[str, ...] | None = None
    pin: tuple[str, ...] | None = None
    data: tuple[str, ...] | None = None
    tier: str | None = None
    name: str | None = None
    is_partial: bool = False
    overwrite: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class DateAnswer:
    """What became of one date: `changed`, `asked`, `own` (changed on its own before, so it stays),
    or `refused` with the refusal."""

    booking: Booking
    outcome: str
    refusal: Refused | None = None


def series_tag(series: Series) -> str:
    """The ETag of a series, without quotes: it differs after each change of one of its dates."""
    rows = series.bookings.order_by("number").values_list("number", "revision")
    return f"{zlib.crc32(repr(list(rows)).encode()):08x}"


def series_patch(
    *,
    actor: Actor,
    series: Series,
    date: Booking | None,
    patch: SeriesPatch,
    tag: str | None,
    now: datetime,
) -> list[DateAnswer]:
    """Changes dates of a series, or asks for it; `date` is the one that the scope starts from.

    Raises:
        Refused: `series_moved`, `date_needed`, `no_dates_left`, `series_overlap`, or by the rule
            that a date breaks, or an approval; `wait_too_late` if a date begins before the others
            could wait. Nothing is changed then.
    """
    with transaction.atomic():
        list(series.bookings.select_for_update().order_by("id").values_list("id"))
        if tag is not None and tag != series_tag(series):
            raise _moved()
        if date is not None:
            date = series.bookings.select_related("tier", "project", "owner").get(id=date.id)
        dates = _dates(series, date, patch)
        group = None if patch.scope is Scope.THIS else uuid4()
        hooked = _hook_ask(actor, dates, patch, now) if group is not None else {}
        new = _cut_off(series, dates, patch, group)
        targets = {date: target for date, (target, _) in hooked.items()}
        answers = [_change(actor, each, patch, group, targets.get(each.id), now) for each in dates]
        _all_check(actor, answers, patch, now)
        if group is not None:
            _approvals_ask(actor, answers, None if patch.is_partial else group, now)
            _wait(patch, group, now)
        _overlap_check(answers, patch)
        if all(each.outcome in ("refused", "own") for each in answers):
            raise _first_refusal(answers) or _no_dates()
        _keep_length(patch, new or series)
        if new is not None and patch.is_partial:
            for each in dates:
                each.refresh_from_db()
                booking_change(each, now=now, series=new)
            series_cut(series, new)
        if hooked:
            rows = [each.booking for each in answers if each.outcome in ("changed", "asked")]
            events_add([hooked[each.id][1].row(each, now) for each in rows if each.id in hooked])
        _audit(actor, series, patch, answers, now)
    return answers


def _wait(patch: SeriesPatch, group: UUID, now: datetime) -> None:
    """Lets dates that wait for room all wait equally long, unless each waits on its own."""
    if patch.waits and not patch.is_partial:
        group_wait(group, now)


def _approvals_ask(actor: Actor, answers: Sequence[DateAnswer], group: UUID | None, now: datetime) -> None:
    """Asks for the approvals of dates that change together. `group`: they change all or none."""
    dates_approval_replace(actor, [each.booking for each in answers], now)
    if group is not None:
        group_approval_request(actor, group, now)


def _hook_ask(
    actor: Actor, dates: Sequence[Booking], patch: SeriesPatch, now: datetime
) -> dict[UUID, tuple[Target, Event]]:
    """Asks the policy hook about the dates that ask for more, in one call; returns what counts for
    each of them, with the event that says so."""
    changes = []
    for date in dates:
        old = target_of(date)
        new = replace(old, ask=_ask_of(date, patch), tier=patch.tier or old.tier)
        if strength_of(old, new) is Strength.STRONGER:
            changes.append((date, new))
    answers = changes_ask(actor, changes, now)
    if answers is None:
        return {}
    return {date.id: said for (date, _), said in zip(changes, answers, strict=True)}


def _dates(series: Series, date: Booking | None, patch: SeriesPatch) -> list[Booking]:
    """The dates in the scope, by their starts; those that have begun stay."""
    if patch.scope is Scope.ALL:
        rows = series.bookings.filter(state__in=COMING)
    elif date is None:
        raise invalid("date_needed", refusal_text("date_needed"), "date")
    elif patch.scope is Scope.THIS:
        return [date]
    elif date.state not in COMING:
        raise Refused("date_begun", refusal_text("date_begun", label=date.label), param="date")
    else:
        rows = series.bookings.filter(state__in=COMING, starts__gte=date.starts)
    found = list(rows.select_related("tier", "project", "owner").order_by("starts", "id"))
    if not found:
        raise _no_dates()
    return found


def _cut_off(
    series: Series, dates: Sequence[Booking], patch: SeriesPatch, group: UUID | None
) -> Series | None:
    """The series that the dates will belong to, under the id of their group; None: the same."""
    earlier = series.bookings.filter(starts__lt=dates[0].starts).count()
    if patch.scope is not Scope.FOLLOWING or group is None or not earlier:
        return None
    rule = recurrence_read(series.rule)
    if rule.times is not None:
        rule = replace(rule, times=max(1, rule.times - earlier))
    first = _ask_of(dates[0], patch).starts or series.first
    new = Series(
        id=group,
        tenant_id=series.tenant_id,
        project_id=series.project_id,
        owner_id=series.owner_id,
        name=series.name if patch.name is None else patch.name,
        labels=series.labels,
        external_ref=series.external_ref,
        rule=rule.text,
        zone=series.zone,
        first=first,
        is_partial=series.is_partial,
        keeps_end=series.keeps_end,
        skipped=skipped_from(series, dates[0].starts or first),
        created=series.created,
    )
    new.save(force_insert=True)
    return new


def _change(
    actor: Actor,
    date: Booking,
    patch: SeriesPatch,
    group: UUID | None,
    target: Target | None,
    now: datetime,
) -> DateAnswer:
    """Changes one date; `target` is what the policy hook made of it."""
    if group is not None and not patch.overwrite and _is_changed_alone(date):
        return DateAnswer(date, "own")
    try:
        with transaction.atomic():
            each = Patch(
                ask=target.ask if target else _ask_of(date, patch),
                tier=target.tier if target else patch.tier,
                name=patch.name,
                group=group,
                is_partial=patch.is_partial,
                waits=patch.waits,
            )
            made = booking_patch(actor=actor, booking=date, patch=each, revision=None, now=now)
    except Refused as refusal:
        if group is None:
            raise
        return DateAnswer(date, "refused", refusal)
    return DateAnswer(made, "asked" if is_change_open(made) else "changed")


def _ask_of(date: Booking, patch: SeriesPatch) -> AskDocument:
    """The request of a date after the change.

    Raises:
        Refused: a value that no request may have.
    """
    ask = target_of(date).ask
    if patch.at is not None and ask.starts is not None and date.series is not None:
        ask = _moved_to(ask, ask.starts, patch.at, date.series)
    parts: dict[str, Any] = {
        "duration": patch.duration,
        "count": patch.count,
        "classes": patch.classes,
        "pin": patch.pin,
        "data": patch.data,
    }
    plain = {**ask.to_json()}
    plain |= {name: value for name, value in parts.items() if value is not None}
    plain |= {name: list(plain[name]) for name in ("classes", "pin", "data") if name in plain}
    try:
        return AskDocument.from_json(plain)
    except AskError as error:
        raise invalid(error.code, coded_text(error.text), error.param) from error


def _moved_to(ask: AskDocument, starts: datetime, at: time, series: Series) -> AskDocument:
    """The request of a date at another local time, until its end at the clock or of its length."""
    zone = ZoneInfo(series.zone)
    local = datetime.combine(starts.astimezone(zone).date(), at)
    moved = local.replace(tzinfo=zone).astimezone(UTC)
    if not series.keeps_end:
        return replace(ask, starts=moved)
    ends = starts + timedelta(seconds=ask.duration)
    begun, over = (each.astimezone(zone).replace(tzinfo=None) for each in (starts, ends))
    last = (local + (over - begun)).replace(tzinfo=zone).astimezone(UTC)
    seconds = int((last - moved).total_seconds())
    return replace(ask, starts=moved, duration=seconds if seconds > 0 else ask.duration)


def _is_changed_alone(date: Booking) -> bool:
    """Whether its request was changed on its own, and that was not undone."""
    made = BookingChange.objects.filter(
        booking=date, state=BookingChange.State.CHANGED, group=None, undoes=None
    ).exclude(strength="word")
    undone = BookingChange.objects.filter(
        booking=date, state=BookingChange.State.CHANGED, undoes__isnull=False
    )
    return made.exclude(id__in=undone.values("undoes")).exists()


def _all_check(actor: Actor, answers: Sequence[DateAnswer], patch: SeriesPatch, now: datetime) -> None:
    """Refuses a change of all dates or none, with every date that can't change in `conflicts`."""
    refused = [(each.booking, each.refusal) for each in answers if each.refusal is not None]
    if patch.is_partial or not refused:
        return
    (date, first), numbers = refused[0], [conflict_data(*each) for each in refused]
    when = actor.clock(date.starts or date.not_before, now)
    sentence = refusal_text("series_date_failed", first=when, why=first.sentence)
    raise replace(first, sentence=sentence, numbers={**first.numbers, "conflicts": numbers})


def conflict_data(date: Booking, refusal: Refused) -> dict[str, str]:
    """A date that can't change, and why, as JSON values."""
    starts = date.starts or date.not_before
    facts = {"number": date.label, "starts": starts.isoformat()}
    return {**facts, "code": refusal.code, "sentence": refusal.sentence}


def _overlap_check(answers: Sequence[DateAnswer], patch: SeriesPatch) -> None:
    if patch.duration is None and patch.at is None:
        return
    windows = sorted(_window_of(each.booking, patch) for each in answers)
    if dates_overlap(*zip(*windows, strict=True)):
        raise invalid("series_overlap", refusal_text("series_overlap"), "duration")


def _keep_length(patch: SeriesPatch, series: Series) -> None:
    """Lets the dates of a series have a length rather than an end, once they are given one."""
    if patch.duration is not None and patch.scope is not Scope.THIS and series.keeps_end:
        series.keeps_end = False
        series.save(update_fields=["keeps_end"])


def _window_of(date: Booking, patch: SeriesPatch) -> tuple[datetime, datetime]:
    ask = _ask_of(date, patch)
    starts = ask.starts or date.not_before
    return starts, starts + timedelta(seconds=ask.duration)


def _first_refusal(answers: Sequence[DateAnswer]) -> Refused | None:
    return next((each.refusal for each in answers if each.refusal is not None), None)


def _no_dates() -> Refused:
    return Refused("no_dates_left", refusal_text("no_dates_left"), param="scope")


def _moved() -> Refused:
    return Refused("revision_moved", refusal_text("series_moved"), param="If-Match")


def _audit(
    actor: Actor,
    series: Series,
    patch: SeriesPatch,
    answers: Sequence[DateAnswer],
    now: datetime,
) -> None:
    outcomes = [each.outcome for each in answers]
    detail = {"scope": patch.scope.value, "dates": len(outcomes)}
    detail |= {name: outcomes.count(name) for name in sorted(set(outcomes))}
    actor_record(actor, "series.change", ("series", series.id), now, detail)
