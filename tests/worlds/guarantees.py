"""Guarantees of tenants between dates in some worlds, and what they are at an instant."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from random import Random

from solver import DatedGuarantee, LabLimit, Limit, TierPart
from tests.solver.builders import NOON
from tests.worlds.draw import Drawn
from tests.worlds.jobs import HOUR

UNITS = 56_000


def with_guarantees(seed: int, drawn: Drawn) -> Drawn:
    """In one world of four the tenants' guarantees are others for some hours, once or twice."""
    chance = Random(f"guarantees {seed}")  # noqa: S311  a made-up world, the same each time
    if drawn.is_plain or chance.random() < 0.66:
        return drawn
    inner = Random(f"guarantees of projects {seed}")  # noqa: S311  leaves the other draws as they are
    rows: list[DatedGuarantee] = []
    for gpu_class in sorted({row.gpu_class for row in drawn.limits}):
        begins = NOON + chance.randint(0, 3 * HOUR)
        for _ in range(chance.choice((1, 1, 2))):
            ends = begins + chance.choice((1_800, 2 * HOUR, 5 * HOUR)) + chance.randint(0, 3_599)
            tenants = list(_split(chance, drawn, gpu_class, (begins, ends)))
            rows += [*tenants, *_inner(inner, drawn, gpu_class, tenants)]
            begins = ends + chance.choice((0, 0, HOUR))
    return replace(drawn, guarantees=tuple(rows))


def with_tier_parts(seed: int, drawn: Drawn) -> Drawn:
    """In one world of four some of a tenant's guarantee is for some tiers only."""
    chance = Random(f"tier parts {seed}")  # noqa: S311  a made-up world, the same each time
    tiers = [tier.slug for tier in drawn.tiers if tier.counts]
    tenants = [row for row in drawn.limits if row.parent is None and row.guaranteed >= UNITS]
    if drawn.is_plain or chance.random() < 0.62 or len(tiers) < 2 or not tenants:
        return drawn
    rows = []
    for row in tenants:
        if chance.random() < 0.7:
            units = chance.randint(1, row.guaranteed // UNITS) * UNITS
            of = tuple(sorted(chance.sample(tiers, chance.randint(1, len(tiers) - 1))))
            rows.append(TierPart(row.owner, row.gpu_class, units, of))
    return replace(drawn, tier_parts=tuple(rows))


def _inner(
    chance: Random, drawn: Drawn, gpu_class: str, tenants: Iterable[DatedGuarantee]
) -> Iterator[DatedGuarantee]:
    """Other guarantees of projects and labs within those of their tenants, for all of the time or the
    second half."""
    limits = [row for row in drawn.limits if row.gpu_class == gpu_class]
    labs = [lab for lab in drawn.requests.labs if lab.gpu_class == gpu_class]
    for tenant in tenants:
        projects = [row for row in limits if row.parent == tenant.owner]
        left = tenant.guaranteed - sum(row.guaranteed for row in projects)
        raised = dict[str, int]()
        for row in projects:
            more = chance.choice((-1, 1, 2)) * UNITS
            if chance.random() < 0.5 or more > left or row.guaranteed + more < 0:
                continue
            left -= max(0, more)
            raised |= {lab.owner: raised.get(lab.owner, 0) + max(0, more) for lab in _of(row.owner, labs)}
            half = (tenant.ends - tenant.starts) // 600 * 300
            starts = tenant.starts + chance.choice((0, 0, half))
            yield replace(tenant, owner=row.owner, starts=starts, guaranteed=row.guaranteed + more)
        for lab in labs:
            if lab.owner in raised:
                yield replace(tenant, owner=lab.owner, guaranteed=lab.guaranteed + raised[lab.owner])


def _of(project: str, labs: Iterable[LabLimit]) -> list[LabLimit]:
    return [lab for lab in labs if project in lab.projects]


def _split(chance: Random, drawn: Drawn, gpu_class: str, window: tuple[int, int]) -> Iterator[DatedGuarantee]:
    """Another split of the class that the fleet can keep; projects and labs keep theirs."""
    limits = [row for row in drawn.limits if row.gpu_class == gpu_class]
    tenants = [row for row in limits if row.parent is None]
    left = sum(gpu.gpu_class == gpu_class for gpu in drawn.gpus) * UNITS
    inner = {row.owner: sum(p.guaranteed for p in limits if p.parent == row.owner) for row in tenants}
    left -= sum(inner.values())
    chance.shuffle(tenants)
    unchanged = {row.owner for row in tenants if chance.random() < 0.2}
    left -= sum(row.guaranteed - inner[row.owner] for row in tenants if row.owner in unchanged)
    for row in tenants:
        if row.owner not in unchanged:
            more = min(max(0, left // UNITS), chance.choice((0, 0, 1, 2, 4))) * UNITS
            left -= more
            yield DatedGuarantee(row.owner, gpu_class, *window, inner[row.owner] + more)


def dates_of(drawn: Drawn, leads: Collection[int]) -> list[int]:
    """The dates of a world's guarantees, and the seconds so long before them."""
    dates = (at for each in drawn.guarantees for at in (each.starts, each.ends))
    return [at - lead for at in dates for lead in leads]


def limits_now(
    limits: Iterable[Limit], guarantees: Iterable[DatedGuarantee], instant: int
) -> tuple[Limit, ...]:
    """The limits with the guarantees of an instant."""
    found = []
    for row in limits:
        for each in guarantees:
            is_its = (each.owner, each.gpu_class) == (row.owner, row.gpu_class)
            if is_its and each.starts <= instant < each.ends:
                row = replace(row, guaranteed=each.guaranteed)  # noqa: PLW2901  at most one
        found.append(row)
    return tuple(found)
