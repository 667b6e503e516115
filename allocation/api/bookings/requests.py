"""What a client asks for: project, tier, and an ask as one line or as a document."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from rest_framework import serializers

from allocation.errors import AskError
from allocation.queries.fleet.catalogue import ask_catalogue
from allocation.rules.ask import MAX_TEXT_LENGTH, AskDocument, Parsed, parse_ask
from allocation.rules.ask.words.parsed import NOT_UNDERSTOOD
from allocation.rules.recurrence import recurrence_read
from allocation.services.bookings.bookings import BookingRequest
from allocation.services.bookings.price_lock import price_lock_read
from allocation.services.bookings.series import Repeat
from tenants.access import Actor
from tenants.platform.errors import Refused, invalid
from tenants.platform.fields import Strict, Text

STANDARD = "standard"


class AskIn(serializers.DictField):
    """The structured ask: `count`, `classes`, `profile`, `together`, `required`, `duration`
    (seconds or ISO 8601), `starts` or `not_before` and `deadline`, `share` (thousandths of one GPU,
    not isolated), with each device `cores` and `memory` (GiB) of its node, and `pin`: the nodes (by
    name) and GPUs (`node/index`, portal id or UUID) on which alone it may lie."""


class BookingIn(Strict):
    """A booking to make or to quote. Give either `request` or `ask`."""

    project = Text(max_length=40)
    tier = Text(
        max_length=40,
        required=False,
        help_text="The tier; `standard` if neither this nor the request says one.",
    )
    request = Text(
        max_length=MAX_TEXT_LENGTH, required=False, help_text="One line, as in `2 h100 6h today`."
    )
    ask = AskIn(required=False)
    quote = Text(
        max_length=200, required=False, help_text="The `quote` of an answer that showed the price."
    )
    name = Text(max_length=80, required=False, allow_blank=True, default="")
    zone = Text(
        max_length=64, required=False, help_text="IANA zone of local times; your own if left out."
    )

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        """Exactly one ask, and a zone that exists. Raises ValidationError."""
        if ("request" in given) == ("ask" in given):
            raise serializers.ValidationError(
                {"request": ["Give either `request` or `ask`."]}, code="missing_field"
            )
        if "zone" in given and given["zone"] not in available_timezones():
            raise serializers.ValidationError(
                {"zone": ["Choose an IANA zone, like Europe/Berlin."]}, code="bad_zone"
            )
        return given


def booking_request_of(
    actor: Actor, given: dict[str, Any], now: datetime, *, first: bool = False
) -> BookingRequest:
    """The wish; inside a transaction, because the catalogue is read. `first` is for what may
    repeat: the wish for its first date.

    Raises:
        Refused: for what can't be read, with the field's path as `param`.
    """
    zone = given.get("zone", actor.time_zone)
    ask, said_tier = _ask(given, zone, now, first=first)
    return BookingRequest(
        project=given["project"],
        tier=_tier(given, said_tier),
        ask=ask,
        name=given["name"],
        zone=zone,
        request_text=given.get("request", ""),
        priced_at=price_lock_read(given["quote"], now) if "quote" in given else None,
    )


def repeat_of(given: dict[str, Any], now: datetime, zone: ZoneInfo) -> Repeat:
    """How the wish repeats, as its `repeat` or its one line says; never both.

    Raises:
        Refused: for what can't be read, or does not repeat.
    """
    said = None
    if "request" in given:
        said = parse_ask(given["request"], catalogue=ask_catalogue(), now=now, zone=zone).repeat
    if (said is None) == ("repeat" not in given):
        raise invalid(
            "missing_field",
            "Say how it repeats, either in `request` or in `repeat`.",
            "repeat",
        )
    try:
        rule = said or recurrence_read(given["repeat"]["rrule"])
    except AskError as error:
        raise invalid(error.code, error.sentence, error.param) from error
    return Repeat(rule, given["partial"])


def _tier(given: dict[str, Any], said: str | None) -> str:
    """The tier of the field or of the line. Raises Refused when they differ."""
    if said and given.get("tier", said) != said:
        raise invalid("tier_twice", f"The request says the tier {said}: leave one out.", "tier")
    return said or str(given.get("tier", STANDARD))


def _ask(
    given: dict[str, Any], zone: str, now: datetime, *, first: bool
) -> tuple[AskDocument, str | None]:
    """The ask, and the tier that its line says."""
    if "ask" in given:
        return _read_document(given["ask"]), None
    text = given["request"]
    catalogue = ask_catalogue([(given["project"], given["project"])])
    parsed = parse_ask(text, catalogue=catalogue, now=now, zone=ZoneInfo(zone))
    if parsed.unknown:
        raise _not_understood(text, parsed)
    if parsed.cheapest:
        raise invalid(
            "cheapest_of_what", "Ask for a quote, and book its cheapest option.", "request"
        )
    try:
        return parsed.document(first=first), parsed.tier
    except AskError as error:
        raise invalid(error.code, error.sentence, error.param) from error


def _read_document(data: object) -> AskDocument:
    try:
        return AskDocument.from_json(data)
    except AskError as error:
        path = "ask" if error.param == "ask" else f"ask.{error.param}"
        raise invalid(error.code, error.sentence, path) from error


def _not_understood(text: str, parsed: Parsed) -> Refused:
    """At which words, why, and which lines would be understood."""
    unknown = [each for each in parsed.problems if each.code == NOT_UNDERSTOOD]
    words = ", ".join(f"“{text[each.start : each.end]}”" for each in unknown)
    return Refused(
        NOT_UNDERSTOOD,
        f"Not understood: {words}. {unknown[0].sentence}",
        "invalid",
        param="request",
        numbers={"spans": [list(span) for span in parsed.unknown]},
        alternatives=[{"request": each.text} for each in unknown[0].repairs],
    )
