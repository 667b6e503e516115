"""The body of a booking request: project, tier, and the request as text or in structured form."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from rest_framework import serializers

from allocation.errors import AskError
from allocation.models import WaitMode
from allocation.points.bookings import Windows
from allocation.queries.fleet.catalogue import ask_catalogue
from allocation.rules.ask import MAX_COUNT, MAX_DURATION_SECONDS, MAX_TEXT_LENGTH, AskDocument, parse_ask
from allocation.rules.ask.words.document import LONGEST_SAID, MOST_SAID, seconds_said
from allocation.rules.recurrence import Recurrence, recurrence_read
from allocation.rules.workload_names import LABEL
from allocation.services.bookings.price_lock import price_lock_read
from allocation.services.bookings.remedy_lines import lines_offered
from allocation.services.bookings.request_text import project_named, request_read
from allocation.services.bookings.requests import STANDARD, BookingRequest
from allocation.services.bookings.series import Repeat
from allocation.words.refusals import coded_text, refusal_text
from tenants.access import Actor
from tenants.platform.errors import invalid
from tenants.platform.labels import Labels, Reference
from tenants.platform.rest.fields import Strict, Text, Whole

# Words without which no text is an array.
_MANY = re.compile(r"sweep|array|runs?\b|jobs?\b|tasks?\b|elements?\b", re.IGNORECASE)


class AskIn(serializers.DictField):
    """The structured form of a request. Fields: `count`, `classes`, `profile`, `together`,
    `required`, `duration` (seconds or ISO 8601), either `starts` or `not_before` and `deadline`,
    `share` (thousandths of one GPU, not isolated), `cores` and `memory` (GiB) of the node for each
    device, `workload`, `pin` (the only allowed nodes, by name, and GPUs, by `node/index`, id or
    UUID), `zones` and `not_zones` (where it may and may not run), `storage` of its nodes (`local` or
    `shared`), `scratch` (GB of local NVMe that they have at least), `data` (up to 8 names of data sets: of
    places that are as early and as close together, those on nodes that have them are taken), and
    `may_burst` with `most_cost`: if it would wait, machines may be rented for it for so much. A booking of
    several GPU classes has `groups` instead of `count` and `classes`: 2 to 4 of `gpu_class`, `count`,
    `profile`, `cores`, `memory`, `together` and `required`. All groups start and end together. In a tier
    that may be paused, such a booking is paused before those of one class, and starts and resumes only
    when GPUs of all its
    classes are free."""


class BookingIn(Strict):
    """A booking to create or to quote. Provide either `request` or `ask`."""

    project = Text(max_length=40)
    tier = Text(
        max_length=40,
        required=False,
        help_text="Defaults to the tier named in `request`, or else to `standard`.",
    )
    request = Text(max_length=MAX_TEXT_LENGTH, required=False, help_text="One line: `2 h100 6h today`.")
    ask = AskIn(required=False)
    quote = Text(max_length=200, required=False, help_text="The `quote` whose prices apply.")
    name = Text(max_length=80, required=False, allow_blank=True, default="")
    campaign = Text(
        max_length=40,
        required=False,
        allow_blank=True,
        default="",
        help_text="Slug of a campaign of the project, whose budget counts the booking, too.",
    )
    workload = serializers.RegexField(
        r"^[a-z0-9][a-z0-9_-]{0,62}$",
        required=False,
        help_text="A short name for the kind of its work, such as `protein-fold`; it is the label `workload`."
        " Defaults to `name` without the numbers at its end.",
    )
    labels = Labels(
        required=False,
        default=dict,
        help_text="At most 32 key-value pairs. Keys have lower-case letters, digits and `. _ - /`.",
    )
    external_ref = Reference(
        required=False, default="", help_text="A URL or a ticket's key, such as `GPU-123`."
    )
    if_full = serializers.ChoiceField(
        choices=["refuse", "wait"],
        required=False,
        default="refuse",
        help_text="What a fixed window does that is full: `wait` puts the booking on the waiting "
        "list, with its money held. It is booked as soon as there is room.",
    )
    zone = Text(
        max_length=64,
        required=False,
        help_text="IANA time zone for local times in `request`. Defaults to your own time zone.",
    )

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        """Requires exactly one form of the request and an existing zone. Raises ValidationError."""
        if ("request" in given) == ("ask" in given):
            raise serializers.ValidationError(
                {"request": [refusal_text("request_or_ask")]}, code="missing_field"
            )
        zone_check(given.get("zone", "UTC"))
        return given


class ParentIn(Strict):
    """A booking that has to be over first. Its reference alone is enough: `"BK-2041"`."""

    booking = Text(max_length=40, help_text="`BK-2041` or `bk_…`, of your organisation.")
    needs = serializers.ChoiceField(
        choices=["end", "success"],
        required=False,
        default="end",
        help_text="`success`: its program has reported success, at most 10 minutes after its end.",
    )

    def to_internal_value(self, data: object) -> dict[str, Any]:
        """Reads an object or a reference."""
        value: dict[str, Any] = super().to_internal_value(
            {"booking": data} if isinstance(data, str) else data
        )
        return value


class NewBookingIn(BookingIn):
    """A booking to create, or an array of many."""

    array = Whole(required=False, help_text="1 to 10,000 runs, each a booking of its own.")
    parallel = Whole(
        required=False,
        help_text="Elements of the array that are open at a time, at most. Defaults to 100.",
    )
    hold = serializers.ChoiceField(
        choices=["all", "rolling"],
        required=False,
        help_text="Money that is held: for all elements (the default), or for the open ones.",
    )
    stop_after_failures = Whole(
        required=False, min_value=1, help_text="Failed elements after which no more are run."
    )

    script = serializers.CharField(
        required=False,
        trim_whitespace=False,
        help_text="A program, at most 16 KiB of text, that runs as your account when the booking starts on"
        " a node of Slurm. The booking ends with it. After a pause it starts from its beginning.",
    )
    depends_on = ParentIn(
        many=True,
        required=False,
        help_text="At most 20 bookings: objects, or references for their ends. It is planned when "
        "all are over.",
    )

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        """Refuses fields of an array without one. Raises ValidationError."""
        alone = {"parallel", "hold", "stop_after_failures"} & given.keys()
        if alone and "array" not in given:
            raise serializers.ValidationError({min(alone): [refusal_text("only_arrays")]}, code="no_array")
        return super().validate(given)


@cache
def _time_zones() -> frozenset[str]:
    """The IANA time zones of this machine. Reading their files takes 10 ms."""
    return frozenset(available_timezones())


def zone_check(zone: str) -> None:
    """Raises ValidationError `bad_zone` for an unknown time zone."""
    if zone not in _time_zones():
        raise serializers.ValidationError({"zone": [refusal_text("bad_zone")]}, code="bad_zone")


def booking_request_of(
    actor: Actor,
    given: dict[str, Any],
    now: datetime,
    offered: tuple[str, Windows] | None = None,
    *,
    first: bool = False,
    read: Callable[..., tuple[AskDocument, str | None]] = request_read,
) -> BookingRequest:
    """The request of a validated `BookingIn`. Runs inside a transaction that reads the catalogue.
    `offered`: the mode and the windows of one that waits for an offer.

    With `first` a repeating request is allowed, and the result is its first date. Of an array, the
    result is one run. `read` reads its text.

    Raises:
        Refused: the request can't be read; `param` is the path of the field.
    """
    zone = given.get("zone", actor.time_zone)
    if "ask" in given:
        ask, named_tier = _read_document(given["ask"]), None
    else:
        facts = {
            "project": project_named(actor, given["project"], given.get("tier", STANDARD)),
            "zone": zone,
            "now": now,
        }
        ask, named_tier = read(given["request"], **facts, first=first, many="array" in given)
    waits, windows = offered or (WaitMode.AUTO if given["if_full"] == "wait" else "", ())
    return BookingRequest(
        project=given["project"],
        tier=_tier(given, named_tier),
        ask=ask,
        name=given["name"],
        zone=zone,
        request_text=given.get("request", ""),
        priced_at=price_lock_read(given["quote"], now) if "quote" in given else None,
        campaign=given["campaign"],
        labels=given["labels"] | ({LABEL: given["workload"]} if "workload" in given else {}),
        external_ref=given["external_ref"],
        waitlist=waits,
        windows=windows,
    )


def request_lines(
    given: dict[str, Any], wanted: BookingRequest, rule: Recurrence | None = None
) -> AbstractContextManager[None]:
    """Adds lines to what would work instead of a `request`. The line of an array is of one run, so
    its refusals keep their fields."""
    if "array" in given:
        return nullcontext()
    return lines_offered(wanted, names_tier="tier" not in given, rule=rule)


def with_array(actor: Actor, given: dict[str, Any], now: datetime) -> dict[str, Any]:
    """The body with `array` and `parallel` as its `request` says them.

    Raises:
        Refused: `array_twice`, the text and the field differ.
    """
    text, zone = given.get("request", ""), ZoneInfo(given.get("zone", actor.time_zone))
    if not _MANY.search(text):
        return given
    try:
        parsed = parse_ask(text, catalogue=ask_catalogue(), now=now, zone=zone)
    except AskError:
        # Read again with the request, it is refused.
        return given
    said = {"array": parsed.array, "parallel": parsed.parallel}
    for name, value in said.items():
        if value is not None and given.get(name, value) != value:
            raise invalid("array_twice", refusal_text("array_twice", value=value), name)
    return {**given, **{name: value for name, value in said.items() if value is not None}}


def repeat_of(given: dict[str, Any], now: datetime, zone: ZoneInfo) -> Repeat:
    """The recurrence of a series, from `repeat` or from `request`, not both.

    Raises:
        Refused: the recurrence can't be read, or there is none.
    """
    parsed = None
    if "request" in given:
        parsed = parse_ask(given["request"], catalogue=ask_catalogue(), now=now, zone=zone)
    said = parsed.repeat if parsed else None
    if (said is None) == ("repeat" not in given):
        raise invalid(
            "missing_field",
            refusal_text("recurrence_once"),
            "repeat",
        )
    try:
        rule = said or recurrence_read(given["repeat"]["rrule"])
    except AskError as error:
        refused = invalid(error.code, coded_text(error.text), error.param)
        raise replace(refused, alternatives=error.alternatives) from error
    # A window such as `22-6` has an end on each date; a length is the same on each.
    keeps_end = parsed.ends is not None if parsed else given["repeat"].get("keep_end", False)
    return Repeat(rule, given["partial"], keeps_end)


def _tier(given: dict[str, Any], named: str | None) -> str:
    """The tier from the field or from the text. Raises Refused when they differ."""
    if named and given.get("tier", named) != named:
        raise invalid("tier_twice", refusal_text("tier_twice", named=named), "tier")
    return named or str(given.get("tier", STANDARD))


def _read_document(data: Any) -> AskDocument:  # noqa: ANN401 (JSON)
    try:
        return AskDocument.from_json(data)
    except AskError as error:
        if error.code == "deadline_unreachable" and isinstance(data, dict):
            # Admission refuses it, and knows what would work.
            ask = AskDocument.from_json({**data, "deadline": None})
            return replace(ask, deadline=datetime.fromisoformat(data["deadline"].upper()).astimezone(UTC))
        if error.code == "duration_out_of_bounds" and isinstance(data, dict):
            seconds = seconds_said(data["duration"])
            if MAX_DURATION_SECONDS < seconds <= LONGEST_SAID:
                # The same: each tier has a limit of its own below this one.
                return replace(_read_document({**data, "duration": MAX_DURATION_SECONDS}), duration=seconds)
        is_plain = isinstance(data, dict) and not data.get("groups")
        if error.code == "count_out_of_bounds" and is_plain and MAX_COUNT < data["count"] <= MOST_SAID:
            return replace(_read_document({**data, "count": MAX_COUNT}), count=data["count"])
        path = "ask" if error.param == "ask" else f"ask.{error.param}"
        refused = invalid(error.code, coded_text(error.text), path)
        raise replace(refused, alternatives=error.alternatives) from error
