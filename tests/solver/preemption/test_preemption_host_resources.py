"""Pauses for host cores: who must leave when cores, not GPUs, are what is missing."""

from dataclasses import replace

from solver import Host, Snapshot, solve
from tests.solver import truth
from tests.solver.builders import HOUR, POLICY, a_held, a_limit, an_ask, gpus, whole
from tests.solver.pausing import GRACE, a_claim, a_site, given, notices, running
from tests.solver.world import RESTLESS, check, running_requests, standing, with_room_made

LIMITS = (a_limit("lab", 2, borrow=0), a_limit("firm", 0, borrow=None))
BORROWS = tuple(replace(row, cores=20_000) for row in running("borrows", whole("n1-0")))
OWN = tuple(
    replace(row, cores=8_000)
    for row in running("own", whole("n1-1"), tenant="lab", tier="spot", ends=2 * HOUR)
)
AHEAD = replace(a_held("n1-2", starts=2 * HOUR, ends=10 * HOUR, booking="ahead", tenant="firm"), cores=24_000)


def crowded(*held, earliest: int = 0) -> Snapshot:  # type: ignore[no-untyped-def]  # rows
    """48 cores with four GPUs, one of them idle, and a claim for it with 24 cores."""
    ask = replace(an_ask(), cores=24_000)
    claim = a_claim(ask=ask, hours=4, earliest=earliest)
    host = Host("n1", 48_000, 0)
    return a_site(claim, held=held, fleet=gpus(4), limits=LIMITS, hosts=(host,))


def test_who_ends_before_another_begins_is_not_beside_it_and_stays() -> None:
    """Until 2 h 20 + 8 + 24 cores are too many, after it 20 + 24 + 24: without `borrows` both fit.
    Counted together, the 8 until 2 h and the 24 after it would be too many as well."""
    plan = solve(crowded(*BORROWS, *OWN, AHEAD), POLICY)
    assert notices(plan) == {"borrows": ("claim", GRACE)}
    assert given(plan) == {"claim": ("wait", GRACE)}


def test_both_leave_where_both_are_in_the_way_at_one_instant() -> None:
    """The control: what begins at 2 h begins at once."""
    ahead = replace(AHEAD, starts=AHEAD.starts - HOUR)
    plan = solve(crowded(*BORROWS, *OWN, ahead), POLICY)
    assert sorted(notices(plan)) == ["borrows", "own"]


def test_a_planned_start_on_cores_alone_stands_on_work_that_is_told_later() -> None:
    site = crowded(*BORROWS, *OWN, earliest=HOUR)
    site = replace(site, running=tuple(running_requests(site)))
    plan = solve(site, RESTLESS)
    assert (notices(plan), [row.booking for row in standing(plan)]) == ({}, ["claim"])
    check(site, plan)
    nobody_leaves = replace(with_room_made(site, plan), held=site.held)
    assert truth.beyond_hosts(nobody_leaves, plan), "it needs nobody: this shows nothing"
