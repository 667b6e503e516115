"""What is borrowed, compared with counting every booking one by one in the order of guarantees."""

from dataclasses import replace
from random import Random

from solver import Limit, Tier
from solver.preemption.borrowing import Row, guarantee_order, units_borrowed
from solver.quota.quota import Quota
from solver.quota.use import Use
from tests.solver.builders import HOUR, NOON, a_limit, a_snapshot

GPU = 56_000
TIERS = (
    Tier("std", pausable=False, counts=True, priority=50),
    Tier("flex", pausable=True, counts=True, priority=40, grace=120),
    Tier("spot", pausable=True, counts=False, priority=10, grace=60),
)
OWNERS = (("a", "a-p"), ("a", "a-q"), ("b", "b-p"), ("c", "c-p"))


def limits(chance: Random) -> tuple[Limit, ...]:
    """Two tenants with limits, one of which has split its guarantee; `c` has none."""
    return (
        a_limit("a", chance.randint(0, 12), lend=chance.choice((None, 0, 1))),
        a_limit("a-p", chance.randint(0, 4), parent="a", lend=chance.choice((None, 0))),
        a_limit("b", chance.randint(0, 12)),
    )


def rows(chance: Random) -> list[Row]:
    """Bookings in windows that overlap, some of which take no time."""
    found = []
    for number in range(chance.randint(1, 60)):
        starts = NOON + chance.randint(-2, 8) * HOUR
        ends = max(starts, NOON) + chance.randint(0, 6) * HOUR
        tier = chance.choice(TIERS).slug
        use = Use(chance.choice(OWNERS), tier, "h100", chance.choice((1, 1, 2, 8)) * GPU)
        found.append(Row(f"b{number:02}", use, (starts, ends)))
    return found


def test_what_is_borrowed_equals_counting_one_by_one() -> None:
    borrowing = within = 0
    for seed in range(300):
        chance = Random(seed)  # noqa: S311 (not for secrets)
        site = replace(a_snapshot(limits=limits(chance)), tiers=TIERS)
        all_rows = rows(chance)
        quota = Quota(site, {"h100": 16 * GPU})
        # As the product does: what takes no time then borrows nothing of what counts.
        edges = {"h100": [instant for row in all_rows for instant in row.window]}
        one_by_one, *empty = (Quota(site, {"h100": 16 * GPU}, instants=edges) for _ in range(3))
        expected = []
        for row in sorted(all_rows, key=lambda each: guarantee_order(quota, each)):
            above = one_by_one.borrowed(row.use, row.window)
            one_by_one.add(row.use, row.window)
            expected += [(row, above)] if above else []
        empty[0].add_all((row.use, row.window) for row in all_rows)
        assert units_borrowed(all_rows, *empty) == expected, seed
        borrowing += len(expected)
        within += len(all_rows) - len(expected)
    assert min(borrowing, within) > 1_000
