"""The `Prefer` header: wait for a booking's decision, or make a dry run; and its refusals."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.bookings.change.changes import PARTS
from allocation.models import Booking, BookingChange
from allocation.rules.ask import AskDocument
from allocation.services.bookings.change.changes import Patch
from allocation.services.bookings.checks.remedies import request_as
from allocation.services.bookings.checks.terms import target_of
from allocation.services.bookings.remedy_lines import as_requests
from allocation.words.reasons import sentence_for
from allocation.words.refusals import refusal_text
from solver.reasons.catalogue import BY_ID
from tenants.platform.errors import Refused

# Less than 60 s, when common proxies time out and the claim on an idempotency key ends.
WAIT_MAX = 50

_WAIT = re.compile(r"wait=([0-9]{1,4})")
_WAITING = (
    f"`wait=N` waits up to N seconds (at most {WAIT_MAX}) for the decision. When too many requests "
    "are waiting, the answer is immediate and has no `Preference-Applied` header."
)


def _prefer(description: str) -> OpenApiParameter:
    return OpenApiParameter("Prefer", OpenApiTypes.STR, OpenApiParameter.HEADER, description=description)


@dataclass(frozen=True, slots=True)
class Preferences:
    """The client's preferences (RFC 7240). Unknown preferences are ignored."""

    wait: int = 0
    dry_run: bool = False

    PARAMETERS: ClassVar = (
        _prefer(
            f"{_WAITING} The answer is 201, or 409 with alternatives. `dry-run` returns 200 and "
            "writes nothing."
        ),
    )
    PATCH_PARAMETERS: ClassVar = (
        _prefer(f"{_WAITING} The answer is 200, or 409. `dry-run` returns 200 and writes nothing."),
    )
    WAIT_PARAMETERS: ClassVar = (_prefer(_WAITING),)


def preferences_of(request: Request) -> Preferences:
    """The request's preferences. A longer wait than `WAIT_MAX` is shortened to it."""
    words = [word.strip().lower() for word in request.META.get("HTTP_PREFER", "").split(",")]
    waits = [int(found[1]) for word in words if (found := _WAIT.fullmatch(word))]
    return Preferences(wait=min(WAIT_MAX, max(waits, default=0)), dry_run="dry-run" in words)


def preference_applied(response: Response, seconds: int, *, applied: bool) -> Response:
    """The response, with the preference in its header if it was applied."""
    if applied:
        response["Preference-Applied"] = f"wait={seconds}"
    return response


def booking_refusal(booking: Booking) -> Refused:
    """The decision that refuses a booking, as a problem."""
    sentence = refusal_text("not_placed", label=booking.label)
    numbers = {"booking": booking.label, "decision_id": booking.decision_id}
    refused = _refusal(booking, booking.reasons, booking.alternatives, sentence, numbers)
    return replace(refused, alternatives=as_requests(booking, refused.alternatives))


def change_refusal(booking: Booking, asked: str | None) -> Refused | None:
    """The decision that keeps a booking as it is, as a problem; None if the change that was asked
    for, an `ch_…` id, is open, was made or replaced, or if none was."""
    for change in booking.changes.all():
        if f"ch_{change.id.hex}" == asked and change.state == BookingChange.State.KEPT:
            sentence = refusal_text("keeps_places", label=booking.label)
            numbers = {"booking": booking.label}
            refused = _refusal(booking, change.reasons, change.alternatives, sentence, numbers)
            old, new = map(AskDocument.from_json, (booking.ask, change.target["ask"]))
            tier = change.target["tier"]
            return for_patch(refused, old, new, "" if tier == booking.tier_id else tier)
    return None


def for_patch(refused: Refused, old: AskDocument, new: AskDocument, tier: str = "") -> Refused:
    """The refusal of a PATCH that makes `new` of the request `old`, in another `tier` if it names one. Each
    alternative is a PATCH of its own: in its parts, or with the whole `ask` where these can't say it."""
    if refused.code == "tier_begun":
        # What works is a booking of its own.
        return replace(refused, alternatives=())
    found = ({**_patch_of(each, old, new), **_tier_of(each, tier)} for each in refused.alternatives)
    return replace(refused, alternatives=[each for each in found if each])


@contextmanager
def refusals_of_patch(booking: Booking, patch: Patch) -> Iterator[None]:
    """Raises refusals of a PATCH with alternatives that are a PATCH."""
    old, tier = target_of(booking).ask, patch.tier or booking.tier_id
    try:
        yield
    except Refused as refused:
        raise for_patch(refused, old, patch.ask or old, "" if tier == booking.tier_id else tier) from refused


def _tier_of(each: Mapping[str, Any], tier: str) -> dict[str, str]:
    named = each.get("tier", tier)
    return {"tier": named} if named else {}


def _patch_of(each: Mapping[str, Any], old: AskDocument, new: AskDocument) -> dict[str, Any]:
    if "request" in each:
        return {"request": each["request"]}
    if "until" in each:
        return {"ends": each["until"]}
    other = request_as(each, new)
    before, after = old.to_json(), other.to_json()
    differ = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    if not differ <= {*PARTS}:
        return {"ask": after}
    empty = {"pin": [], "zones": [], "not_zones": [], "data": [], "scratch": 0}
    return {name: after.get(name, empty.get(name)) for name in PARTS if name in differ}


def _apart(numbers: Mapping[str, Any], alternatives: Sequence[Any]) -> list[dict[str, Any]]:
    """What works where GPUs can't be together: those of the plan apart, or as many as there are."""
    apart = {"together": "any", "required": False}
    found = [{**each, **apart} for each in alternatives] or [apart]
    fewer = [{"count": numbers["most"]}] if numbers.get("most") else []
    return [*fewer, *(each for at, each in enumerate(found) if each not in found[:at])]


def _refusal(
    booking: Booking,
    reasons: Sequence[Mapping[str, Any]],
    alternatives: Sequence[Any],
    sentence: str,
    numbers: Mapping[str, Any],
) -> Refused:
    """The first reason as a problem, or the sentence without one."""
    reason = reasons[0] if reasons else {}
    rule = BY_ID.get(reason.get("rule", ""))
    if reason.get("code") == "impossible_together":
        alternatives = _apart(reason.get("numbers", {}), alternatives)
    return Refused(
        code=reason.get("code", "refused"),
        sentence=sentence_for(booking.ask, reason) if reason else sentence,
        rule=rule.id if rule else None,
        owner=rule.owner if rule else None,
        param="request",
        frees_at=reason.get("frees_at"),
        numbers={**reason.get("numbers", {}), **numbers},
        alternatives=alternatives,
    )
