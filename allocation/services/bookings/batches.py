"""Batches: many bookings of one request, each with an answer of its own."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID, uuid4

from django.db import transaction

from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.services.bookings.checks.admission import Admission, Asker
from allocation.services.bookings.checks.admission_check import admission_check
from allocation.services.bookings.checks.offers import offer_price
from allocation.services.bookings.checks.policy_hook import requests_ask
from allocation.services.bookings.creation import AdmittedRequest, bookings_create
from allocation.services.bookings.dependencies import (
    PARAM,
    Parent,
    dependencies_write,
    parents_check,
    parents_read,
)
from allocation.services.bookings.requests import BookingRequest
from allocation.words.refusals import refusal_text
from billing.price_books import PriceShelf
from billing.services import campaign_to_charge
from tenants.access import Actor, access_project_to_book
from tenants.models import Project
from tenants.platform.errors import Refused, invalid

MOST_ITEMS = 1_000

Answer = Booking | Refused


def batch_request(*, actor: Actor, items: Sequence[BookingRequest | Refused], now: datetime) -> list[Answer]:
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


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a batch: its request, the name by which others of the batch call it, and what it
    waits for: references of bookings, or `#name` of another item."""

    request: BookingRequest
    name: str = ""
    parents: tuple[Parent, ...] = ()


def items_request(*, actor: Actor, items: Sequence[Item | Refused], now: datetime) -> list[Answer]:
    """Creates the items of a batch that may depend on each other; an answer for each, in order.

    An item whose parent is refused is refused, too. Run inside the tenant's transaction.
    """
    items = _hook_asked(actor, items, now)
    names = _names(items)
    answers: dict[int, Answer] = {}
    for level in _levels(items, names, answers):
        requests: list[BookingRequest | Refused] = []
        parents: list[list[tuple[Booking, str]]] = []
        for index in level:
            item, found = items[index], list[tuple[Booking, str]]()
            try:
                if isinstance(item, Refused):
                    raise item
                found = _parents_of(actor, item, names, answers, now)
                requests.append(item.request)
            except Refused as refusal:
                requests.append(refusal)
            parents.append(found)
        given = batch_request(actor=actor, items=requests, now=now)
        for index, answer, mine in zip(level, given, parents, strict=True):
            answers[index] = answer
            if isinstance(answer, Booking) and mine:
                dependencies_write(answer, mine)
    return [answers[index] for index in range(len(items))]


def _hook_asked(actor: Actor, items: Sequence[Item | Refused], now: datetime) -> list[Item | Refused]:
    """The items as the policy hook lets them pass; it is asked once, about those in projects that
    the actor may book in."""
    found = list(items)
    asked = {
        index: item
        for index, item in enumerate(items)
        if not isinstance(item, Refused) and _may_book(actor, item.request.project)
    }
    requests = [item.request for item in asked.values()]
    answers = requests_ask(actor, "batch", requests, now)
    for (index, item), answer in zip(asked.items(), answers, strict=True):
        found[index] = answer if isinstance(answer, Refused) else replace(item, request=answer)
    return found


def _may_book(actor: Actor, project: str) -> bool:
    try:
        access_project_to_book(actor, project, "project")
    except Refused:
        return False
    return True


def _names(items: Sequence[Item | Refused]) -> dict[str, int]:
    """The items by their names; of two with one name, the first."""
    found: dict[str, int] = {}
    for index, item in enumerate(items):
        if not isinstance(item, Refused) and item.name:
            found.setdefault(item.name, index)
    return found


def _levels(
    items: Sequence[Item | Refused], names: Mapping[str, int], answers: dict[int, Answer]
) -> Iterator[list[int]]:
    """Indexes of items whose parents were in earlier levels. What is left in a circle, or has a
    name twice, is refused."""
    waits: dict[int, set[int]] = {}
    for index, item in enumerate(items):
        parents = () if isinstance(item, Refused) else item.parents
        inside = {names[ref[1:]] for ref, _ in parents if ref.startswith("#") and ref[1:] in names}
        waits[index] = inside
        if not isinstance(item, Refused) and item.name and names[item.name] != index:
            answers[index] = invalid("name_twice", refusal_text("name_twice"), "key")
    rest = [index for index in waits if index not in answers]
    while rest:
        level = [index for index in rest if waits[index] <= answers.keys()]
        if not level:
            for index in rest:
                answers[index] = invalid("depends_cycle", refusal_text("depends_cycle"), PARAM)
            return
        yield level
        rest = [index for index in rest if index not in answers]


def _parents_of(
    actor: Actor,
    item: Item,
    names: Mapping[str, int],
    answers: Mapping[int, Answer],
    now: datetime,
) -> list[tuple[Booking, str]]:
    """What an item waits for. Raises Refused."""
    outside = [parent for parent in item.parents if not parent[0].startswith("#")]
    starts = item.request.ask.starts
    found = parents_read(actor, outside, starts, now) if outside else []
    if item.parents:
        parents_check(len(item.parents), starts)
    for reference, needs in item.parents:
        if not reference.startswith("#"):
            continue
        answer = answers.get(names.get(reference[1:], -1))
        if answer is None:
            raise invalid("no_such_item", refusal_text("no_such_item", name=reference[:40]), PARAM)
        if isinstance(answer, Refused):
            sentence = refusal_text("parent_refused", name=reference[:40])
            raise Refused("parent_refused", sentence, "conflict", PARAM)
        if answer.id in {each.id for each, _ in found}:
            raise invalid("depends_twice", refusal_text("depends_twice", label=reference), PARAM)
        found.append((answer, needs))
    return found


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
        self._known: dict[tuple[str, str, str, AskDocument], Admission] = {}
        self._shelves: dict[datetime, PriceShelf] = {}

    def of(self, item: BookingRequest) -> AdmittedRequest:
        """The admitted request. Raises Refused."""
        if item.project not in self._projects:
            self._projects[item.project] = access_project_to_book(self._actor, item.project, "project")
        project = self._projects[item.project]
        key = (item.project, item.tier, item.zone, item.ask)
        if key not in self._known:
            self._known[key] = admission_check(
                project=project,
                tier_slug=item.tier,
                ask=item.ask,
                now=self._now,
                asker=Asker(self._actor.user_id, is_many=True, zone=item.zone),
            )
        admission = self._known[key]
        offer = offer_price(admission, self._shelf(item.priced_at or self._now))
        campaign = campaign_to_charge(project, item.campaign, item.labels, item.external_ref)
        return AdmittedRequest(project, item, admission, offer, None, campaign)

    def _shelf(self, at: datetime) -> PriceShelf:
        if at not in self._shelves:
            self._shelves[at] = PriceShelf.read(at)
        return self._shelves[at]
