"""The `Prefer` header: wait for a booking's decision, or make a dry run."""

import re
from dataclasses import dataclass
from typing import ClassVar

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

# Less than 60 s, when common proxies time out and the claim on an idempotency key ends.
WAIT_MAX = 50

_WAIT = re.compile(r"wait=([0-9]{1,4})")
_WAITING = (
    f"`wait=N` waits up to N seconds (at most {WAIT_MAX}) for the decision. When too many requests "
    "are waiting, the answer is immediate and has no `Preference-Applied` header."
)


def _prefer(description: str) -> OpenApiParameter:
    return OpenApiParameter(
        "Prefer", OpenApiTypes.STR, OpenApiParameter.HEADER, description=description
    )


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
