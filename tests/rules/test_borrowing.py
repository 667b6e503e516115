"""What is above a tenant's guarantee now, compared with a count of one unit after another."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from allocation.rules.borrowing import UnitsHeld, units_above

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
PROJECTS = tuple(UUID(int=number) for number in range(1, 4))


def held(
    number: int, project: int, units: int, *, counts: bool = True, pausable: bool = True, since: int = 0
) -> UnitsHeld:
    moment = NOW + timedelta(minutes=since)
    return UnitsHeld(UUID(int=number), PROJECTS[project], units, counts, pausable, moment)


def by_number(rows: list[UnitsHeld], guaranteed: int, kept: dict[UUID, int]) -> dict[int, int]:
    return {each.int: units for each, units in units_above(rows, guaranteed, kept).items()}


def test_a_project_above_its_part_is_inside_its_tenants_guarantee() -> None:
    rows = [held(1, 0, 4), held(2, 1, 1)]
    assert by_number(rows, 6, {}) == {}
    assert by_number([*rows, held(3, 1, 2, since=1)], 6, {}) == {3: 1}


def test_the_guarantee_goes_to_what_cannot_be_paused_first() -> None:
    rows = [held(1, 0, 4), held(2, 1, 4, pausable=False, since=9)]
    assert by_number(rows, 6, {}) == {1: 2}


def test_a_tier_that_uses_no_guarantee_borrows_next_to_free_guarantees() -> None:
    assert by_number([held(1, 0, 2, counts=False)], 6, {}) == {1: 2}


def test_what_a_project_does_not_lend_is_not_the_others() -> None:
    kept = {PROJECTS[1]: 2}
    assert by_number([held(1, 0, 5)], 6, kept) == {1: 1}
    assert by_number([held(1, 0, 4), held(2, 1, 2, since=5)], 6, kept) == {}


ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 4), st.booleans(), st.booleans(), st.integers(0, 5)),
    max_size=8,
)


@given(ROWS, st.integers(0, 10), st.lists(st.integers(0, 3), min_size=3, max_size=3))
def test_the_amounts_are_those_of_units_that_are_placed_one_by_one(
    drawn: list[tuple[int, int, bool, bool, int]], guaranteed: int, kept: list[int]
) -> None:
    if sum(kept) > guaranteed:
        kept = [0, 0, 0]
    rows = [
        held(number, project, units, counts=counts, pausable=pausable, since=since)
        for number, (project, units, counts, pausable, since) in enumerate(drawn, 1)
    ]
    own = list(kept)
    shared, above = guaranteed - sum(kept), dict[int, int]()
    for row in sorted(rows, key=lambda each: (each.pausable, each.since, str(each.booking))):
        project = PROJECTS.index(row.project)
        for _ in range(row.units):
            if row.counts and own[project]:
                own[project] -= 1
            elif row.counts and shared:
                shared -= 1
            else:
                above[row.booking.int] = above.get(row.booking.int, 0) + 1
    assert by_number(rows, guaranteed, dict(zip(PROJECTS, kept, strict=True))) == above
