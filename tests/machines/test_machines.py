"""Everything on three machines is killed, one after the other, while people book.

Nothing that was answered is lost, nothing is there twice, and decisions go on.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.machines.crowd import Crowd
from tests.machines.portal import BODY, Portal
from tests.machines.site import Machines, missing
from tests.servers.waiting import wait_until

pytestmark = [pytest.mark.faults]
MOST_SECONDS = 30.0
# A machine that is back takes its part again before the next one is killed.
WHOLE_SECONDS = 120.0


@pytest.fixture
def machines(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Machines]:
    """Their servers; a test that is `long` makes the cluster of PostgreSQL anew, by Patroni."""
    assert not missing(), f"{', '.join(missing())}: make failover"
    found = Machines(tmp_path)
    try:
        if request.node.get_closest_marker("long") is None:
            found.cluster_take()
        found.start()
        yield found
    finally:
        found.close()


class Killing:
    """Kills one thing after the other under load, and measures until decisions go on."""

    def __init__(self, machines: Machines, portal: Portal, crowd: Crowd) -> None:
        self.machines, self.portal, self.crowd = machines, portal, crowd
        self.seconds: dict[str, float] = {}
        self.started: dict[str, float] = {}

    def kill(self, what: str, machine: int, *names: str) -> None:
        """Kills these programs, waits for the next decision and starts them again."""
        self._measure(what, lambda: self.machines.kill(machine, *names))
        self.portal.start_again(machine, [*names])
        self._whole()

    def postgres(self) -> None:
        """Kills the primary PostgreSQL alone."""
        self._measure("PostgreSQL", lambda: self.machines.postgres_kill(self.machines.leader()))
        self._whole()

    def machine(self, machine: int) -> None:
        """Kills all that runs on a machine, and starts it again."""
        names: list[str] = []
        self._measure(f"machine {machine}", lambda: names.extend(self.machines.kill_machine(machine)))
        self.portal.start_again(machine, names)
        self._whole()

    def _measure(self, what: str, kill: Callable[[], object]) -> None:
        # Somebody books now and then: the moment is not that of an answer.
        wait_until(self.crowd.is_served, seconds=60)
        kill()
        began = time.monotonic()
        wait_until(lambda: self.crowd.decided_since(began) is not None, seconds=120)
        self.seconds[what] = round(self.crowd.decided_since(began) or 0.0, 1)
        if self.crowd.runs:
            wait_until(lambda: self.crowd.active_since(began) is not None, seconds=120)
            self.started[what] = round(self.crowd.active_since(began) or 0.0, 1)
        print(what, self.seconds[what], self.started.get(what), flush=True)  # noqa: T201 (a long run)

    def _whole(self) -> None:
        wait_until(lambda: self.machines.leader() != 0, seconds=WHOLE_SECONDS, every=0.5)
        wait_until(lambda: self.machines.standby() is not None, seconds=WHOLE_SECONDS, every=0.5)
        for name in ("valkey", "valkey-agents"):
            wait_until(lambda: self.machines.replicas(name) == 1, seconds=WHOLE_SECONDS, every=0.5)  # noqa: B023


def results_check(portal: Portal, crowd: Crowd, killing: Killing) -> None:
    """Nothing lost, nothing twice, and each decision in time."""
    stored, seconds = portal.stored(), killing.seconds
    names = Counter(name for name, _ in stored)
    numbers = {number for _, number in stored}
    answered = [each for each in crowd.requests if each.number]
    lost = [each.number for each in answered if int(each.number.removeprefix("BK-")) not in numbers]
    undecided = [each.number for each in answered if not each.decided]
    refused = Counter(each.refused for each in crowd.requests if each.refused)
    figures = {
        "seconds until the next decision": seconds,
        "seconds until the next start": killing.started,
        "requests": len(crowd.requests),
        "answered": len(answered),
        "lost": len(lost),
        "twice": sum(count > 1 for count in names.values()),
        "undecided": len(undecided),
        "refused": dict(refused),
        "attempts that failed": dict(crowd.errors),
    }
    print(json.dumps(figures, indent=1))  # noqa: T201 (figures for docs/benchmarks/kills.md)
    assert (lost, undecided, dict(refused)) == ([], [], {}), figures
    assert set(names.values()) == {1}, figures
    assert names.keys() == {each.name for each in answered}, figures
    assert max(seconds.values()) < MOST_SECONDS, figures
    portal.invariants()


@pytest.mark.turn
def test_decisions_go_on_without_the_first_machine(machines: Machines, tmp_path: Path) -> None:
    """The machine with the primaries dies while people book."""
    portal = Portal(machines, tmp_path, ("web", "solver", "beat"))
    with Crowd(portal.webs, portal.token, BODY, rate=2) as crowd:
        killing = Killing(machines, portal, crowd)
        killing.kill("Valkey", machines.primary("valkey"), "valkey")
        killing.machine(machines.leader())
    results_check(portal, crowd, killing)


PROGRAMS = ("web", "operators", "worker", "solver", "beat", "reader", "sender")


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_all_that_can_die_dies_under_eight_bookings_a_second(machines: Machines, tmp_path: Path) -> None:
    """Each server, each machine and each program."""
    portal = Portal(machines, tmp_path, PROGRAMS)
    portal.agent_start()
    with Crowd(portal.webs, portal.token, BODY, rate=8, runs=16) as crowd:
        killing = Killing(machines, portal, crowd)
        # The node has enrolled.
        wait_until(lambda: crowd.active_since(0.0) is not None, seconds=120)
        for name in ("valkey", "valkey-agents"):
            killing.kill(name, machines.primary(name), name)
        killing.postgres()
        # The leader's, and then that of its successor.
        killing.machine(machines.leader())
        killing.machine(machines.leader())
        killing.machine(3)
        killing.kill("Patroni", machines.leader(), "patroni")
        for name in ("etcd", "sentinel"):
            killing.kill(name, 3, name)
        for name in PROGRAMS:
            killing.kill(name, 1, name)
    results_check(portal, crowd, killing)
