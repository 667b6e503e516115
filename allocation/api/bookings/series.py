"""Series: one request for several dates. Each date is a booking."""

import functools
from collections.abc import Sequence
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db import transaction
from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.access import access_series, access_series_to_change
from allocation.api.bookings.change.changes import DRY_RUN, IF_MATCH
from allocation.api.bookings.change.series import (
    ChangedDateOut,
    SeriesPatchIn,
    SeriesScopeQuery,
    answer_data,
    date_of,
    series_patch_of,
    tag_sent,
    trial_data,
)
from allocation.api.bookings.decisions import Preferences, preference_applied, preferences_of
from allocation.api.bookings.requests import BookingIn, booking_request_of, repeat_of, request_lines
from allocation.api.bookings.shapes import booking_id_text
from allocation.models import Series
from allocation.queries.bookings.series import (
    SeriesDate,
    SeriesShown,
    failed_dates_of,
    series_shown,
)
from allocation.services.bookings.change.series import series_patch, series_tag
from allocation.services.bookings.series import series_cancel, series_request
from allocation.services.quotes.series_changes import series_trial
from allocation.words.refusals import refusal_text
from solver.reasons.catalogue import BY_CODE
from tenants.api.base import ApiView, list_response
from tenants.api.idempotency import booking_id
from tenants.platform.deferred import Wait
from tenants.platform.errors import Refused
from tenants.platform.labels import Labels
from tenants.platform.rest.fields import Flag, Money, Strict, Text
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page


class RepeatIn(Strict):
    """A recurrence rule (RFC 5545): `FREQ=DAILY`, `WEEKLY` or `MONTHLY` with `INTERVAL`, `BYDAY`,
    `WKST`, and `COUNT` or `UNTIL`, which is a day or a time (`20270131T080000Z`). `MONTHLY` also
    takes `BYDAY=2TU,-1FR`, `BYMONTHDAY` and `BYSETPOS`."""

    rrule = Text(max_length=120, help_text="`FREQ=WEEKLY;BYDAY=MO,WE;UNTIL=20270131`.")
    keep_end = Flag(
        required=False,
        default=False,
        help_text="For `ask`: each date ends at the local time at which the first one ends, also "
        "when clocks change. By default each has the length of `ask`. A window in `request`, such "
        "as `22-6`, always keeps its end.",
    )


class SeriesIn(BookingIn):
    """A booking request with a fixed window and its recurrence, either in `request`
    (`every mon 9-17 until 31 jan`) or in `repeat`."""

    repeat = RepeatIn(required=False)
    partial: Any = Flag(  # Any: the base class has an attribute of this name
        required=False,
        default=False,
        help_text="Book the dates that are available. By default all dates are booked, or none.",
    )


class DateOut(serializers.Serializer[Any]):
    """One date of a series. For a date without a booking, `code` and `sentence` give the reason."""

    starts = serializers.DateTimeField()
    id = serializers.CharField(allow_null=True)
    number = serializers.CharField(allow_null=True)
    state = serializers.CharField(allow_null=True)
    code = serializers.CharField()
    sentence = serializers.CharField()


class SeriesOut(serializers.Serializer[Any]):
    """A series and all its dates. `skipped` lists days that do not exist in their month."""

    id = serializers.CharField(help_text="`sr_…`.")
    project = serializers.CharField()
    owner = serializers.CharField()
    name = serializers.CharField()
    labels = Labels()
    external_ref = serializers.CharField(help_text="A URL or a ticket's key. Empty without one.")
    rrule = serializers.CharField()
    words = serializers.CharField(help_text="The recurrence in words: `every Mon, Wed, 10 times`.")
    zone = serializers.CharField()
    first = serializers.DateTimeField()
    partial: Any = serializers.BooleanField()  # as above
    skipped = serializers.ListField(child=serializers.CharField())
    dates = DateOut(many=True)
    failed = DateOut(many=True, help_text="The dates that could not be booked.")
    held = Money(max_digits=20)
    currency = serializers.CharField()
    changes = ChangedDateOut(many=True, help_text="In the answer of a PATCH: each of its dates.")


