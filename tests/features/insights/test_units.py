"""What the runs did, in words: which rows are listed, and what part of the charges they are."""

from decimal import Decimal

from allocation.features.insights.outcomes import UnitCost
from allocation.features.insights.tiles import MOST_UNITS, units_shown


def costs(count: int) -> list[tuple[str, UnitCost]]:
    return [(f"work-{n}", UnitCost("step", Decimal(10), 4_000.0, 2)) for n in range(count)]


def test_the_note_says_what_the_listed_runs_are_of_all_charges() -> None:
    rows, note = units_shown(costs(2), Decimal("33.50"), "EUR")
    assert [row.spend for row in rows] == ["€10.00", "€10.00"]
    assert note == "The hours of 2 workloads with progress cost €20.00; €33.50 was charged in all."
    _, note = units_shown(costs(1), None, "EUR")
    assert note == "The hours of 1 workload with progress cost €10.00."


def test_a_list_that_is_cut_says_so_and_its_sum_is_of_all() -> None:
    rows, note = units_shown(costs(MOST_UNITS + 1), Decimal(500), "CHF")
    assert len(rows) == MOST_UNITS
    assert f"CHF {10 * (MOST_UNITS + 1)}.00" in note
    assert note.endswith(f"The {MOST_UNITS} that cost most are listed.")
