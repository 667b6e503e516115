"""Series: a request that repeats, with one booking per date, all or nothing or in part."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import islice, pairwise
from typing import Any
from uuid import UUID, uuid4, uuid5
from zoneinfo import ZoneInfo

from django.db import transaction

from allocation.errors import AskError
from allocation.models import Series
from allocation.rules.ask import MIN_DURATION_SECONDS, AskDocument
from allocation.rules.recurrence import MAX_DATES, Dates, Recurrence, dates_of, dates_overlap
from allocation.rules.states import State
from allocation.services.bookings.checks.admission import Asker, admission_at, admitted
from allocation.services.bookings.checks.admission_check import admission_check
from allocation.services.bookings.checks.offers import offer_price
from allocation.services.bookings.checks.policy_hook import request_ask
from allocation.services.bookings.checks.remedies import request_of, with_remedies
from allocation.services.bookings.creation import AdmittedRequest, bookings_check, bookings_create
from allocation.services.bookings.release import booking_cancel
from allocation.services.bookings.requests import BookingRequest
from allocation.words.refusals import coded_text, refusal_text
from billing.price_books import PriceShelf
from billing.services import campaign_to_charge
from solver.reasons.catalogue import BY_CODE
from tenants.access import Actor, access_project_to_book
from tenants.audit import actor_record
from tenants.models import Project
from tenants.platform.errors import Refused, invalid
from tenants.rules.moments import instant_text

BEFORE_START = (State.REQUESTED, State.AWAITING_APPROVAL, State.QUEUED, State.SCHEDULED)
PARAM = "repeat"
WEEK = timedelta(weeks=1)
_OF_ALL_DATES = ("budget_exceeded", "too_many_open", "too_many_gpus")


@dataclass(frozen=True, slots=True)
class Repeat:
    """How a request repeats. `is_partial`: dates that fail don't refuse the others. `keeps_end`:
    each date ends at the same local time; otherwise each has the same length."""

    rule: Recurrence
    is_partial: bool = False
    keeps_end: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """The window of one date of a series."""

    starts: datetime
    ends: datetime

    @property
    def seconds(self) -> int:
        """Its length."""
        return int((self.ends - self.starts).total_seconds())


def series_request(
    *,
    actor: Actor,
    request: BookingRequest,
    repeat: Repeat,
    now: datetime,
    series_id: UUID | None = None,
) -> Series:
    """Creates a booking for every date of a fixed window that repeats in wall clock time.

    Each has its own money. Over a change of clocks its end or its length stays, as `repeat` says.
    The next cycle decides all of them together. `series_id` lets a retry find the row of its first
    attempt.

    Raises:
        Refused: `series_needs_start`, `series_too_long`, `series_overlap`, `no_dates`, or the
            refusal of a date, of every one in a partial series. Nothing is written then.
    """
    identifier = series_id or uuid4()
    if made := Series.objects.filter(tenant_id=actor.tenant_id, id=identifier).first():
        return made
    try:
        dates, windows = series_dates(request, repeat)
    except Refused as refusal:
        raise of_fewer_dates(refusal, actor, request, repeat, now) from refusal
    project = access_project_to_book(actor, request.project, "project")
    asked = {"series": {"rrule": dates.rule.text, "dates": len(dates.starts)}}
    request = request_ask(actor, "series", request, now, asked)
    series = _series_of(actor, request, repeat, dates, now)
    series.id, series.project = identifier, project
    try:
        with transaction.atomic():
            failed = _dates_write(actor, series, request, (dates, windows), repeat, now)
            counts = {"dates": len(dates.starts), "failed": len(failed)}
            _audit(actor, "series.request", series, now, {"rule": series.rule, **counts})
    except Refused as refusal:
        raise _with_less(refusal, actor, series, request, repeat, now) from refusal
    return series


def _dates_write(
    actor: Actor,
    series: Series,
    request: BookingRequest,
    dated: tuple[Dates, tuple[Window, ...]],
    repeat: Repeat,
    now: datetime,
) -> dict[datetime, Refused]:
    """Writes the series with its bookings; returns the refusals by date. Raises Refused."""
    dates, windows = dated
    series.save(force_insert=True)
    try:
        failed = _bookings_request(actor, series, request, windows, now)
    except Refused as refusal:
        raise of_all_dates(refusal, actor, request, repeat, now) from refusal
    if failed and (not series.is_partial or len(failed) == len(dates.starts)):
        found = _refusal(request, dates, failed, now)
        suits = partial(_suits_all, actor, request, repeat, now)
        raise replace(found, alternatives=[each for each in found.alternatives if suits(each)])
    if failed:
        series.failed = [_failed_data(moment, failed[moment]) for moment in sorted(failed)]
        series.save(update_fields=["failed"])
    return failed


def _with_less(
    refusal: Refused, actor: Actor, series: Series, request: BookingRequest, repeat: Repeat, now: datetime
) -> Refused:
    """The refusal for money or for a limit of a person, of which no date is free, with what would be
    enough for all dates: each change is made and undone."""
    numbers = dict(refusal.numbers)
    if refusal.code not in _OF_ALL_DATES or any("times" in each for each in refusal.alternatives):
        return refusal
    if "needs" in numbers:
        numbers["needs"] = str(Decimal(numbers["needs"]) * numbers["of"])

    def try_it(tier: str, ask: AskDocument) -> None:
        other = replace(request, ask=ask, tier=tier)
        _, windows = series_dates(other, repeat)
        with transaction.atomic():
            series.save(force_insert=True)
            for refused in _bookings_request(actor, series, other, windows, now).values():
                raise refused
            transaction.set_rollback(True)

    asked = replace(refusal, numbers=numbers, alternatives=())
    found = with_remedies(asked, request.ask, request.tier, try_it)
    return replace(refusal, alternatives=[*refusal.alternatives, *found.alternatives])


def _series_of(actor: Actor, request: BookingRequest, repeat: Repeat, dates: Dates, now: datetime) -> Series:
    """The row of a series, not saved, without its id and its project."""
    return Series(
        tenant_id=actor.tenant_id,
        owner_id=actor.user_id,
        name=request.name,
        labels=dict(request.labels),
        external_ref=request.external_ref,
        rule=dates.rule.text,
        zone=request.zone,
        first=dates.starts[0],
        keeps_end=repeat.keeps_end,
        is_partial=repeat.is_partial,
        skipped=list(dates.skipped),
        created=now,
    )


def series_cancel(*, actor: Actor, series: Series, now: datetime) -> int:
    """Cancels every date that has not started; returns how many. Running dates are not changed."""
    with transaction.atomic():
        rows = list(series.bookings.filter(state__in=BEFORE_START).order_by("starts", "id"))
        for booking in rows:
            booking_cancel(actor=actor, booking=booking, now=now)
        _audit(actor, "series.cancel", series, now, {"cancelled": len(rows)})
    return len(rows)


def series_dates(request: BookingRequest, repeat: Repeat) -> tuple[Dates, tuple[Window, ...]]:
    """Returns the dates of a request that repeats, and the window of each.

    Raises:
        Refused: `series_needs_start`, `series_too_long`, `series_overlap`, `no_dates`.
    """
    if request.ask.starts is None:
        raise invalid(
            "series_needs_start",
            refusal_text("series_needs_start"),
            "request",
        )
    try:
        dates = dates_of(repeat.rule, request.ask.starts, ZoneInfo(request.zone), PARAM)
    except AskError as error:
        raise _rule_refusal(error.code, coded_text(error.text)) from error
    seconds = request.ask.duration
    last = request.ask.starts + timedelta(seconds=seconds)
    ends = dates.at_local(last) if repeat.keeps_end else dates.after(seconds)
    if dates_overlap(dates.starts, ends):
        raise _rule_refusal("series_overlap", refusal_text("series_overlap"))
    return dates, tuple(map(Window, dates.starts, ends))


def _audit(actor: Actor, action: str, series: Series, now: datetime, detail: dict[str, Any]) -> None:
    actor_record(actor, action, ("series", series.id), now, detail)


def _bookings_request(
    actor: Actor,
    series: Series,
    request: BookingRequest,
    windows: Sequence[Window],
    now: datetime,
) -> dict[datetime, Refused]:
    """Creates a booking for each date; returns the refusals by date."""
    failed: dict[datetime, Refused] = {}
    ask = replace(request.ask, starts=windows[0].starts, duration=windows[0].seconds)
    # The dates share one admission; each has the price of its day.
    admission = admission_check(
        project=series.project,
        tier_slug=request.tier,
        ask=ask,
        now=now,
        asker=_asker_of(actor, request),
    )
    shelf = PriceShelf.read(request.priced_at or now)
    campaign = campaign_to_charge(series.project, request.campaign, request.labels, request.external_ref)
    requests: dict[UUID, AdmittedRequest] = {}
    for place, window in enumerate(windows):
        try:
            dated = admission_at(admission, window.starts, now, window.seconds)
            offer = offer_price(dated, shelf)
        except Refused as refusal:
            failed[window.starts] = refusal
        else:
            key = uuid5(series.id, str(place))
            requests[key] = AdmittedRequest(series.project, request, dated, offer, series, campaign)
    answers = bookings_create(actor, requests, now) if requests else {}
    for key, answer in answers.items():
        if isinstance(answer, Refused):
            failed[requests[key].admission.not_before] = answer
    return failed


def dates_refused(
    actor: Actor, project: Project, request: BookingRequest, repeat: Repeat, now: datetime
) -> Refused | None:
    """Returns the refusal of the dates that the rules of times refuse; None: they admit all, or not even
    the first. Money and the calendar are looked at when it is booked."""
    dates, windows = series_dates(request, repeat)
    first = replace(request.ask, starts=windows[0].starts, duration=windows[0].seconds)
    failed: dict[datetime, Refused] = {}
    try:
        admission = admitted(project, request.tier, first, now, _asker_of(actor, request))
    except Refused:
        return None
    for window in windows:
        try:
            admission_at(admission, window.starts, now, window.seconds)
        except Refused as refusal:
            failed[window.starts] = refusal
    return _refusal(request, dates, failed, now) if failed else None


def series_check(
    actor: Actor, project: Project, request: BookingRequest, repeat: Repeat, now: datetime
) -> None:
    """Checks the times of all dates, without money and the calendar.

    Raises:
        Refused: as `series_request`, with what suits all dates.
    """
    try:
        _, windows = series_dates(request, repeat)
    except Refused as refusal:
        raise of_fewer_dates(refusal, actor, request, repeat, now) from refusal
    first = replace(request.ask, starts=windows[0].starts, duration=windows[0].seconds)
    asker = _asker_of(actor, request)
    try:
        admission_check(project=project, tier_slug=request.tier, ask=first, now=now, asker=asker)
    except Refused as refusal:
        raise of_all_dates(refusal, actor, request, repeat, now) from refusal
    if refused := dates_refused(actor, project, request, repeat, now):
        suits = partial(_suits_all, actor, request, repeat, now)
        raise replace(refused, alternatives=[*filter(suits, refused.alternatives)])


def of_all_dates(
    refusal: Refused,
    actor: Actor,
    request: BookingRequest,
    repeat: Repeat,
    now: datetime,
) -> Refused:
    """Returns the refusal of the first date with the alternatives that suit all dates."""
    suits = partial(_suits_all, actor, request, repeat, now)
    found = [*filter(suits, refusal.alternatives)]
    if not found and "latest" in refusal.numbers:
        found = [*islice(filter(suits, _nearer(refusal, request, repeat, now)), 1)]
    if not found:
        # What is enough for one date is, with fewer of them.
        most = len(series_dates(request, repeat)[0].starts)
        fewer = (_most_dates(suits, each, most, repeat.rule) for each in refusal.alternatives)
        found = [*islice(filter(None, fewer), 1)]
    return replace(refusal, alternatives=found)


def _most_dates(
    suits: Callable[[Mapping[str, Any]], bool], changed: Mapping[str, Any], most: int, rule: Recurrence
) -> dict[str, Any] | None:
    """Returns the change with the most dates that every rule of a request admits; None: not even one."""

    def remedy(times: int) -> dict[str, Any]:
        return {**changed, "times": times, "rrule": rule_of({"times": times}, rule).text}

    # More dates reach further ahead, so all rules that admit some admit fewer.
    times = bisect_left(range(1, most + 1), 1, key=lambda many: int(not suits(remedy(many))))
    return remedy(times) if times else None


def of_fewer_dates(
    refusal: Refused, actor: Actor, request: BookingRequest, repeat: Repeat, now: datetime
) -> Refused:
    """Returns the refusal of a rule with too many dates, or none, with the most dates that every
    rule of a request admits; of dates that overlap, with the longest time that is free between two."""
    if refusal.code == "series_overlap":

        def try_it(tier: str, ask: AskDocument) -> None:
            _dates_try(actor, replace(request, ask=ask, tier=tier), repeat, now)

        apart = replace(refusal, alternatives=list(_apart(request, repeat)))
        found = with_remedies(apart, request.ask, request.tier, try_it).alternatives
        return replace(refusal, alternatives=found[:1])
    if refusal.code not in ("series_too_long", "no_dates"):
        return refusal

    most = MAX_DATES if refusal.code == "series_too_long" else 1
    fewer = _most_dates(partial(_suits_all, actor, request, repeat, now), {}, most, repeat.rule)
    return replace(refusal, alternatives=[fewer] if fewer else [])


def _apart(request: BookingRequest, repeat: Repeat) -> Iterator[dict[str, Any]]:
    """Yields lengths in which no date reaches the next. A change of clocks can make a night shorter."""
    starts = request.ask.starts
    if starts is None:
        return
    found = dates_of(repeat.rule, starts, ZoneInfo(request.zone), PARAM).starts
    gap = min(int((after - each).total_seconds()) for each, after in pairwise(found))
    for seconds in (gap, gap - 3600):
        if seconds >= MIN_DURATION_SECONDS:
            yield {"duration": seconds}


def _suits_all(
    actor: Actor, request: BookingRequest, repeat: Repeat, now: datetime, remedy: Mapping[str, Any]
) -> bool:
    """Returns whether the rules, the limits for a person and the money admit every date of the series
    that a remedy makes; of a series in part, any date."""
    other = replace(request, ask=request_of(remedy, request.ask), tier=remedy.get("tier", request.tier))
    again = replace(repeat, rule=rule_of(remedy, repeat.rule))
    try:
        _dates_try(actor, other, again, now, is_any=bool(remedy.get("partial")))
    except Refused:
        return False
    return True


def _dates_try(
    actor: Actor, request: BookingRequest, repeat: Repeat, now: datetime, *, is_any: bool = False
) -> None:
    """Checks all dates of a series together, or whether one of them can be booked. Writes nothing.

    Raises:
        Refused: as `series_request`.
    """
    project = access_project_to_book(actor, request.project, "project")
    shelf = PriceShelf.read(request.priced_at or now)
    _, windows = series_dates(request, repeat)
    first = replace(request.ask, starts=windows[0].starts, duration=windows[0].seconds)
    admission = admitted(project, request.tier, first, now, _asker_of(actor, request))
    campaign = campaign_to_charge(project, request.campaign, request.labels, request.external_ref)

    def check(some: Sequence[Window]) -> None:
        dated = [admission_at(admission, window.starts, now, window.seconds) for window in some]
        offers = ((each, offer_price(each, shelf)) for each in dated)
        all_of = (AdmittedRequest(project, request, *each, campaign=campaign) for each in offers)
        bookings_check(actor, {uuid4(): each for each in all_of}, now)

    for window in windows[:-1] if is_any else ():
        with suppress(Refused):
            check([window])
            return
    check(windows[-1:] if is_any else windows)


def rule_of(remedy: Mapping[str, Any], rule: Recurrence) -> Recurrence:
    """Returns the rule of a series with as many dates as a remedy says."""
    if "times" not in remedy:
        return rule
    return replace(rule, times=remedy["times"], until=None, until_at=None)


def _nearer(
    refusal: Refused, request: BookingRequest, repeat: Repeat, now: datetime
) -> Iterator[dict[str, Any]]:
    """Yields the series some weeks earlier: with all of its dates, else with the most."""
    dates, _ = series_dates(request, repeat)
    zone, latest = ZoneInfo(request.zone), datetime.fromisoformat(refusal.numbers["latest"])
    first = dates.starts[0].astimezone(zone)
    least, most = -(-(dates.starts[-1] - latest) // WEEK), (first - now) // WEEK
    # Clocks may change in between, and tiers ask for notice, so that a week more or less is needed.
    for weeks in (least, least + 1, most, most - 1):
        earlier = weeks * WEEK
        starts = (first - earlier).astimezone(UTC)
        times = sum(each - earlier <= latest for each in dates.starts)
        if starts > now and times:
            rule = rule_of({"times": times}, repeat.rule)
            yield {"starts": starts.isoformat(), "times": times, "rrule": rule.text}


def _refusal(
    request: BookingRequest, dates: Dates, failed: Mapping[datetime, Refused], now: datetime
) -> Refused:
    """Returns the refusal of the first date that failed; the others are in its numbers."""
    first = min(failed)
    why = failed[first]
    good = [moment for moment in dates.starts if moment not in failed]
    alternatives: list[dict[str, Any]] = [{"partial": True}] if good else []
    if good and good[-1] < first:
        # All dates before the first failure are free: the same rule with an earlier end.
        alternatives.insert(0, {"times": len(good), "until": good[-1].isoformat()})
    # Money and limits of a person count all dates together, so what is enough for one date is not.
    of_one = () if why.code in _OF_ALL_DATES else why.alternatives
    return replace(
        why,
        sentence=refusal_text(
            "series_failed",
            failed=len(failed),
            of=len(dates.starts),
            first=instant_text(first, ZoneInfo(request.zone), now),
            why=why.sentence,
        ),
        numbers={
            **why.numbers,
            "rrule": dates.rule.text,
            "failed": [_failed_data(moment, failed[moment]) for moment in sorted(failed)],
            "of": len(dates.starts),
        },
        alternatives=[*alternatives, *of_one],
    )


def _asker_of(actor: Actor, request: BookingRequest) -> Asker:
    """Who asks for all dates. Refusals say times in the zone of the request, as its lines do."""
    return Asker(actor.user_id, is_many=True, zone=request.zone)


def _failed_data(moment: datetime, refusal: Refused) -> dict[str, str]:
    return {
        "starts": moment.isoformat(),
        "code": refusal.code,
        "sentence": refusal.sentence,
    }


def _rule_refusal(code: str, sentence: str) -> Refused:
    """Returns a refusal that cites its rule if the catalogue has one."""
    rule = BY_CODE.get(code)
    found = invalid(code, sentence, PARAM)
    return replace(found, rule=rule.id, owner=rule.owner) if rule else found
