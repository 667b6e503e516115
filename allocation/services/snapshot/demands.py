"""What a booking asks for, as the solver reads it, and which nodes have the data that is named."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from django.db.models import QuerySet

from allocation.models import Booking, BookingChange
from allocation.points import data_near
from allocation.rules.ask import AskDocument, AskGroup
from allocation.rules.states import OPEN
from solver import Ask, Cache, Where
from solver.model.sites.where import ANYWHERE


def solver_ask(document: AskDocument) -> Ask:
    """A request document as input of the solver."""
    where = _where(document.zones, document.not_zones, document.storage, document.scratch)
    return Ask(
        count=document.count,
        classes=tuple(document.classes),
        profile=document.profile,
        together=document.together,
        required=document.required,
        share=document.share,
        cores=document.cores * 1_000,
        memory=document.memory * 1_024,
        pin=document.pin,
        groups=tuple(replace(_group_of(each, where), data=document.data) for each in document.groups),
        where=where,
        data=document.data,
    )


def where_of(ask: Mapping[str, Any]) -> Where | None:
    """On which nodes a stored request may run; None: on any."""
    zones, others = ask.get("zones", ()), ask.get("not_zones", ())
    return _where(zones, others, ask.get("storage"), ask.get("scratch", 0))


def _where(zones: Iterable[str], others: Iterable[str], storage: str | None, scratch: int) -> Where | None:
    found = Where(tuple(zones), tuple(others), storage or "", scratch)
    return None if found == ANYWHERE else found


def _group_of(group: AskGroup, where: Where | None) -> Ask:
    return Ask(
        count=group.count,
        classes=(group.gpu_class,),
        profile=group.profile,
        together=group.together,
        required=group.required,
        cores=group.cores * 1_000,
        memory=group.memory * 1_024,
        where=where,
    )


def host_resources(ask: Mapping[str, Any], gpu_class: str = "") -> tuple[int, int]:
    """Cores (thousandths) and memory (MiB) for each place of a stored request; of a request of
    several classes, for the places of this class."""
    groups = ask.get("groups", ())
    own = next((each for each in groups if each["gpu_class"] == gpu_class), ask)
    return own.get("cores", 0) * 1_000, own.get("memory", 0) * 1_024


def bookings_with_data() -> "QuerySet[Booking]":
    """Returns the open bookings that name data."""
    return Booking.objects.filter(state__in=OPEN, ask__has_key="data")


def changes_with_data() -> "QuerySet[BookingChange]":
    """Returns the changes that wait for a decision and name data."""
    return BookingChange.objects.filter(state=BookingChange.State.ASKED, target__ask__has_key="data")


def caches_read() -> tuple[Cache, ...]:
    """Reads which nodes have some of the data that is named."""
    asked: list[Any] = list(bookings_with_data().values_list("ask__data", flat=True))
    asked += changes_with_data().values_list("target__ask__data", flat=True)
    names = {name for each in asked for name in each}
    return tuple(Cache(node, sets) for node, sets in sorted(data_near(names).items()))
