"""Simulated sites: counted by hand where it can be, and against the truth of each plan."""

from dataclasses import replace

import pytest

from devtools.simulation.metrics import TierResult
from devtools.simulation.simulate import Simulation, simulate
from devtools.simulation.workload import (
    RandomSource,
    Workload,
    trace_arrivals,
    workload_arrivals,
)
from solver import Held, Host, Limit, Plan, Policy, Request, Snapshot
from tests.solver.builders import DAY, HOUR, MODELS, NOON, POLICY, gpus
from tests.solver.pausing import GRACE, TIERS, a_claim

OPENB = {
    "name": "pod-1",
    "cpu_milli": "12000",
    "memory_mib": "16384",
    "num_gpu": "1",
    "gpu_milli": "460",
    "gpu_spec": "",
    "qos": "LS",
    "creation_time": "500",
    "deletion_time": "4100",
}


def a_site(count: int = 1, *sure: tuple[str, int]) -> Snapshot:
    limits = tuple(Limit(owner, None, "h100", n * 56_000, None, None) for owner, n in sure)
    return Snapshot(NOON, MODELS, gpus(count, domains=None), (), (), (), limits, TIERS)


def arrives(request: Request, after: int) -> Request:
    return replace(request, submitted=NOON + after, earliest=NOON + after)


def test_two_bookings_for_one_gpu_run_one_after_the_other() -> None:
    first, second = arrives(a_claim("a", hours=2), 0), arrives(a_claim("b", hours=1), 600)
    site = a_site(1, ("lab", 1))
    result = simulate(site, POLICY, [second, first], 4 * HOUR, {("h100", "standard"): 250})
    assert result.utilisation_ppm == 750_000
    assert result.finished == 2
    assert result.spend == 750
    (tier,) = result.tiers
    assert tier == TierResult("standard", 2, 2, 0, 0, 0, 0, 2 * HOUR - 600, 2 * HOUR - 600)
    assert (result.jain_ppm, result.max_min_ppm) == (1_000_000, 1_000_000)


def test_who_borrows_is_paused_goes_on_later_and_loses_no_time() -> None:
    site = a_site(1, ("lab", 1), ("firm", 0))
    borrowed = arrives(a_claim("b", tier="flex", tenant="firm", hours=3), 0)
    claim = arrives(a_claim("c", hours=1), HOUR)
    result = simulate(site, POLICY, [borrowed, claim], 6 * HOUR)
    assert result.pauses == 1
    assert result.finished == 2
    flex, standard = result.tiers
    assert flex.wait_p50 == 0
    assert standard.wait_p50 == GRACE
    assert result.utilisation_ppm == 4 * 1_000_000 // 6
    assert result.lost_gpu_seconds == HOUR


def test_tenants_who_are_served_alike_are_fair_and_one_who_gets_nothing_is_told() -> None:
    site = a_site(2, ("lab", 1), ("firm", 1))
    both = [arrives(a_claim("a", hours=2), 0), arrives(a_claim("b", tenant="firm", hours=2), 0)]
    assert simulate(site, POLICY, both, 2 * HOUR).max_min_ppm == 1_000_000
    one = a_site(1, ("lab", 1), ("firm", 0))
    result = simulate(one, POLICY, both, 2 * HOUR)
    assert (result.jain_ppm, result.max_min_ppm) == (500_000, 0)
    assert sum(count for _, count in result.refused_because) == 1


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_the_same_seed_has_the_same_bytes_and_another_has_not(seed: int) -> None:
    site = a_site(4, ("lab", 2), ("firm", 2))
    demand = Workload(days=1, load=40)
    arrivals = workload_arrivals(demand, site, seed)
    result = simulate(site, POLICY, arrivals, DAY)
    assert result == simulate(site, POLICY, tuple(reversed(arrivals)), DAY)
    assert arrivals == workload_arrivals(demand, site, seed)
    assert arrivals != workload_arrivals(demand, site, seed + 10)


def test_nothing_is_given_twice_and_nobody_is_lost() -> None:
    site = a_site(4, ("lab", 2), ("firm", 2))
    arrivals = workload_arrivals(Workload(days=1, load=90, tenants=2), site, 5)
    simulation = Simulation(site, Policy(1, cool_down=1), arrivals)
    busiest = 0
    until = NOON + 30 * DAY
    while (plan := simulation.step(until)) is not None:
        assert isinstance(plan, Plan)
        rows = [row for job in simulation._jobs.values() for row in job.rows]
        for row in rows:
            neighbours = [each for each in rows if each.place.gpu == row.place.gpu and each != row]
            assert not any(_meet(row, each) for each in neighbours)
        busiest = max(busiest, sum(row.started for row in rows))
    assert busiest > 3
    assert simulation.is_over
    result = simulation.metrics.result(until)
    refused = sum(each.refused for each in result.tiers)
    assert result.finished + refused == len(arrivals)
    assert sum(each.waiting for each in result.tiers) == 0


def test_the_dice_are_those_of_splitmix() -> None:
    random_source = RandomSource(0)
    assert [random_source.below(1 << 64) for _ in range(2)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
    ]


def test_a_demand_asks_for_about_its_load_in_its_days() -> None:
    site = a_site(8, ("lab", 8))
    arrivals = workload_arrivals(Workload(days=7, load=80), site, 3)
    assert all(NOON <= each.submitted < NOON + 7 * DAY for each in arrivals)
    assert {each.tenant for each in arrivals} == {"lab"}


def test_an_openb_task_asks_for_a_share_with_cores_and_memory() -> None:
    rows = [OPENB, {**OPENB, "name": "none", "num_gpu": "0"}, {**OPENB, "gpu_spec": "H100|X"}]
    site = replace(a_site(), hosts=(Host("n1", 64_000, 262_144),))
    part, named = trace_arrivals(rows, site)
    assert (part.ask.share, part.ask.cores, part.ask.memory) == (460, 12_000, 16_384)
    assert (part.submitted, part.duration, part.tenant) == (NOON, HOUR, "ls")
    assert named.ask.classes == ("h100",)
    # A made-up fleet has no cores that could be missing.
    assert [each.ask.cores for each in trace_arrivals(rows, a_site())] == [0, 0]


def test_a_philly_job_is_a_gang_of_its_replicas() -> None:
    row = {"name": "x", "time": "107", "application": "cifar10", "num_replicas": "6"}
    (job,) = trace_arrivals([row], a_site())
    assert (job.ask.count, job.ask.profile, job.tenant) == (6, None, "cifar10")
    with pytest.raises(ValueError, match="Neither"):
        trace_arrivals([{"a": "1"}], a_site())


def _meet(one: Held, other: Held) -> bool:
    if one.starts >= other.ends or other.starts >= one.ends:
        return False
    mine, its = one.place, other.place
    return mine.start < its.start + its.size and its.start < mine.start + mine.size
