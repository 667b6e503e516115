"""Batches: many bookings of one request, each with an answer of its own."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID, uuid4

from django.db import transaction

from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.services.bookings.admission import Admission, admission_check
from allocation.services.bookings.bookings import (
    AdmittedRequest,
    BookingRequest,
    bookings_create,
)
from allocation.services.bookings.offers import offer_price
from billing.price_books import PriceShelf
from billing.services import campaign_to_charge
from tenants.access import Actor, access_project_to_book
from tenants.models import Project
from tenants.platform.errors import Refused

MOST_ITEMS = 1_000

Answer = Booking | Refused


def batch_request(
    *, actor: Actor, items: Sequence[BookingRequest | Refused], now: datetime
) -> list[Answer]:
    """Creates the bookings of a batch and returns an answer for each item, in order.

    Items that were refused before keep their refusal. Equal requests are checked once, and the
    bookings of a project are written together. Run inside the tenant's transaction; the caller
    undoes it if it wants all or none.
    """
    answers: dict[int, Answer] = {}
    admission = _Admissions(actor, now)
    projects: dict[UUID, dict[UUID, tuple[int, AdmittedRequest]]] = defaultdict(dict)
    for index, item in enumerate(items):
        if isinstance(item, Refused):
            answers[index] = item
            continue
        try:
            admitted = admission.of(item)
        except Refused as refusal:
            answers[index] = refusal
            continue
        projects[admitted.project.id][uuid4()] = (index, admitted)
    for mine in projects.values():
        answers |= _created(actor, mine, now)
    return [answers[index] for index in range(len(items))]


def _created(
    actor: Actor, items: dict[UUID, tuple[int, AdmittedRequest]], now: datetime
) -> dict[int, Answer]:
    requests = {key: admitted for key, (_, admitted) in items.items()}
    found: dict[UUID, Answer]
    try:
        with transaction.atomic():
            found = {**bookings_create(actor, requests, now)}
    except Refused as refusal:
        found = dict.fromkeys(requests, refusal)
    return {index: found[key] for key, (index, _) in items.items()}


class _Admissions:
    """Admissions of a batch; equal requests share one."""

    def __init__(self, actor: Actor, now: datetime) -> None:
        self._actor, self._now = actor, now
        self._projects: dict[str, Project] = {}
        self._known: dict[tuple[str, str, AskDocument], Admission] = {}
        self._shelves: dict[datetime, PriceShelf] = {}

    def of(self, item: BookingRequest) -> AdmittedRequest:
        """The admitted request. Raises Refused."""
        if item.project not in self._projects:
            self._projects[item.project] = access_project_to_book(
                self._actor, item.project, "project"
            )
        project = self._projects[item.project]
        key = (item.project, item.tier, item.ask)
        if key not in self._known:
            self._known[key] = admission_check(
                project=project, tier_slug=item.tier, ask=item.ask, now=self._now
            )
        admission = self._known[key]
        offer = offer_price(admission, self._shelf(item.priced_at or self._now))
        campaign = campaign_to_charge(project, item.campaign) if item.campaign else None
        return AdmittedRequest(project, item, admission, offer, None, campaign)

    def _shelf(self, at: datetime) -> PriceShelf:
        if at not in self._shelves:
            self._shelves[at] = PriceShelf.read(at)
        return self._shelves[at]
