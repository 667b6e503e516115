"""What the limits of one GPU class are made into: quota trees, and shares of what nobody is
guaranteed. Units; seconds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from solver.model.inner_limits import FOREVER, LabLimit
from solver.model.inputs import Snapshot, Tier
from solver.model.limits import DatedGuarantee, Limit, Override
from solver.quota.tier_parts import others_of
from solver.quota.tree import PLATFORM, UNBOUNDED, Exceptions, Node, Tree


class Trees(NamedTuple):
    """Trees of one class: within guarantee, the same for non-preemptible work, lending among work
    that counts, lending among all work. Trees that always agree are one object."""

    guarantee: Tree
    non_preemptible: Tree
    lending: Tree
    total: Tree


def trees_of(  # noqa: PLR0913 (parts of one class)
    rows: list[Limit],
    overrides: list[Override],
    capacity: int,
    tiers: tuple[Tier, ...],
    tree: Callable[..., Tree],
    *,
    dated: Sequence[DatedGuarantee] = (),
    parts: Iterable[tuple[str, int, int, int]] = (),
) -> Trees:
    """The trees of one class, each made by `tree` from its nodes and exceptions.

    `capacity` in units; `overrides` and `dated` guarantees are those of the class, `parts` what the part
    of a guarantee for other tiers changes by.
    """
    counted = [tier for tier in tiers if tier.counts]
    projects = {row.owner for row in rows if row.parent is not None}
    # No guarantee of a tenant rises: only its labs, projects and persons may have more of it.
    inside = _exceptions(
        each for each in overrides if each.guarantee or each.owner in projects or " " in each.owner
    )
    lent, guaranteed = lending_tree(rows, capacity), guarantee_tree(rows)
    every = _exceptions(each for each in overrides if not each.guarantee)
    if dated:
        every = _changing(every, rows, dated, partial(lending_tree, capacity=capacity))
        inside = _changing(inside, rows, dated, guarantee_tree)
    inside = replace(inside, raised=(*inside.raised, *parts))
    lending = tree(lent, exceptions=every)
    guarantee = tree(guaranteed, exceptions=inside)
    none_paused = not any(tier.pausable for tier in counted)
    # A mixed booking of a tier that can be paused does not count.
    all_count = not any(tier.pausable or not tier.counts for tier in tiers)
    return Trees(
        guarantee,
        guarantee if none_paused else tree(guarantee.nodes, exceptions=inside),
        lending,
        lending if all_count else tree(lending.nodes, exceptions=lending.exceptions),
    )


def _exceptions(overrides: Iterable[Override]) -> Exceptions:
    raised: list[tuple[str, int, int, int]] = []
    exempt: dict[str, dict[str, int]] = {}
    kept: dict[str, set[str]] = {}
    for each in overrides:
        if each.keeps:
            mine = kept.setdefault(each.booking, set())
            mine |= {each.owner, others_of((each.owner, ""))[0]} if each.guarantee else {each.owner}
        elif each.booking:
            units = exempt.setdefault(each.booking, {})
            units[each.owner] = units.get(each.owner, 0) + each.units
        elif each.units:
            raised.append((each.owner, each.units, each.starts, each.ends))
    return Exceptions(tuple(raised), exempt, kept)


def limits_at(rows: Iterable[Limit], dated: Iterable[DatedGuarantee], instant: int) -> list[Limit]:
    """The limits with the guarantees of an instant."""
    now = {
        (each.owner, each.gpu_class): each.guaranteed for each in dated if each.starts <= instant < each.ends
    }
    return [
        replace(row, guaranteed=now[row.owner, row.gpu_class]) if (row.owner, row.gpu_class) in now else row
        for row in rows
    ]


def dates_of(snapshot: Snapshot) -> list[int]:
    """The seconds at which a guarantee begins or ends, rising."""
    return sorted({at for each in snapshot.guarantees for at in (each.starts, each.ends)})


def guarantees_at(snapshot: Snapshot, instant: int) -> Snapshot:
    """The snapshot with the guarantees of an instant, also of labs."""
    limits = tuple(limits_at(snapshot.limits, snapshot.guarantees, instant))
    of_labs = [
        Limit(each.owner, each.tenant, each.gpu_class, each.guaranteed, 0, 0) for each in snapshot.labs
    ]
    now = limits_at(of_labs, snapshot.guarantees, instant)
    labs = (replace(lab, guaranteed=row.guaranteed) for lab, row in zip(snapshot.labs, now, strict=True))
    return replace(snapshot, limits=limits, labs=tuple(labs))


def _changing(
    known: Exceptions,
    rows: Sequence[Limit],
    dated: Sequence[DatedGuarantee],
    nodes_of: Callable[[Iterable[Limit]], dict[str, Node]],
) -> Exceptions:
    """The exceptions with what caps, and parts that are never lent, change by at each date. Each change
    lasts for good, so that the end of no window is rounded."""
    raised, local = list(known.raised), list(known.local)
    before = nodes_of(rows)
    for instant in sorted({at for each in dated for at in (each.starts, each.ends)}):
        after = nodes_of(limits_at(rows, dated, instant))
        for owner, node in after.items():
            was = before[owner]
            if node.cap != was.cap and node.cap < UNBOUNDED:
                raised.append((owner, node.cap - was.cap, instant, FOREVER))
            if node.local != was.local:
                local.append((owner, node.local - was.local, instant))
        before = after
    return replace(known, raised=tuple(raised), local=tuple(local))


def with_labs(limits: Iterable[Limit], labs: Iterable[LabLimit]) -> list[Limit]:
    """The limits of one class with labs between tenants and projects.

    A project of a lab that has no limit gets one that restricts nothing, so that the lab sees its
    use.
    """
    rows = list(limits)
    lab_of = {project: lab for lab in labs for project in lab.projects}
    if not lab_of:
        return rows
    known = {row.owner for row in rows}
    rows = [replace(row, parent=lab_of[row.owner].owner) if row.owner in lab_of else row for row in rows]
    for lab in {lab.owner: lab for lab in lab_of.values()}.values():
        rows.append(Limit(lab.owner, lab.tenant, lab.gpu_class, lab.guaranteed, lab.borrow, lab.lend))
    rows += [
        Limit(project, lab.owner, lab.gpu_class, 0, None, None)
        for project, lab in lab_of.items()
        if project not in known
    ]
    return rows


def lending_tree(limits: Iterable[Limit], capacity: int) -> dict[str, Node]:
    """The tree in which idle guarantees are lent, from the limits and capacity of one class.

    Capacity above all tenants' guarantees belongs to the platform, which lends it.
    """
    rows = list(limits)
    nodes: dict[str, Node] = {}
    below = _below(rows)
    idle = max(0, capacity - sum(row.guaranteed for row in rows if row.parent is None))
    lent = 0
    for row in _tops(rows):
        lends, _ = _grow(nodes, row, PLATFORM, below)
        lent += 0 if row.parent else lends
    nodes[PLATFORM] = Node(PLATFORM, None, idle + lent, 0, idle + lent)
    return nodes


def guarantee_tree(limits: Iterable[Limit]) -> dict[str, Node]:
    """The same tree cut at the tenants: what fits without borrowing from them is within guarantee.

    Inside a tenant a project may use what others of its projects lend and leave idle. What a
    project does not lend is always its own.
    """
    rows = list(limits)
    nodes: dict[str, Node] = {}
    below = _below(rows)
    for row in _tops(rows):
        _grow(nodes, row, PLATFORM, below)
        if row.parent is None:
            # What is never lent inside the tenant is not visible here.
            own = nodes[row.owner].cap - _borrows(row)
            nodes[row.owner] = Node(row.owner, None, own, 0, own)
    return nodes


def _below(rows: Iterable[Limit]) -> dict[str, list[Limit]]:
    """The limits directly below each owner."""
    found: dict[str, list[Limit]] = {}
    for row in rows:
        if row.parent is not None:
            found.setdefault(row.parent, []).append(row)
    return found


def _tops(rows: list[Limit]) -> list[Limit]:
    """Tenants, and those whose parent has no limit."""
    known = {row.owner for row in rows}
    return [row for row in rows if row.parent not in known]


def _grow(
    nodes: dict[str, Node], row: Limit, above: str, below: Mapping[str, list[Limit]]
) -> tuple[int, int]:
    """Add the node of an owner and those below it; what it lends, and what is never lent by it and
    below it."""
    lent = kept = split = 0
    for child in below.get(row.owner, ()):
        lends, keeps = _grow(nodes, child, row.owner, below)
        lent, kept, split = lent + lends, kept + keeps, split + child.guaranteed
    subtree = max(0, row.guaranteed - split) + lent
    local = 0 if row.lend is None else max(0, subtree - row.lend)
    # What is kept below is not visible here, but it is part of the guarantee.
    own = max(0, row.guaranteed - kept)
    nodes[row.owner] = Node(row.owner, row.parent or above, subtree, local, own + _borrows(row))
    return subtree - local, kept + local


def _borrows(row: Limit) -> int:
    return UNBOUNDED if row.borrow is None else row.borrow


@dataclass(frozen=True, slots=True)
class Claimant:
    """An owner who requests units of a total, with a guarantee and a weight."""

    owner: str
    guaranteed: int
    requested: int
    weight: int = 1


def split(total: int, claimants: Iterable[Claimant]) -> dict[str, int]:
    """Each owner's share: first min(guaranteed, requested), then the rest by weight, repeated until
    no owner with weight wants more or nothing is left. Weight 0 gets no rest.

    An indivisible rest goes unit by unit to the largest remainder, then by weight and owner.
    """
    order = sorted(claimants, key=lambda each: (-each.weight, each.owner))
    shares = {each.owner: min(each.guaranteed, each.requested) for each in order}
    rest = total - sum(shares.values())
    while rest > 0:
        open_ones = [each for each in order if each.weight and shares[each.owner] < each.requested]
        if not open_ones:
            break
        weights = sum(each.weight for each in open_ones)
        parts = {each.owner: rest * each.weight // weights for each in open_ones}
        nearest = sorted(open_ones, key=lambda each: -(rest * each.weight % weights))
        for each in nearest[: rest - sum(parts.values())]:
            parts[each.owner] += 1
        for each in open_ones:
            part = min(parts[each.owner], each.requested - shares[each.owner])
            shares[each.owner] += part
            rest -= part
    return shares


def split_to_projects(limits: Iterable[Limit], demand: Mapping[str, int], capacity: int) -> dict[str, int]:
    """Shares of one class for tenants, and of each tenant's share for its projects.

    `demand` is units by owner, a tenant's including its projects'.
    """
    rows = list(limits)
    shares = split(capacity, [_claimant(row, demand) for row in rows if row.parent is None])
    for tenant in sorted(shares):
        inner = [_claimant(row, demand) for row in rows if row.parent == tenant]
        shares |= split(shares[tenant], inner)
    return shares


def _claimant(row: Limit, demand: Mapping[str, int]) -> Claimant:
    most = demand.get(row.owner, 0)
    if row.borrow is not None:
        most = min(most, row.guaranteed + row.borrow)
    return Claimant(row.owner, row.guaranteed, most, row.weight)
