"""`Prefer` on a booking: wait for its decision, or only say what would happen."""

import re
from dataclasses import dataclass
from typing import ClassVar

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

# Below the 60 s after which common proxies give up and after which an idempotency key is free.
WAIT_MAX = 50

_WAIT = re.compile(r"wait=([0-9]{1,4})")
_WAITING = (
    f"`wait=N` (N up to {WAIT_MAX}) answers when the decision is there or N seconds are over; at "
    "once, and without `Preference-Applied`, when too many requests wait."
)


def _prefer(description: str) -> OpenApiParameter:
    return OpenApiParameter(
        "Prefer", OpenApiTypes.STR, OpenApiParameter.HEADER, description=description
    )


@dataclass(frozen=True, slots=True)
class Preferences:
    """What RFC 7240 lets a client wish for; what is not understood is ignored."""

    wait: int = 0
    dry_run: bool = False

    PARAMETERS: ClassVar = (
        _prefer(
            f"{_WAITING} The answer is 201, or 409 with alternatives. `dry-run` answers a quote "
            "with 200 and writes nothing."
        ),
    )
    WAIT_PARAMETERS: ClassVar = (_prefer(_WAITING),)


def preferences_of(request: Request) -> Preferences:
    """The request's preferences; waiting is cut to the longest we allow."""
    words = [word.strip().lower() for word in request.META.get("HTTP_PREFER", "").split(",")]
    waits = [int(found[1]) for word in words if (found := _WAIT.fullmatch(word))]
    return Preferences(wait=min(WAIT_MAX, max(waits, default=0)), dry_run="dry-run" in words)


def preference_applied(response: Response, seconds: int, *, applied: bool) -> Response:
    """The response, with the preference that was followed in its header."""
    if applied:
        response["Preference-Applied"] = f"wait={seconds}"
    return response
