"""A cycle stays readable: its walk through the modules has no more returns than it has now."""

from solver import solve
from tests.golden.documents import golden_read
from tests.solver.walk import SNAPSHOT, returns, walk

MOST_RETURNS = 81
"""Lower it with each structure that lets a reader jump less. docs/decisions/cycle.md says what is left;
loans, notices with their claims, the begin of a state that trials share, zones, and data of nodes added one
each; held work inside guarantees, in a module of its own, two."""


def test_a_step_into_a_module_that_was_left_is_a_return() -> None:
    steps = [("a", "f"), ("a", "g"), ("b", "f"), ("a", "h"), ("c", "f"), ("b", "g"), ("b", "h")]
    assert returns(steps) == [("a", "h"), ("b", "g")]


def test_the_walk_of_a_cycle_has_no_more_returns() -> None:
    golden = golden_read(SNAPSHOT)
    site, policy = golden.site, golden.policy
    solve(site, policy)  # fills the caches, so that the tests before this one do not count
    steps = walk(lambda: solve(site, policy))
    assert (steps[0], steps[-1][1]) == (("sharding/shards.py", "solve"), "CycleState.reserve")
    assert len(steps) > 200
    assert len(returns(steps)) <= MOST_RETURNS
