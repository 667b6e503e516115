"""The part of the capacity report that leads and heads of labs read: what their own work waited for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from allocation.features.demand.capacity import LEAST_MISSING, PAST_WEEKS
from allocation.points.fleets import MoreGpus, more_gpus
from allocation.queries.bookings.money.demand_hours import waited_hours_of
from allocation.queries.fleet.catalogue import class_labels
from tenants.access import Actor
from tenants.lab_queries import labs_led, projects_seen
from tenants.models import Project

WEEK = timedelta(weeks=1)


@dataclass(frozen=True, slots=True)
class OwnWaits:
    """GPU-hours that bookings waited for on a class, in each of the last weeks, the oldest first."""

    gpu_class: str
    label: str
    weeks: tuple[float, ...]

    @property
    def gpu_hours(self) -> float:
        """Returns the sum of the weeks."""
        return sum(self.weeks)


@dataclass(frozen=True, slots=True)
class OwnCapacity:
    """What the work of somebody's projects waited for in the weeks that begin at `starts`, and what more
    GPUs would have changed for it, by trials of operators."""

    starts: tuple[datetime, ...]
    waits: tuple[OwnWaits, ...]
    more: tuple[MoreGpus, ...]


def projects_led(actor: Actor) -> list[Project]:
    """The projects that the person leads, also by their lab; all for admins."""
    labs = labs_led(actor)
    found = projects_seen(actor, labs)
    return [
        each
        for each in found
        if actor.is_tenant_admin
        or actor.may_lead(each.id)
        or (each.lab_id is not None and each.lab_id in labs)
    ]


def own_capacity(actor: Actor, now: datetime) -> OwnCapacity | None:
    """The report of the projects that the person leads; None: of none."""
    projects = projects_led(actor)
    if not projects:
        return None
    ends = now.replace(minute=0, second=0, microsecond=0)
    starts = tuple(ends - WEEK * count for count in range(PAST_WEEKS, 0, -1))
    weeks: dict[str, list[float]] = {}
    for (name, at), gpus in waited_hours_of([each.id for each in projects], starts[0], ends).items():
        place = min(PAST_WEEKS - 1, int((at - starts[0]) / WEEK))
        weeks.setdefault(name, [0.0] * PAST_WEEKS)[place] += gpus
    labels = class_labels()
    waits = [
        OwnWaits(name, labels.get(name, name), tuple(hours))
        for name, hours in sorted(weeks.items())
        if sum(hours) >= LEAST_MISSING
    ]
    return OwnCapacity(starts, tuple(waits), tuple(_more(actor, projects)))


def _more(actor: Actor, projects: Sequence[Project]) -> list[MoreGpus]:
    """Their rows; that of the whole organisation is for its admins."""
    names = {each.slug for each in projects} | ({""} if actor.is_tenant_admin else set())
    found = [
        replace(each, rows=[row for row in each.rows if row.name in names])
        for each in more_gpus(actor.tenant_id)
    ]
    return [each for each in found if each.rows]
