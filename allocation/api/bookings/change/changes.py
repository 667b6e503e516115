"""Changes of a booking: the body of a PATCH, its precondition, and its answer."""

import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from allocation.api.bookings.requests import AskIn, zone_check
from allocation.errors import AskError
from allocation.models import Booking, PlannedStrength
from allocation.rules.ask import MAX_TEXT_LENGTH, AskDocument
from allocation.rules.ask.words.document import STORAGE
from allocation.services.bookings.change.changes import Patch
from allocation.services.bookings.change.sooner import Sooner
from allocation.services.bookings.change_rows import Accept
from allocation.services.bookings.checks.terms import target_of
from allocation.services.bookings.price_lock import price_lock_read
from allocation.services.bookings.request_text import request_read
from allocation.words.refusals import coded_text, refusal_text
from tenants.access import Actor
from tenants.platform.coded import coded
from tenants.platform.errors import Refused, invalid
from tenants.platform.labels import Labels, Reference
from tenants.platform.rest.fields import Duration, Flag, Instant, Money, Strict, Text, Whole

IF_MATCH = (
    OpenApiParameter(
        "If-Match",
        OpenApiTypes.STR,
        OpenApiParameter.HEADER,
        required=True,
        description="The ETag of the booking that you have seen, or `*`.",
    ),
)
DRY_RUN = (
    OpenApiParameter(
        "Prefer",
        OpenApiTypes.STR,
        OpenApiParameter.HEADER,
        description="`dry-run` writes nothing and answers with what it would cost.",
    ),
)
# A compressed answer has a weak ETag. It names the same revision.
_REVISION = re.compile(r'(?:W/)?"([1-9][0-9]{0,8})"', re.ASCII)
PARTS = (
    "duration",
    "ends",
    "starts",
    "not_before",
    "deadline",
    "count",
    "classes",
    "pin",
    "zones",
    "not_zones",
    "storage",
    "scratch",
    "data",
)


class AcceptIn(Strict):
    """Bounds of what you accept. Without them no start is accepted that is later than the last
    announced one, or worth less."""

    start_by = Instant(required=False, help_text="The latest start.")
    strength = serializers.ChoiceField(
        choices=PlannedStrength.values, required=False, help_text="The least that it may be worth."
    )
    cost_at_most = Money(required=False, help_text="The most that the booking may cost in all.")


class PatchIn(Strict):
    """What changes. Fields that are not sent stay as they are. `request` or `ask` replaces the
    whole request; otherwise its parts can be changed one by one."""

    name = Text(max_length=80, required=False, allow_blank=True)
    labels = Labels(required=False, help_text="All labels: those that are not sent are removed.")
    external_ref = Reference(required=False, help_text='A URL or a ticket\'s key. `""`: none.')
    tier = Text(max_length=40, required=False)
    request = Text(max_length=MAX_TEXT_LENGTH, required=False, help_text="`2 h100 6h today`.")
    ask = AskIn(required=False)
    zone = Text(max_length=64, required=False, help_text="Time zone of `request`.")
    duration = Duration(required=False, help_text="Longer or shorter: `PT2H`.")
    ends = Instant(required=False, help_text="The end of a fixed window or a running booking.")
    starts = Instant(required=False, allow_null=True, help_text="Null makes the window flexible.")
    not_before = Instant(required=False, allow_null=True)
    deadline = Instant(required=False, allow_null=True)
    count = Whole(required=False)
    classes = serializers.ListField(child=Text(max_length=64), required=False, max_length=16)
    pin = serializers.ListField(child=Text(max_length=64), required=False, max_length=16)
    zones = serializers.ListField(child=Text(max_length=64), required=False, max_length=16)
    not_zones = serializers.ListField(child=Text(max_length=64), required=False, max_length=16)
    storage = serializers.ChoiceField(choices=STORAGE, required=False, allow_null=True)
    scratch = Whole(required=False, help_text="GB of local NVMe that its nodes have at least.")
    # Any: the base class has an attribute of this name.
    data: Any = serializers.ListField(child=Text(max_length=64), required=False, max_length=8)
    give_back = serializers.ListField(
        child=Text(max_length=64),
        required=False,
        min_length=1,
        max_length=512,
        help_text="GPUs that a running booking gives back: `n0003/2`, or `unused` for those "
        "without a process for two minutes. Send it alone.",
    )
    if_full = serializers.ChoiceField(
        choices=["refuse", "wait"],
        required=False,
        default="refuse",
        help_text="What a change does for which there is no room: `wait` leaves it open, with its "
        "added cost held, and it is made as soon as there is room, until its last start.",
    )
    sooner = Flag(
        required=False,
        default=False,
        help_text="A fixed window waits for any earlier start, from `not_before` or now on, and "
        "keeps the one that it has until then. Send it without other parts of the request.",
    )
    quote = Text(
        max_length=200,
        required=False,
        help_text="The `quote` of earlier options, or of a dry run, whose prices apply.",
    )
    accept = AcceptIn(required=False)

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        """Requires one way to say the request, and an existing zone. Raises ValidationError."""
        ways = [name for name in ("request", "ask") if name in given]
        parts = [name for name in PARTS if name in given]
        if len(ways) + bool(parts) > 1:
            sentence = refusal_text("change_ways")
            raise serializers.ValidationError({(parts or ways)[-1]: [sentence]}, code="request_twice")
        if "duration" in given and "ends" in given:
            sentence = refusal_text("duration_or_ends")
            raise serializers.ValidationError({"ends": [sentence]}, code="request_twice")
        if given["sooner"] and (ways or {*parts, "give_back", "tier"} & {*given} - {"not_before"}):
            sentence = refusal_text("sooner_alone")
            raise serializers.ValidationError({"sooner": [sentence]}, code="sooner_alone")
        zone_check(given.get("zone", "UTC"))
        return given


