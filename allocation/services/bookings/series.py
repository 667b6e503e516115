"""Bookings that repeat: all dates asked for in one transaction, had whole or one by one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4, uuid5
from zoneinfo import ZoneInfo

from django.db import transaction

from allocation.errors import AskError
from allocation.models import Series
from allocation.reasons.catalogue import BY_CODE
from allocation.rules.recurrence import Dates, Recurrence, dates_of, dates_overlap
from allocation.rules.states import State
from allocation.services.bookings.admission import admission_at, admission_check
from allocation.services.bookings.bookings import (
    AdmittedRequest,
    BookingRequest,
    booking_cancel,
    bookings_create,
)
from allocation.services.bookings.offers import offer_price
from tenants.access import Actor, access_project_to_book
from tenants.audit import audit_record
from tenants.platform.errors import Refused, invalid

BEFORE_START = (State.REQUESTED, State.AWAITING_APPROVAL, State.QUEUED, State.SCHEDULED)
PARAM = "repeat"


@dataclass(frozen=True, slots=True)
class Repeat:
    """How a wish repeats. With `is_partial` the dates that can be had are had without the rest."""

    rule: Recurrence
    is_partial: bool = False


def series_request(
    *,
    actor: Actor,
    wish: BookingRequest,
    repeat: Repeat,
    now: datetime,
    series_id: UUID | None = None,
) -> Series:
    """Asks for every date of the wish: a fixed window that repeats in wall clock time.

    The length is the same each time, also over a change of clocks. Each date is a booking with its
    own money; the next cycle decides all of them together. `series_id` lets a repeated request
    find the row that its first try made.

    Raises:
        Refused: `series_needs_start`, `series_too_long`, `series_overlap`, `no_dates`, or what
            refuses a date; of a partial series only if it refuses all. Nothing is written then.
    """
    identifier = series_id or uuid4()
    made = Series.objects.filter(tenant_id=actor.tenant_id, id=identifier).first()
    if made is not None:
        return made
    dates = series_dates(wish, repeat)
    with transaction.atomic():
        project = access_project_to_book(actor, wish.project, "project")
        series = Series(
            id=identifier,
            tenant_id=actor.tenant_id,
            project=project,
            owner_id=actor.user_id,
            name=wish.name,
            rule=repeat.rule.text,
            zone=wish.zone,
            first=dates.starts[0],
            is_partial=repeat.is_partial,
            skipped=list(dates.skipped),
            created=now,
        )
        series.save(force_insert=True)
        failed = _bookings_request(actor, series, wish, dates, now)
        if failed and (not series.is_partial or len(failed) == len(dates.starts)):
            raise _refusal(actor, repeat, dates, failed)
        if failed:
            series.failed = [_failed_data(moment, failed[moment]) for moment in sorted(failed)]
            series.save(update_fields=["failed"])
        audit_record(
            tenant_id=actor.tenant_id,
            actor_id=actor.user_id,
            action="series.request",
            target=("series", series.id),
            now=now,
            detail={"rule": series.rule, "dates": len(dates.starts), "failed": len(failed)},
        )
    return series


def series_cancel(*, actor: Actor, series: Series, now: datetime) -> int:
    """Cancels every date that has not started; how many. What runs is released by itself."""
    with transaction.atomic():
        rows = list(series.bookings.filter(state__in=BEFORE_START).order_by("starts", "id"))
        for booking in rows:
            booking_cancel(actor=actor, booking=booking, now=now)
        audit_record(
            tenant_id=series.tenant_id,
            actor_id=actor.user_id,
            action="series.cancel",
            target=("series", series.id),
            now=now,
            detail={"cancelled": len(rows)},
        )
    return len(rows)


def series_dates(wish: BookingRequest, repeat: Repeat) -> Dates:
    """The dates that the wish would have.

    Raises:
        Refused: `series_needs_start`, `series_too_long`, `series_overlap`, `no_dates`.
    """
    if wish.ask.starts is None:
        raise invalid(
            "series_needs_start",
            "A series repeats a fixed time: say from when to when, like 9-17.",
            "request",
        )
    try:
        dates = dates_of(repeat.rule, wish.ask.starts, ZoneInfo(wish.zone), PARAM)
    except AskError as error:
        raise _rule_refusal(error.code, error.sentence) from error
    if dates_overlap(dates.starts, wish.ask.duration):
        sentence = "A date would begin before the one before it is over. Make them shorter."
        raise _rule_refusal("series_overlap", sentence)
    return dates


def _bookings_request(
    actor: Actor, series: Series, wish: BookingRequest, dates: Dates, now: datetime
) -> dict[datetime, Refused]:
    """A booking for each date; those that were refused at once, and why."""
    failed: dict[datetime, Refused] = {}
    ask = replace(wish.ask, starts=dates.starts[0])
    # What all dates have in common is asked once.
    admission = admission_check(project=series.project, tier_slug=wish.tier, ask=ask, now=now)
    offer = offer_price(admission, wish.priced_at or now)
    requests: dict[UUID, AdmittedRequest] = {}
    for place, starts in enumerate(dates.starts):
        try:
            dated = admission_at(admission, starts, now)
        except Refused as refusal:
            failed[starts] = refusal
        else:
            key = uuid5(series.id, str(place))
            requests[key] = AdmittedRequest(series.project, wish, dated, offer, series)
    answers = bookings_create(actor, requests, now) if requests else {}
    for key, answer in answers.items():
        if isinstance(answer, Refused):
            failed[requests[key].admission.not_before] = answer
    return failed


def _refusal(
    actor: Actor, repeat: Repeat, dates: Dates, failed: Mapping[datetime, Refused]
) -> Refused:
    """Why not all of them: the first date that failed speaks, the others are in the numbers."""
    first = min(failed)
    why = failed[first]
    good = [moment for moment in dates.starts if moment not in failed]
    alternatives: list[dict[str, Any]] = [{"partial": True}] if good else []
    if good and good[-1] < first:
        # What comes before can be had: the same rule, ended in time.
        alternatives.insert(0, {"times": len(good), "until": good[-1].isoformat()})
    return replace(
        why,
        sentence=f"{len(failed)} of {len(dates.starts)} dates can't be had. "
        f"{actor.clock(first)}: {why.sentence}",
        numbers={
            **why.numbers,
            "rrule": repeat.rule.text,
            "failed": [_failed_data(moment, failed[moment]) for moment in sorted(failed)],
            "of": len(dates.starts),
        },
        alternatives=[*alternatives, *why.alternatives],
    )


def _failed_data(moment: datetime, refusal: Refused) -> dict[str, str]:
    return {
        "starts": moment.isoformat(),
        "code": refusal.code,
        "sentence": refusal.sentence,
    }


def _rule_refusal(code: str, sentence: str) -> Refused:
    """The refusal of a rule as such, citing the catalogue where the rule stands in it."""
    rule = BY_CODE.get(code)
    found = invalid(code, sentence, PARAM)
    return replace(found, rule=rule.id, owner=rule.owner) if rule else found
