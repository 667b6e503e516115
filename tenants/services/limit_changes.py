"""Changes of limits: what of the bookings is above a lower one, and what happens to it.

Bookings are unknown here: what knows them adds itself to `CHANGED`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias
from uuid import UUID

from tenants.models import LabQuota, Quota


class CutAnswer(StrEnum):
    """What happens to bookings above a lower limit."""

    KEEP = "keep"
    DRAIN = "drain"
    PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class Most:
    """Units at once (None: no limit), and GPU-hours in so many days or a month (None: no cap)."""

    units: int | None = None
    gpu_hours: int | None = None
    days: int | None = None
    carries: bool = False

    def is_below(self, before: "Most") -> bool:
        """Returns whether one of the two allows less than before."""
        fewer = self.units is not None and (before.units is None or self.units < before.units)
        cap = (self.gpu_hours, self.days, self.carries)
        known = (before.gpu_hours, before.days, before.carries)
        if self.gpu_hours is None or cap == known:
            return fewer
        is_more = before.gpu_hours is not None and self.gpu_hours >= before.gpu_hours
        return fewer or not (is_more and self.days == before.days and self.carries >= before.carries)


def most_of(quota: Quota | LabQuota) -> Most:
    """Returns what an owner of quota may use."""
    return Most(quota.limit_units, quota.cap_gpu_hours, quota.cap_days, quota.cap_carries)


@dataclass(frozen=True, slots=True)
class LimitOf:
    """Whose limit of a class it is: of a project, a lab, or else the tenant; with `persons` that of a
    person there, or of everybody without an own one. With `guarantee` it is what the tenant is guaranteed.

    A limit at some times has the row that says it as `source`, and a guarantee between dates also its
    dates.
    """

    tenant_id: UUID
    gpu_class: str
    project_id: UUID | None = None
    lab_id: UUID | None = None
    persons: bool = False
    person_id: int | None = None
    guarantee: bool = False
    source: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A limit that is set, and who sets it."""

    of: LimitOf
    before: Most
    after: Most
    user_id: int | None


@dataclass(frozen=True, slots=True)
class AboveRow:
    """A booking that does not fit a limit next to those that go first. `planned`: it has not begun."""

    label: str
    owner: str
    units: int
    starts: datetime
    ends: datetime
    is_planned: bool
    can_pause: bool


@dataclass(frozen=True, slots=True)
class CutEffect:
    """What is above a lower limit. `used` units are in use now by the bookings that the limit counts."""

    name: str
    gpu_class: str
    before: Most
    after: Most
    used: int
    rows: tuple[AboveRow, ...]
    is_guarantee: bool = False
    is_inner: bool = False
    """It is that of a lab or project."""
    since: datetime | None = None


@dataclass(slots=True)
class Cut:
    """The answer of who sets limits, if they gave one, and an effect of each limit that is cut."""

    answer: CutAnswer | None = None
    effects: list[CutEffect] = field(default_factory=list)


CHOSEN = "bookings"
"""The field of a form with the answer."""


def answer_of(form: Mapping[str, str]) -> CutAnswer | None:
    """Returns what was chosen; None: nothing was asked."""
    chosen = form.get(CHOSEN, "")
    return CutAnswer(chosen) if chosen in [*CutAnswer] else None


Changed: TypeAlias = Callable[[LimitChange, CutAnswer | None, datetime], CutEffect | None]

CHANGED: list[Changed] = []
"""Each acts on a changed limit in the caller's transaction, and returns what is above a lower one."""


def limit_changed(change: LimitChange, cut: Cut | None, now: datetime) -> None:
    """Lets what knows bookings act on a changed limit. Without an answer it is as before: what
    runs stays, and nothing above the limit starts; what is above a guarantee is borrowed."""
    cut = Cut() if cut is None else cut
    found = (act(change, cut.answer, now) for act in CHANGED)
    cut.effects += [effect for effect in found if effect is not None]
