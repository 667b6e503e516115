"""`Prefer` on a new booking: wait for the decision, or only say what would happen."""

import re
from dataclasses import dataclass
from threading import BoundedSemaphore
from time import monotonic, sleep
from typing import ClassVar

from django.conf import settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from allocation.access import access_booking
from allocation.rules.states import State
from tenants.access import Actor
from tenants.wall import tenant_tx

WAIT_MAX = 10
POLL_SECONDS = 0.1

# Who waits keeps a thread of the web from others: half of them stay free.
_SEATS = BoundedSemaphore(max(1, settings.WEB_THREADS // 2))
_WAIT = re.compile(r"wait=([0-9]{1,4})")


@dataclass(frozen=True, slots=True)
class Preferences:
    """What RFC 7240 lets a client wish for; what is not understood is ignored."""

    wait: int = 0
    dry_run: bool = False

    PARAMETERS: ClassVar = (
        OpenApiParameter(
            "Prefer",
            OpenApiTypes.STR,
            OpenApiParameter.HEADER,
            description=f"`wait=N` (N up to {WAIT_MAX}) answers when the decision is there or N "
            "seconds are over: 201, or 409 with alternatives; at once, and without "
            "`Preference-Applied`, when too many wait. `dry-run` answers a quote with 200 "
            "and writes nothing.",
        ),
    )


def preferences_of(request: Request) -> Preferences:
    """The request's preferences; waiting is cut to the longest we allow."""
    words = [word.strip().lower() for word in request.META.get("HTTP_PREFER", "").split(",")]
    waits = [int(found[1]) for word in words if (found := _WAIT.fullmatch(word))]
    return Preferences(wait=min(WAIT_MAX, max(waits, default=0)), dry_run="dry-run" in words)


def decision_awaited(actor: Actor, reference: str, wait: int) -> bool:
    """Returns when the booking has been decided or `wait` seconds are over; False at once when so
    many wait already that they would keep everybody else waiting.

    Looks in short transactions; nothing is held in between but the thread.
    """
    if not _SEATS.acquire(blocking=False):
        return False
    try:
        deadline = monotonic() + wait
        while monotonic() < deadline:
            with tenant_tx(actor.tenant_id):
                if access_booking(actor, reference).state != State.REQUESTED:
                    break
            sleep(POLL_SECONDS)
    finally:
        _SEATS.release()
    return True
