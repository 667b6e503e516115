"""A crowded site in which nothing happens: its plan comes to rest."""

from tests.bench.solver.crowded import arguments, churn


def test_planned_starts_rest_from_the_second_cycle_after_the_last_pause() -> None:
    """The first cycle pauses for claims, and the second one hands out what that has left over."""
    site = "--gpus 256 --bookings 400 --classes 1 --pausable 1 --cycles 5"
    rows = churn(arguments().parse_args(site.split()))["rows"]
    assert isinstance(rows, list)
    assert rows[0]["pauses"] > 10
    assert [row["changed"] for row in rows[2:]] == [0, 0, 0], rows
