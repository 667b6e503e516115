"""What people change and wait for, asked of the real services."""

import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from unittest import mock
from uuid import UUID

from django.db import transaction

from allocation.features.arrays.services import array_cancel, array_request
from allocation.features.waiting_list.models import WaitOffer
from allocation.features.waiting_list.offers import offer_accept, offer_decline
from allocation.models import Booking, BookingArray
from allocation.rules.ask import AskDocument
from allocation.services.bookings.change import writer
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.change_rows import Accept
from allocation.services.bookings.checks.terms import target_of
from allocation.services.bookings.requests import ArrayRequest, BookingRequest
from tenants.access import Actor
from tenants.models import Project
from tenants.platform.errors import Refused
from tests.builders_allocation import a_booking_request
from tests.roles import as_system
from tests.simulation.requests.tables import Edit, Repeats, Waits
from tests.simulation.tables.people import UserRequest


def when(seconds: float) -> datetime:
    """An instant of the schedule."""
    return datetime.fromtimestamp(seconds, UTC)


def request_of(project: Project, requested: UserRequest, waits: Waits | None = None) -> BookingRequest:
    """What somebody asks for, as the services read it."""
    ask = AskDocument(
        requested.count,
        requested.classes,
        requested.profile,
        requested.together,  # type: ignore[arg-type]  # one of its words
        requested.required,
        requested.duration,
        None if requested.starts is None else when(requested.starts),
        share=requested.share,
        pin=requested.pin,
    )
    request = a_booking_request(project, ask, tier=requested.tier)
    if waits is None:
        return request
    windows = tuple((when(since), when(until)) for since, until in waits.windows)
    return replace(request, waitlist=waits.mode, windows=windows)


def array_ask(
    project: Project, actor: Actor, identifier: str, what: tuple[UserRequest, Repeats], now: float
) -> bool:
    """Whether the services made the array."""
    requested, repeats = what
    array = ArrayRequest(repeats.count, parallel=repeats.parallel)
    request, key = request_of(project, requested), UUID(identifier)
    try:
        with as_system(), transaction.atomic():
            array_request(actor=actor, request=request, array=array, now=when(now), key=key)
    except Refused:
        return False
    return True


def array_end(actor: Actor, identifier: str, now: float) -> None:
    """Cancels all of its elements."""
    with as_system(), contextlib.suppress(Refused):
        array = BookingArray.objects.get(id=identifier)
        array_cancel(actor=actor, array=array, ranges=None, now=when(now))


def booking_edit(actor: Actor, identifier: str, edit: Edit, name: str, now: float) -> bool:
    """Whether the services made the change, or left it to the next cycle under this id."""
    with as_system():
        booking = Booking.objects.get(id=identifier)
        if booking.state in ("pausing", "paused"):
            return False
        bound = None if edit.start_by is None else when(edit.start_by)
        ask = _edited(target_of(booking).ask, edit)
        patch = Patch(ask, accept=Accept(bound), waits=edit.waits)
        try:
            with mock.patch.object(writer, "uuid4", return_value=UUID(name)):
                booking_patch(actor=actor, booking=booking, patch=patch, revision=None, now=when(now))
        except Refused:
            return False
    return True


def _edited(ask: AskDocument, edit: Edit) -> AskDocument:
    starts = ask.starts if edit.starts is None else when(edit.starts)
    not_before = ask.not_before if edit.not_before is None else when(edit.not_before)
    duration, count = edit.duration or ask.duration, edit.count or ask.count
    return replace(ask, duration=duration, count=count, starts=starts, not_before=not_before)


def offer_answer(actor: Actor, identifier: str, now: float, *, accepts: bool) -> None:
    """Answers the open offer of a booking, if it has one."""
    with as_system():
        booking = UUID(identifier)
        rows = WaitOffer.objects.filter(booking_id=booking, state=WaitOffer.State.OPEN)
        offer, answer = rows.first(), offer_accept if accepts else offer_decline
        if offer is not None:
            with contextlib.suppress(Refused):
                answer(actor=actor, offer_id=offer.id, now=when(now))
