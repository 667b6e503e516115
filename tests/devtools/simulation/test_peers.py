"""Other schedulers' rules on the same demand: nobody gets more than there is, and each rule is its own."""

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from allocation.features.policy_lab.plays.past import History, Past
from allocation.features.policy_lab.plays.play import Play
from devtools.simulation.command import Command, comparison
from devtools.simulation.peers import PEERS, Pool, Work, pool_run, simulate_peer
from devtools.simulation.workload import Workload, workload_arrivals
from solver import UNITS_PER_GPU, Held, Policy, Request, Tier
from tests.features.policy_lab.test_play import a_past, a_site
from tests.roles import as_system
from tests.services.plant import Plant
from tests.solver.builders import NOON

HOUR = 3_600
STANDARD = Tier("standard", pausable=False, counts=True, priority=50)
FLEX = Tier("flex", pausable=True, counts=True, priority=40, grace=60)


def works(*rows: tuple[str, str, Tier, int, int, int]) -> list[Work]:
    """Name, tenant, tier, GPUs, hour of submission and hours."""
    return [
        Work(name, tenant, tier, gpus * UNITS_PER_GPU, at * HOUR, hours * HOUR, hours * HOUR)
        for name, tenant, tier, gpus, at, hours in rows
    ]


def played(rule: str, *rows: tuple[str, str, Tier, int, int, int], gpus: int = 4) -> dict[str, list[float]]:
    """Hours at which each job started and left, in order."""
    found: dict[str, list[float]] = {}
    pool = Pool(0, gpus * UNITS_PER_GPU, {"a": 2 * UNITS_PER_GPU, "b": 2 * UNITS_PER_GPU}, 50)

    def note(what: str, work: Work, since: int, at: int) -> None:
        assert pool.free >= 0
        found.setdefault(work.name, []).append(round(at / HOUR, 1))

    pool_run(pool, works(*rows), PEERS[rule], note, 100 * HOUR)
    return found


@pytest.mark.parametrize("rule", list(PEERS))
def test_a_guarantee_is_taken_back_from_who_borrows(rule: str) -> None:
    found = played(rule, ("loan", "a", FLEX, 4, 0, 10), ("claim", "b", STANDARD, 2, 1, 2))
    assert found["loan"][:2] == [0, 1.0], "it leaves after its notice"
    assert found["claim"] == [1.0, 3.0]
    assert found["loan"][-1] > 10


def test_only_slurm_keeps_room_for_the_first_that_waits() -> None:
    """A job for all GPUs waits behind a stream of small ones; backfill ends before it."""
    rows = [("old", "a", FLEX, 3, 0, 4), ("wide", "a", FLEX, 4, 1, 2)]
    rows += [(f"small{n}", "a", FLEX, 1, 2 + n, 5) for n in range(3)]
    assert played("slurm-like", *rows)["wide"][0] == 4
    assert played("kueue-like", *rows)["wide"][0] > 6


def test_all_see_the_same_demand_and_use_no_more_than_there_is() -> None:
    site = a_site()
    arrivals = workload_arrivals(Workload(days=1, load=150), site, 1)
    results = {name: simulate_peer(site, rule, arrivals, 2 * 86_400) for name, rule in PEERS.items()}
    asked = {sum(row.asked for row in each.tiers) for each in results.values()}
    assert asked == {len(arrivals)}
    for each in results.values():
        assert 0 < each.utilisation_ppm <= 1_000_000
        assert simulate_peer(site, PEERS["kueue-like"], arrivals, 86_400) != each
    again = simulate_peer(site, PEERS["slurm-like"], arrivals, 2 * 86_400)
    assert again == results["slurm-like"]
    lines = comparison(results)
    assert "slurm-like" in lines[0]
    assert any(line.startswith("in use") for line in lines)


def test_what_runs_already_stays_until_its_end() -> None:
    first = a_past(1, 0, hours=1, count=4).request
    site = replace(a_site(), held=tuple(row for job in played_jobs(first) for row in job))
    second = a_past(2, 60, hours=1, count=4).request
    result = simulate_peer(site, PEERS["kueue-like"], [second], 4 * HOUR)
    (row,) = result.tiers
    assert (row.started, row.wait_max, result.finished) == (1, HOUR - 60, 2)


def played_jobs(request: Request) -> Iterator[list[Held]]:
    """The rows of a booking that the portal has just started."""
    history = History(a_site(), (Past(request, request.duration),), NOON + HOUR)
    play = Play(history, Policy(1), {request.booking: request.duration})
    next(play.turns())
    yield from (job.rows for job in vars(play)["_jobs"].values())


@pytest.mark.turn
def test_the_command_compares_versions_with_others(plant: Plant, tmp_path: Path) -> None:
    out = StringIO()
    names = ["1", *PEERS]
    with as_system():
        call_command(Command(), gpus="h100=8", demand="tenants=2", days=1, policy=names, stdout=out)
        with pytest.raises(CommandError, match="no policy fair"):
            call_command(Command(), gpus="h100=8", days=1, policy=["fair"])
    assert out.getvalue().splitlines()[0].split() == names
