"""The form that asks for an offer of a place in one of several windows."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from django.http import QueryDict
from django.utils import timezone

from allocation.models import WaitMode
from allocation.services.bookings.bookings import booking_request
from allocation.services.bookings.request_text import request_read
from allocation.services.bookings.requests import BookingRequest
from allocation.services.bookings.wait_entries import Windows
from tenants.access import Actor
from tenants.models import Project
from tenants.platform.errors import invalid
from tenants.web.frame import zone_of

WINDOWS = (1, 2, 3)
_TIER = "standard"


@dataclass(frozen=True, slots=True)
class WindowFields:
    """One window as it was typed."""

    number: int
    since: str
    until: str


@dataclass(frozen=True, slots=True)
class OfferForm:
    """The form with what was typed."""

    text: str
    project: str
    projects: tuple[tuple[str, str], ...]
    windows: tuple[WindowFields, ...]

    @classmethod
    def of(cls, actor: Actor, typed: Mapping[str, str]) -> "OfferForm":
        """The form of the actor's projects."""
        rows = Project.objects.filter(id__in=actor.roles).order_by("name")
        windows = tuple(
            WindowFields(n, typed.get(f"since_{n}", ""), typed.get(f"until_{n}", ""))
            for n in WINDOWS
        )
        projects = tuple(rows.values_list("slug", "name"))
        return cls(typed.get("request", ""), typed.get("project", ""), projects, windows)


def offer_ask(actor: Actor, form: QueryDict) -> str:
    """Puts a booking on the list that is offered in one of the windows. Returns what to say.

    Raises:
        Refused: the request or a window can't be read, or as `booking_request`.
    """
    now, text = timezone.now(), form.get("request", "").strip()
    project = form.get("project", "")
    ask, tier = request_read(text, project=project, zone=actor.time_zone, now=now)
    wanted = BookingRequest(
        project=project,
        tier=tier or _TIER,
        ask=ask,
        zone=actor.time_zone,
        request_text=text,
        waitlist=WaitMode.OFFER,
        windows=_windows(actor, form),
    )
    made = booking_request(actor=actor, request=wanted, now=now, booking_id=uuid4())
    return f"{made.label} is offered to you when one of its windows has room. Nothing is held."


def _windows(actor: Actor, form: QueryDict) -> Windows:
    found = []
    for number in WINDOWS:
        since, until = (form.get(f"{name}_{number}", "").strip() for name in ("since", "until"))
        if not since and not until:
            continue
        begins, ends = (
            _time(actor, text, f"{name}_{number}")
            for name, text in (("since", since), ("until", until))
        )
        if ends <= begins:
            raise invalid("bad_windows", "A window ends after it begins.", f"until_{number}")
        found.append((begins, ends))
    if not found:
        raise invalid("bad_windows", "Enter at least one window.", "since_1")
    return tuple(found)


def _time(actor: Actor, text: str, param: str) -> datetime:
    try:
        zone = zone_of(actor.time_zone)
        return datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        raise invalid("not_a_time", "Enter a date and a time.", param) from None
