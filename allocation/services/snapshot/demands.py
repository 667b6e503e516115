"""What a booking asks for, as the solver reads it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from allocation.rules.ask import AskDocument, AskGroup
from solver import Ask


def solver_ask(document: AskDocument) -> Ask:
    """A request document as input of the solver."""
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
        groups=tuple(replace(_group_of(each), data=document.data) for each in document.groups),
        data=document.data,
    )


def _group_of(group: AskGroup) -> Ask:
    return Ask(
        count=group.count,
        classes=(group.gpu_class,),
        profile=group.profile,
        together=group.together,
        required=group.required,
        cores=group.cores * 1_000,
        memory=group.memory * 1_024,
    )


def host_resources(ask: Mapping[str, Any], gpu_class: str = "") -> tuple[int, int]:
    """Cores (thousandths) and memory (MiB) for each place of a stored request; of a request of
    several classes, for the places of this class."""
    groups = ask.get("groups", ())
    own = next((each for each in groups if each["gpu_class"] == gpu_class), ask)
    return own.get("cores", 0) * 1_000, own.get("memory", 0) * 1_024