class SeriesList(ApiView):
    """Series in the caller's projects."""

    has_reference = True
    queries = {"GET": PageQuery}

    @described(
        "list_series",
        "List series",
        answer=page(SeriesOut),
        query=PageQuery,
    )
    def get(self, request: Request) -> Response:
        """Returns the series in your projects, newest first."""
        with self.tx():
            rows = Series.objects.filter(tenant_id=self.actor.tenant_id)
            if not self.actor.is_tenant_admin:
                rows = rows.filter(project_id__in=self.actor.roles)
            found, next_cursor = page_of(
                rows.select_related("project", "owner"),
                keys=("-created", "-id"),
                query=self.query,
                scope=f"series:{self.actor.tenant_id}",
            )
            return list_response([series_data(series_shown(series)) for series in found], next_cursor)

    @described(
        "create_series",
        "Create a series",
        answer=SeriesOut,
        status=201,
        request=SeriesIn,
        headers=Preferences.PARAMETERS,
        others={200: SeriesOut},
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Books all dates in one step and returns the series. With `Prefer: wait=5` the answer
        waits for the decision: 201, or 409 when the series is refused."""
        preferences = preferences_of(request)
        sent = self.sent(SeriesIn)
        if preferences.dry_run:
            with self.tx(), transaction.atomic():
                answer = self._created(sent, None)
                transaction.set_rollback(True)
            answer.status_code = 200
            answer["Preference-Applied"] = "dry-run"
            return answer

        def work() -> Response:
            return self._created(sent, booking_id(self.actor, self.idempotency))

        def wait(response: Response) -> Wait:
            bookings = [each["id"] for each in response.data["dates"] if each["id"]]
            subject = UUID(bookings[-1].removeprefix("bk_"))
            return Wait(
                self.actor.tenant_id,
                subject,
                preferences.wait,
                functools.partial(self._decided, response.data["id"], preferences.wait),
            )

        return self.once(work, wait=wait if preferences.wait else None)

    def _created(self, sent: dict[str, Any], identifier: UUID | None) -> Response:
        wanted = booking_request_of(self.actor, sent, self.now, first=True)
        repeat = repeat_of(sent, self.now, ZoneInfo(wanted.zone))
        # Where the body has the recurrence, the line has none.
        with request_lines(sent, wanted, None if "repeat" in sent else repeat.rule):
            series = series_request(
                actor=self.actor, request=wanted, repeat=repeat, now=self.now, series_id=identifier
            )
        return _answer(series, status=201)

    def _decided(
        self,
        reference: str,
        seconds: int,
        last: object,
        applied: bool,  # noqa: FBT001 (as Wait says)
    ) -> Response:
        """The series once its `last` date is decided. All dates are decided in one step."""
        series = access_series(self.actor, reference)
        shown = series_shown(series)
        if not series.is_partial and failed_dates_of(shown):
            raise _refusal(shown)
        return preference_applied(_answer(series, status=201), seconds, applied=applied)


class SeriesOne(ApiView):
    """One series."""

    has_reference = True

    queries = {"PATCH": SeriesScopeQuery}

    @described("get_series", "Retrieve a series", answer=SeriesOut)
    def get(self, request: Request, series: str) -> Response:
        """Returns a series with all its dates."""
        with self.tx():
            return _answer(access_series(self.actor, series))

    @described(
        "act_update_series",
        "Change a series",
        answer=SeriesOut,
        status=(200, "application/json"),
        others={202: SeriesOut},
        request=SeriesPatchIn,
        headers=(*IF_MATCH, *DRY_RUN),
        query=SeriesScopeQuery,
    )
    def patch(self, request: Request, series: str) -> HttpResponseBase:
        """Changes one date, this and the following ones, or all that have not begun. The dates
        change all or none, unless `partial`; dates that were changed on their own stay, unless
        `overwrite`. If some dates stay behind, the changed ones become a series of their own. What
        only gives something up takes effect at once (200), anything else is decided (202). Requires
        `If-Match` with the series' ETag, which differs after each change of a date. `Prefer:
        dry-run` writes nothing, and says of each date that has no room now why. Where all dates change or
        none and a rule forbids some, `numbers.conflicts` of the refusal has every one."""
        sent, tag = self.sent(SeriesPatchIn), tag_sent(request)
        patch = series_patch_of(self.query["scope"], sent)
        is_dry_run = preferences_of(request).dry_run

        def work() -> Response:
            found = access_series_to_change(self.actor, series)
            date = date_of(self.actor, found, sent.get("date"))
            facts: dict[str, Any] = {
                "actor": self.actor,
                "series": found,
                "date": date,
                "patch": patch,
                "tag": tag,
            }
            if is_dry_run:
                trial = series_trial(**facts, now=self.now)
                answers, data = trial.answers, trial_data(trial)
            else:
                answers = series_patch(**facts, now=self.now)
                data = answer_data(answers)
            where = answers[-1].booking.series or found
            is_asked = any(each.outcome == "asked" for each in answers)
            return _answer(where, 202 if is_asked else 200, data)

        if not is_dry_run:
            return self.once(work)
        with self.tx(), transaction.atomic():
            answer = work()
            transaction.set_rollback(True)
        answer["Preference-Applied"] = "dry-run"
        return answer


class SeriesCancel(ApiView):
    """Cancels a series."""

    @described("act_cancel_series", "Cancel a series", answer=SeriesOut)
    def post(self, request: Request, series: str) -> HttpResponseBase:
        """Cancels every date that has not started and returns the series. To end a running date,
        release its booking."""

        def work() -> Response:
            found = access_series_to_change(self.actor, series)
            series_cancel(actor=self.actor, series=found, now=self.now)
            return _answer(found)

        return self.once(work)


def series_data(shown: SeriesShown, changes: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """The series as JSON values. Runs inside a transaction of its tenant."""
    series = shown.series
    data = SeriesOut(
        {
            "id": f"sr_{series.id.hex}",
            "project": series.project.slug,
            "owner": series.owner.username,
            "name": series.name,
            "labels": series.labels,
            "external_ref": series.external_ref,
            "rrule": series.rule,
            "words": shown.words,
            "zone": series.zone,
            "first": series.first,
            "partial": series.is_partial,
            "skipped": series.skipped,
            "dates": [_date(each) for each in shown.dates],
            "failed": [_date(each) for each in failed_dates_of(shown)],
            "held": shown.held,
            "currency": shown.currency,
            "changes": changes,
        }
    )
    return dict(data.data)


def _date(each: SeriesDate) -> dict[str, Any]:
    booking = each.booking
    return {
        "starts": each.starts,
        "id": booking_id_text(booking) if booking else None,
        "number": booking.label if booking else None,
        "state": booking.state if booking else None,
        "code": each.code,
        "sentence": each.sentence,
    }


def _answer(series: Series, status: int = 200, changes: Sequence[dict[str, Any]] = ()) -> Response:
    data = series_data(series_shown(series), changes)
    headers = {"Location": f"/api/v1/series/{data['id']}"} if status == 201 else {}
    headers["ETag"] = f'"{series_tag(series)}"'
    return Response(data, status=status, headers=headers)


def _refusal(shown: SeriesShown) -> Refused:
    """The decision that refused all dates, as a problem."""
    failed = [_date(each) for each in failed_dates_of(shown)]
    rule = BY_CODE["series_conflict"]
    return Refused(
        "series_conflict",
        refusal_text(
            "series_conflict",
            failed=len(failed),
            dates=len(shown.dates),
            sentence=failed[0]["sentence"],
        ),
        param="repeat",
        rule=rule.id,
        owner=rule.owner,
        numbers={
            "series": f"sr_{shown.series.id.hex}",
            "failed": [{**each, "starts": each["starts"].isoformat()} for each in failed],
            "of": len(shown.dates),
        },
        alternatives=[{"partial": True}] if len(failed) < len(shown.dates) else [],
    )
