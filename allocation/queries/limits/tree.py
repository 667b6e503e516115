"""The quota tree of an organisation at one instant: own, borrowed, lent and used by each owner."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from allocation.queries.bookings.money.projects import limits_by_time, others_above
from allocation.queries.limits.use_now import use_now
from tenants.access import Actor
from tenants.lab_queries import labs_led, labs_seen, projects_seen, quotas_now
from tenants.models import GpuClass, Lab, LabQuota, Project, Quota, Tenant

Key = tuple[UUID, str]


@dataclass(frozen=True, slots=True)
class OwnerUse:
    """Units of a class of one owner. `outside` is borrowed from other organisations, `inside` from
    others of the own one, `lenders` by name. `limit` is the one in force now; None: no limit."""

    name: str
    depth: int
    used: int
    guaranteed: int
    limit: int | None
    is_dated: bool = False
    outside: int = 0
    inside: int = 0
    lent: int = 0
    lends: int | None = None
    lenders: tuple[str, ...] = ()
    id: UUID | None = None

    @property
    def own(self) -> int:
        """What is used of the own guarantee."""
        return self.used - self.outside - self.inside

    @property
    def borrowed(self) -> int:
        """What others lend, of the own organisation and of others."""
        return self.outside + self.inside

    @property
    def spare(self) -> int:
        """What is used above the own guarantee of what the organisation or lab has assigned to nobody."""
        return max(0, self.own - self.guaranteed) if self.depth and self.guaranteed else 0

    @property
    def idle(self) -> int:
        """What is guaranteed, not used, and may be lent."""
        idle = max(0, self.guaranteed - self.used)
        return idle if self.lends is None else min(idle, self.lends)


@dataclass(frozen=True, slots=True)
class ClassTree:
    """The owners of a class: the organisation, then each lab with its projects, then the others."""

    gpu_class: GpuClass
    rows: tuple[OwnerUse, ...]


@dataclass(frozen=True, slots=True)
class _Read:
    used: Mapping[Key, int]
    outside: Mapping[Key, int]
    quotas: Mapping[Key, Quota | LabQuota]
    dated: Mapping[Key, int]
    lab_of: Mapping[UUID, UUID | None]
    projects: Sequence[Project] = ()
    above: Mapping[str, int] = field(default_factory=dict)


def quota_tree(actor: Actor, now: datetime) -> list[ClassTree]:
    """The tree of each class, with the labs and projects that the actor may see."""
    tenant = Tenant.objects.get(id=actor.tenant_id)
    known = _read(actor, now)
    labs = list(labs_seen(actor).filter(is_open=True))
    return [
        ClassTree(gpu_class, tuple(_rows(tenant, labs, known, gpu_class.slug)))
        for gpu_class in GpuClass.objects.all()
    ]


def owner_uses(actor: Actor, now: datetime) -> dict[Key, OwnerUse]:
    """The rows of the tree by owner and class, for pages that show some of them."""
    trees = quota_tree(actor, now)
    return {(row.id, tree.gpu_class.slug): row for tree in trees for row in tree.rows if row.id}


def _rows(tenant: Tenant, labs: Iterable[Lab], known: _Read, name: str) -> list[OwnerUse]:
    mine = list(known.projects)
    whole = _owner(known, tenant.id, tenant.name, name, 0, known.lab_of)
    whole = replace(whole, lent=min(whole.idle, known.above.get(name, 0)))
    rows, top = [whole], list[OwnerUse]()
    below: list[list[OwnerUse]] = []
    for lab in labs:
        inside = [project for project in mine if project.lab_id == lab.id]
        members = [project for project, of in known.lab_of.items() if of == lab.id]
        row = _owner(known, lab.id, lab.name, name, 1, members)
        top.append(row)
        children = [_owner(known, each.id, each.name, name, 2, [each.id]) for each in inside]
        below.append(_with_flow(children))
    others = [each for each in mine if each.lab is None or not each.lab.is_open]
    top += [_owner(known, each.id, each.name, name, 1, [each.id]) for each in others]
    below += [[] for _ in others]
    for row, children in zip(_with_flow(top), below, strict=True):
        rows += [row, *children]
    return rows


def _owner(
    known: _Read, owner: UUID, title: str, gpu_class: str, depth: int, projects: Iterable[UUID]
) -> OwnerUse:
    quota = known.quotas.get((owner, gpu_class))
    dated = known.dated.get((owner, gpu_class))
    members = list(projects)
    limit = quota.limit_units if quota else None
    return OwnerUse(
        title,
        depth,
        used=sum(known.used.get((each, gpu_class), 0) for each in members),
        guaranteed=quota.guaranteed_units if quota else 0,
        limit=limit if dated is None else dated,
        is_dated=dated is not None,
        outside=sum(known.outside.get((each, gpu_class), 0) for each in members),
        lends=quota.lend_limit_units if quota else None,
        id=owner,
    )


def _with_flow(rows: list[OwnerUse]) -> list[OwnerUse]:
    """What siblings lend each other: those with the most idle guarantee lend first. Use above the
    own guarantee that no sibling lends is of what their parent has assigned to nobody."""
    above = [max(0, row.used - row.outside - row.guaranteed) for row in rows]
    wanted = left = min(sum(above), sum(row.idle for row in rows))
    lent = [0] * len(rows)
    for at in sorted(range(len(rows)), key=lambda at: (-rows[at].idle, rows[at].name)):
        lent[at] = min(rows[at].idle, wanted)
        wanted -= lent[at]
    names = tuple(row.name for row, units in zip(rows, lent, strict=True) if units)
    found = []
    for row, over, units in zip(rows, above, lent, strict=True):
        inside = min(over, left)
        left -= inside
        found.append(replace(row, lent=units, inside=inside, lenders=names if inside else ()))
    return found


def _read(actor: Actor, now: datetime) -> _Read:
    uses = use_now("project_id", now, actor.tenant_id)
    quotas: dict[Key, Quota | LabQuota] = {
        (row.project_id or row.tenant_id, row.gpu_class_id): row
        for row in quotas_now(Quota.objects.filter(tenant_id=actor.tenant_id), now)
    }
    for lab_quota in quotas_now(LabQuota.objects.filter(tenant_id=actor.tenant_id), now):
        quotas[lab_quota.lab_id, lab_quota.gpu_class_id] = lab_quota
    return _Read(
        {key: each.used for key, each in uses.items()},
        {key: each.borrowed for key, each in uses.items()},
        quotas,
        limits_by_time(actor.tenant_id, now),
        dict(Project.objects.filter(tenant_id=actor.tenant_id).values_list("id", "lab_id")),
        list(projects_seen(actor, labs_led(actor))),
        others_above(now),
    )
