"""What a booking asks for, as the solver reads it."""

from collections.abc import Iterable, Mapping
from typing import Any

from allocation.rules.ask import AskDocument, AskGroup
from solver import Ask, Where
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
        groups=tuple(_group_of(each, where) for each in document.groups),
        where=where,
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
