"""Guarantees of tenants between dates in some worlds, and what they are at an instant."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from random import Random

from solver import DatedGuarantee, Limit
from tests.solver.builders import NOON
from tests.worlds.draw import Drawn
from tests.worlds.jobs import HOUR

UNITS = 56_000


def with_guarantees(seed: int, drawn: Drawn) -> Drawn:
    """In one world of four the tenants' guarantees are others for some hours, once or twice."""
    chance = Random(f"guarantees {seed}")  # noqa: S311  a made-up world, the same each time
    if drawn.is_plain or chance.random() < 0.66:
        return drawn
    rows: list[DatedGuarantee] = []
    for gpu_class in sorted({row.gpu_class for row in drawn.limits}):
        begins = NOON + chance.randint(0, 3 * HOUR)
        for _ in range(chance.choice((1, 1, 2))):
            ends = begins + chance.choice((1_800, 2 * HOUR, 5 * HOUR)) + chance.randint(0, 3_599)
            rows += _split(chance, drawn, gpu_class, (begins, ends))
            begins = ends + chance.choice((0, 0, HOUR))
    return replace(drawn, guarantees=tuple(rows))


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
            if is_its and row.parent is None and each.starts <= instant < each.ends:
                row = replace(row, guaranteed=each.guaranteed)  # noqa: PLW2901  at most one
        found.append(row)
    return tuple(found)
