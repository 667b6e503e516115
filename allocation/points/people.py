"""Points about a person: what they have to do before they book, their first steps, and their own data."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from tenants.platform.errors import Refused


@dataclass(frozen=True, slots=True)
class IntendedUse:
    """Who is to use a tier in a project, by their slugs, and which classes. Without a person, nobody."""

    tenant_id: UUID
    person_id: int | None
    tier: str
    project: str
    classes: Collection[str]


Demands: TypeAlias = Callable[[IntendedUse, datetime], Refused | None]

DEMANDS: list[Demands] = []
"""Each returns the refusal of a use that demands something which its person has not done."""


def demand_unmet(use: IntendedUse, now: datetime) -> Refused | None:
    """Returns why a person has to do something else first; None: they may book."""
    return next((found for read in DEMANDS if (found := read(use, now)) is not None), None)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a checklist on the start page. Without an `href` someone else has to take it."""

    title: str
    text: str
    href: str
    action: str
    is_done: bool
    is_next: bool = False


FirstSteps: TypeAlias = Callable[[Any, datetime], Iterable[Step]]

FIRST_STEPS: list[FirstSteps] = []
"""Each returns steps that an actor takes before their first booking."""


OwnData: TypeAlias = Callable[[UUID, int], list[Mapping[str, Any]]]

OWN_DATA: dict[str, OwnData] = {}
"""By name, what a person has in a tenant, for the download of their own data."""
