"""Changes of a series: the body of a PATCH, and what became of each date."""

from datetime import time
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from allocation.access import access_booking
from allocation.models import Booking, Series
from allocation.services.bookings.change.series import DateAnswer, Scope, SeriesPatch
from allocation.services.quotes.series_changes import SeriesTrial
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.platform.errors import Refused, invalid
from tenants.platform.rest.fields import Duration, Flag, Strict, Text, Whole

OUTCOMES = ("changed", "asked", "own", "refused", "no_room")


class SeriesScopeQuery(Strict):
    """Which dates change."""

    scope = serializers.ChoiceField(
        choices=[each.value for each in Scope],
        help_text="`this` date, this and the `following` ones, or `all` that have not begun.",
    )


class SeriesPatchIn(Strict):
    """What changes at each date. Fields that are not sent stay as they are."""

    date = Text(max_length=40, required=False, help_text="A booking of the series, for `this`, `following`.")
    name = Text(max_length=80, required=False, allow_blank=True)
    tier = Text(max_length=40, required=False)
    duration = Duration(required=False)
    at = serializers.TimeField(
        required=False,
        format="%H:%M",
        input_formats=["%H:%M"],
        help_text="The start of each date, in the local time of the series: `14:30`.",
    )
    count = Whole(required=False)
    classes = serializers.ListField(child=Text(max_length=64), required=False, max_length=16)
    pin = serializers.ListField(child=Text(max_length=64), required=False, max_length=16)
    # Any: the base class has an attribute of this name.
    data: Any = serializers.ListField(child=Text(max_length=64), required=False, max_length=8)
    partial: Any = Flag(  # Any: the base class has an attribute of this name
        required=False,
        default=False,
        help_text="Change the dates that can change. By default all dates change, or none.",
    )
    if_full = serializers.ChoiceField(
        choices=["refuse", "wait"],
        required=False,
        default="refuse",
        help_text="What dates do for which there is no room: `wait` leaves the change open, with "
        "its added cost held, until there is room for all of them, or with `partial` for each.",
    )
    overwrite = Flag(
        required=False, default=False, help_text="Change also dates that were changed on their own."
    )


class ChangedDateOut(serializers.Serializer[Any]):
    """What became of one date."""

    id = serializers.CharField()
    number = serializers.CharField()
    outcome = serializers.ChoiceField(
        choices=OUTCOMES,
        help_text="`changed` at once, `asked` and decided next, `own`: it was changed on its own "
        "before and stays, or `refused`. A dry run also says `no_room`: the date would be asked for, and "
        "the plan has no GPUs for it now.",
    )
    code = serializers.CharField()
    sentence = serializers.CharField()


def tag_sent(request: Request) -> str | None:
    """The ETag in the header `If-Match`; None for `*`.

    Raises:
        Refused: `revision_needed` without the header.
    """
    sent = request.META.get("HTTP_IF_MATCH")
    if sent is None:
        raise Refused("revision_needed", refusal_text("revision_needed"), param="If-Match")
    # A compressed answer has a weak ETag. It names the same dates.
    return None if sent.strip() == "*" else sent.strip().removeprefix("W/").strip('"')


def series_patch_of(scope: str, given: dict[str, Any]) -> SeriesPatch:
    """The change of a validated `SeriesPatchIn`."""
    length, at = given.get("duration"), given.get("at")
    classes, pin, data = (given.get(name) for name in ("classes", "pin", "data"))
    return SeriesPatch(
        Scope(scope),
        duration=None if length is None else int(length.total_seconds()),
        at=None if at is None else time(at.hour, at.minute),
        count=given.get("count"),
        classes=None if classes is None else tuple(classes),
        pin=None if pin is None else tuple(pin),
        data=None if data is None else tuple(data),
        tier=given.get("tier"),
        name=given.get("name"),
        is_partial=given["partial"],
        overwrite=given["overwrite"],
        waits=given["if_full"] == "wait",
    )


def date_of(actor: Actor, series: Series, reference: str | None) -> Booking | None:
    """The date that a change starts from. Raises Refused `not_found` if it is of no such series."""
    if reference is None:
        return None
    found = access_booking(actor, reference)
    if found.series_id != series.id:
        raise invalid("not_found", refusal_text("date_elsewhere", label=found.label), "date")
    return found


def trial_data(trial: SeriesTrial) -> list[dict[str, Any]]:
    """The dates of a dry run as JSON values: those in conflict say why."""
    found = answer_data(trial.answers)
    for row, each in zip(found, trial.answers, strict=True):
        conflict = trial.conflicts.get(each.booking.id)
        if conflict is not None and each.refusal is None:
            row |= {"outcome": "no_room", "code": conflict.code, "sentence": conflict.sentence}
    return found


def answer_data(answers: list[DateAnswer]) -> list[dict[str, Any]]:
    """The dates of a change as JSON values."""
    return [
        dict(
            ChangedDateOut(
                {
                    "id": f"bk_{each.booking.id.hex}",
                    "number": each.booking.label,
                    "outcome": each.outcome,
                    "code": each.refusal.code if each.refusal else "",
                    "sentence": each.refusal.sentence if each.refusal else "",
                }
            ).data
        )
        for each in answers
    ]
