"""Limits inside a tenant in a snapshot: labs, persons, limits at some times, and parts for tiers."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from allocation.services.snapshot.limits_in_time import HORIZON_DAYS
from solver import FOREVER, DatedGuarantee, LabLimit, Limit, Override, PersonLimit, TierPart
from tenants.lab_queries import guarantees_to_come, times_of
from tenants.models import LabQuota, PersonQuota, Project, Quota, QuotaWindow, TierGuarantee
from tenants.rules.limit_times import FOREVER as NEVER
from tenants.rules.limit_times import Times, limit_steps

# A limit that is so much lower than none is one; below the largest sum that the solver counts with.
_NO_LIMIT = 1 << 56


@dataclass(frozen=True, slots=True)
class InnerLimits:
    """Rows of labs, of persons, and of limits at some times. `projects`: limits that restrict nothing, of
    projects that have one at some times only."""

    labs: tuple[LabLimit, ...] = ()
    projects: tuple[Limit, ...] = ()
    persons: tuple[PersonLimit, ...] = ()
    windows: tuple[QuotaWindow, ...] = ()
    lab_caps: tuple[LabQuota, ...] = ()
    """The rows of labs that have a cap of GPU-hours."""
    tier_parts: tuple[TierPart, ...] = ()


def inner_limits_read(quotas: Collection[Quota]) -> InnerLimits:
    """All of them next to these quotas; under row-level security, of one tenant."""
    windows = tuple(QuotaWindow.objects.order_by("id"))
    rows = list(LabQuota.objects.order_by("lab_id", "gpu_class_id"))
    labs = _labs_of(rows, windows, quotas)
    own = PersonQuota.objects.order_by("tenant_id", "project_id", "user_id", "gpu_class_id")
    persons = list(map(_person_of, own))
    caps = tuple(row for row in rows if row.cap_gpu_hours is not None)
    every = (*persons, *_timed_persons(persons, windows))
    parts = tuple(map(_part_of, TierGuarantee.objects.order_by("tenant_id", "gpu_class_id")))
    return InnerLimits(labs, _timed_projects(windows, quotas), every, windows, caps, parts)


def _part_of(row: TierGuarantee) -> TierPart:
    return TierPart(str(row.tenant_id), row.gpu_class_id, row.units, tuple(row.tiers))


def _timed_projects(windows: Iterable[QuotaWindow], quotas: Iterable[Quota]) -> tuple[Limit, ...]:
    known = {(row.project_id, row.gpu_class_id) for row in quotas}
    found = {
        (str(row.project_id), row.gpu_class_id): str(row.tenant_id)
        for row in windows
        if row.project_id is not None
        and row.user_id is None
        and (row.project_id, row.gpu_class_id) not in known
    }
    return tuple(Limit(owner, found[owner, name], name, 0, None, None) for owner, name in sorted(found))


def _timed_persons(persons: Iterable[PersonLimit], windows: Iterable[QuotaWindow]) -> list[PersonLimit]:
    """Limits at all times of persons who have one at some times and none of their own."""
    known = {(row.scope, row.person, row.gpu_class): row.most for row in persons}
    found = {}
    for row in windows:
        scope, person = str(row.project_id or row.tenant_id), str(row.user_id)
        if row.user_id is not None and (scope, person, row.gpu_class_id) not in known:
            most = known.get((scope, "", row.gpu_class_id), _NO_LIMIT)
            limit = PersonLimit(scope, person, row.gpu_class_id, most)
            found[scope, person, row.gpu_class_id] = limit
    return [found[key] for key in sorted(found)]


def guarantees_read(now: datetime) -> tuple[DatedGuarantee, ...]:
    """The guarantees of tenants, labs and projects between dates; under row-level security, of one
    tenant."""
    return tuple(
        DatedGuarantee(
            str(row.owner_id),
            row.gpu_class_id,
            int(row.starts.timestamp()),
            int(row.ends.timestamp()),
            row.guaranteed_units,
        )
        for row in guarantees_to_come(now)
    )


def window_steps_of(
    inner: InnerLimits,
    quotas: Iterable[Quota],
    now: datetime,
    days: int = HORIZON_DAYS,
    guarantees: Collection[DatedGuarantee] = (),
) -> tuple[Override, ...]:
    """What each owner's limit rises or falls by, and when, in so many days from the begin of today on:
    next to the change of a limit that a dated guarantee brings."""
    limits = {(str(row.project_id or row.tenant_id), row.gpu_class_id): row.limit_units for row in quotas}
    limits |= {(row.owner, row.gpu_class): None for row in inner.projects}
    for lab in inner.labs:
        most = None if lab.borrow is None else lab.guaranteed + lab.borrow
        limits[lab.owner, lab.gpu_class] = most
    sure = {
        (str(row.project_id or row.tenant_id), row.gpu_class_id): row.guaranteed_units for row in quotas
    } | {(lab.owner, lab.gpu_class): lab.guaranteed for lab in inner.labs}
    for person in inner.persons:
        key = (f"{person.scope} {person.person}", person.gpu_class)
        limits[key], sure[key] = person.most, 0
    since = now.replace(hour=0, minute=0, second=0, microsecond=0)
    steps: list[Override] = []
    for (owner, gpu_class), found in sorted(_windows_by_owner(inner.windows).items()):
        if (owner, gpu_class) not in limits:
            continue
        base = limits[owner, gpu_class]
        usual = sure.get((owner, gpu_class), 0) + _NO_LIMIT if base is None else base
        until = since + timedelta(days=days)
        mine = [
            Override(
                id=f"{owner} {gpu_class} {int(step.starts.timestamp())}",
                owner=owner,
                gpu_class=gpu_class,
                starts=int(step.starts.timestamp()),
                ends=FOREVER if step.ends == NEVER else int(step.ends.timestamp()),
                units=step.limit - usual,
            )
            for step in limit_steps(base, found, since, until)
        ]
        dated = [each for each in guarantees if (each.owner, each.gpu_class) == (owner, gpu_class)]
        if dated and base is not None:
            mine = _at_dates(mine, dated, sure.get((owner, gpu_class), 0))
        steps += mine
    return tuple(steps)


def _windows_by_owner(windows: Iterable[QuotaWindow]) -> dict[tuple[str, str], list[tuple[int, Times]]]:
    """The limits at some times, by the name of the owner's node in the tree and the class."""
    found: dict[tuple[str, str], list[tuple[int, Times]]] = {}
    for row in windows:
        owner = str(row.project_id or row.lab_id or row.tenant_id)
        if row.user_id is not None:
            owner = f"{owner} {row.user_id}"
        found.setdefault((owner, row.gpu_class_id), []).append((row.limit_units, times_of(row)))
    return found