def revision_sent(request: Request) -> int | None:
    """The revision in the header `If-Match`; None for `*`.

    Raises:
        Refused: `revision_needed` without the header.
    """
    sent = request.META.get("HTTP_IF_MATCH")
    if sent is None:
        raise Refused("revision_needed", refusal_text("revision_needed"), param="If-Match")
    if sent.strip() == "*":
        return None
    found = _REVISION.fullmatch(sent.strip())
    return int(found[1]) if found else 0


def patch_of(actor: Actor, booking: Booking, given: dict[str, Any], now: datetime) -> Patch:
    """The change of a validated `PatchIn`. Runs inside a transaction of the tenant.

    Raises:
        Refused: the request can't be read; `param` is the path of the field.
    """
    accept = given.get("accept", {})
    sooner = Sooner(given.get("not_before") or now) if given["sooner"] else None
    wanted = {} if sooner is not None else given
    ask, tier, text = _wanted(actor, booking, wanted, now)
    return Patch(
        ask=ask,
        tier=given.get("tier", tier),
        name=given.get("name"),
        labels=given.get("labels"),
        external_ref=given.get("external_ref"),
        request_text=text,
        waits=given["if_full"] == "wait",
        sooner=sooner,
        give_back=tuple(given.get("give_back", ())),
        priced_at=price_lock_read(given["quote"], now) if "quote" in given else None,
        accept=Accept(accept.get("start_by"), accept.get("strength", ""), accept.get("cost_at_most")),
    )


def _wanted(
    actor: Actor, booking: Booking, given: dict[str, Any], now: datetime
) -> tuple[AskDocument | None, str | None, str | None]:
    """The new request, and the tier and the text if the request was typed."""
    if "request" in given:
        text = given["request"]
        zone = given.get("zone", actor.time_zone)
        ask, tier = request_read(text, project=booking.project.slug, zone=zone, now=now)
        return ask, tier, text
    old = target_of(booking).ask
    parts = {name: given[name] for name in PARTS if name in given}
    if "ask" not in given and not parts:
        return None, None, None
    try:
        if "ask" in given:
            return AskDocument.from_json(given["ask"]), None, ""
        return _merged(booking, old, parts), None, None
    except AskError as error:
        prefix = "ask." if "ask" in given and error.param != "ask" else ""
        refused = invalid(error.code, coded_text(error.text), f"{prefix}{error.param}")
        raise replace(refused, alternatives=error.alternatives) from error


def _merged(booking: Booking, old: AskDocument, parts: dict[str, Any]) -> AskDocument:
    """The request with some of its parts replaced."""
    length = parts.pop("duration", timedelta(seconds=old.duration))
    times = {name: parts[name] for name in ("starts", "not_before", "deadline") if name in parts}
    window = replace(old, **times)
    if window.starts is not None and "starts" in parts:
        window = replace(window, not_before=None, deadline=None)
    ends = parts.pop("ends", None)
    if ends is not None:
        length = _length_until(booking, window, old, ends)
    plain = {**window.to_json(), **{n: v for n, v in parts.items() if n not in times}}
    return AskDocument.from_json({**plain, "duration": int(length.total_seconds())})


def _length_until(booking: Booking, window: AskDocument, old: AskDocument, ends: datetime) -> timedelta:
    """The length that makes the booking end then. Raises AskError."""
    if window.starts is not None:
        return ends - window.starts
    if booking.planned_ends is None:
        raise AskError("no_end", coded("no_end_yet"), "ends")
    return timedelta(seconds=old.duration) + (ends - booking.planned_ends)