def _at_dates(steps: Iterable[Override], dated: Collection[DatedGuarantee], usual: int) -> list[Override]:
    """The steps of a limit that a guarantee between dates raises or lowers, too: they are still to what
    the limit at some times says."""
    dates = sorted({at for each in dated for at in (each.starts, each.ends)})
    found = []
    for step in steps:
        edges = [step.starts, *(at for at in dates if step.starts < at < step.ends), step.ends]
        for starts, ends in pairwise(edges):
            now = next((each.guaranteed for each in dated if each.starts <= starts < each.ends), usual)
            name = step.id if starts == step.starts else f"{step.id} {starts}"
            units = step.units - (now - usual)
            found.append(replace(step, id=name, starts=starts, ends=ends, units=units))
    return found


def _labs_of(
    rows: Iterable[LabQuota], windows: Iterable[QuotaWindow], quotas: Iterable[Quota]
) -> tuple[LabLimit, ...]:
    """Limits of labs. One that has a limit at some times only gets one that restricts nothing."""
    timed = {(str(row.lab_id), row.gpu_class_id): str(row.tenant_id) for row in windows if row.lab_id}
    found = {(str(row.lab_id), row.gpu_class_id): row for row in rows}
    if not timed and not found:
        return ()
    projects: dict[str, list[str]] = {}
    members = Project.objects.filter(lab__isnull=False).order_by("id")
    for project_id, lab_id in members.values_list("id", "lab_id"):
        projects.setdefault(str(lab_id), []).append(str(project_id))
    sure = {(str(row.project_id), row.gpu_class_id): row.guaranteed_units for row in quotas}
    limits = [
        LabLimit(
            lab,
            str(row.tenant_id),
            name,
            row.guaranteed_units,
            row.borrow_limit_units,
            row.lend_limit_units,
            tuple(projects.get(lab, ())),
        )
        for (lab, name), row in found.items()
    ]
    for (lab, name), tenant in sorted(timed.items()):
        if (lab, name) not in found:
            inside = tuple(projects.get(lab, ()))
            guaranteed = sum(sure.get((project, name), 0) for project in inside)
            limits.append(LabLimit(lab, tenant, name, guaranteed, None, None, inside))
    return tuple(limits)


def _person_of(row: PersonQuota) -> PersonLimit:
    return PersonLimit(
        str(row.project_id or row.tenant_id),
        str(row.user_id) if row.user_id else "",
        row.gpu_class_id,
        row.limit_units,
    )
