"""A pool: Slurm chooses nodes as it likes, and what fits a slot fits the node that it chooses."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from agent.ports.gpu import RetryLater
from agent.slurm.cluster import View
from agent.slurm.commands import SlurmCommands
from agent.slurm.parse import Job, SlurmNode
from agent.slurm.pool import Chosen, OneNode, PoolSlot, SlurmPool, job_prefix

GPUS = 4
OUTSIDE = "n9"


@dataclass
class FakeSlurm:
    """Nodes with jobs, the first ones in the reservation; it starts what waits on any node that is allowed
    and has room, as with FLEX."""

    chance: random.Random
    names: tuple[str, ...]
    jobs: dict[int, Job] = field(default_factory=dict)
    excluded: dict[int, tuple[str, ...]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    reservation: str = "portal"
    numbers: int = 0

    @property
    def commands(self) -> SlurmCommands:
        return SlurmCommands(self.reservation)

    def used(self, name: str) -> int:
        return sum(job.gpus or 0 for job in self.jobs.values() if name in job.nodes and not job.is_waiting)

    def view(self) -> View:
        nodes = {
            name: SlurmNode(
                name,
                frozenset({"DRAIN"} if name in self.closed else {"IDLE"}),
                "",
                ("h100",) * GPUS,
                self.used(name),
                16,
                64_000,
                "",
            )
            for name in (*self.names, OUTSIDE)
        }
        return View(dict(self.jobs), nodes, frozenset(self.names))

    def submit(self, name: str, gpus: int, chosen: Chosen) -> int:
        self.numbers += 1
        nodes = frozenset({chosen.node} if chosen.node else ())
        self.excluded[self.numbers] = chosen.excluded
        self.jobs[self.numbers] = Job(
            self.numbers, "PENDING", "games", nodes, self.reservation, gpus, None, "", "Priority", name
        )
        return self.numbers

    def start(self, number: int) -> bool:
        """Starts a job where it can; False: nowhere."""
        job = self.jobs[number]
        wanted = job.nodes or {*self.names, OUTSIDE} - set(self.excluded[number])
        free = [n for n in sorted(wanted - self.closed) if GPUS - self.used(n) >= (job.gpus or 0)]
        if free:
            self.jobs[number] = replace(job, state="RUNNING", nodes=frozenset({self.chance.choice(free)}))
        return bool(free)


class Game:
    """Bookings that begin and end on the slots of a pool."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 (a game)
        self.slurm = FakeSlurm(self.chance, tuple(f"n{n}" for n in range(self.chance.randint(2, 5))))
        self.pool = SlurmPool(self.slurm)  # type: ignore[arg-type]
        self.slots, self.of, self.elsewhere = self.pool.slots(self.slurm.view()), dict[int, str](), 0
        for slot in self.slots:
            self.pool.add(slot, partial(self.numbers, slot))

    def numbers(self, slot: str) -> list[int]:
        return [number for number, each in self.of.items() if each == slot]

    def step(self) -> None:
        hosts = self.pool.hosts(self.slurm.view())
        assert sorted(hosts) == sorted(self.slots)
        assert sorted(hosts.values()) == sorted(self.slurm.names)
        if self.of and self.chance.random() < 0.4:
            gone = self.chance.choice(list(self.of))
            del self.slurm.jobs[gone], self.of[gone]
            return
        slot = self.chance.choice(self.slots)
        left = GPUS - sum(self.slurm.jobs[number].gpus or 0 for number in self.numbers(slot))
        if left:
            self.book(slot, self.chance.randint(1, left), hosts)

    def book(self, slot: str, gpus: int, hosts: Mapping[str, str]) -> None:
        chosen = self.pool.chosen(slot, self.slurm.view())
        # People may rename their jobs.
        name = self.chance.choice((f"{job_prefix(slot)}BK-1", "my job"))
        number = self.slurm.submit(name, gpus, chosen)
        self.of[number] = slot
        if not self.slurm.jobs[number].nodes:
            view = self.slurm.view()
            for other in set(self.slots) - self.pool.bound(view).keys():
                with pytest.raises(RetryLater, match=f"first chooses a node for its job {number}"):
                    self.pool.chosen(other, view)
        assert self.slurm.start(number)
        self.elsewhere += self.slurm.jobs[number].nodes != {hosts[slot]}


def test_what_fits_a_slot_starts_at_once_wherever_slurm_likes() -> None:
    elsewhere = 0
    for seed in range(150):
        game = Game(seed)
        for _ in range(80):
            game.step()
        elsewhere += game.elsewhere
    assert elsewhere > 300


def test_a_killed_engine_knows_slots_by_the_names_of_jobs() -> None:
    slurm = FakeSlurm(random.Random(1), ("n1", "n2"))  # noqa: S311 (a game)
    number = slurm.submit(f"{job_prefix('portal-1')}BK-1", 2, Chosen("", ("n1", OUTSIDE)))
    assert slurm.start(number)
    found = SlurmPool(slurm)  # type: ignore[arg-type]
    assert found.hosts(slurm.view()) == {"portal-1": "n2", "portal-2": "n1"}
    assert found.chosen("portal-1", slurm.view()) == Chosen("n2")
    assert found.chosen("portal-2", slurm.view()) == Chosen("", ("n2", OUTSIDE))


def test_work_of_others_and_closed_nodes_go_to_the_last_slots_without_work() -> None:
    slurm = FakeSlurm(random.Random(1), ("n1", "n2", "n3"))  # noqa: S311 (a game)
    slurm.submit("of others", 3, Chosen("n1"))
    slurm.start(1)
    slurm.jobs[1] = replace(slurm.jobs[1], reservation="")
    slurm.closed.add("n2")
    pool = SlurmPool(slurm)  # type: ignore[arg-type]
    assert pool.hosts(slurm.view()) == {"portal-1": "n3", "portal-2": "n1", "portal-3": "n2"}
    # One GPU fits both; four fit only where all are free.
    assert pool.chosen("portal-1", slurm.view()) == Chosen("", ("n1", "n2", OUTSIDE))
    assert pool.chosen("portal-2", slurm.view()) == Chosen("", ("n2", OUTSIDE))
    assert pool.chosen("portal-3", slurm.view()) == Chosen("n2")
    slot = PoolSlot(pool, "portal-4")
    assert slot.refusal(slurm.view()) == "Slurm's reservation portal has no node left for it"
    with pytest.raises(RetryLater, match="no node of Slurm's reservation portal is left"):
        pool.chosen("portal-4", slurm.view())


def test_nodes_that_differ_are_no_pool_and_a_node_alone_is_itself() -> None:
    slurm = FakeSlurm(random.Random(1), ("n1", "n2"))  # noqa: S311 (a game)
    view = slurm.view()
    other = replace(view, nodes={**view.nodes, "n2": replace(view.nodes["n2"], types=("a100",) * GPUS)})
    with pytest.raises(ValueError, match="they are no pool: use --granularity node"):
        SlurmPool(slurm).slots(other)  # type: ignore[arg-type]
    place = OneNode("n1", "portal")
    assert (place.host(view), place.refusal(view)) == ("n1", None)
    assert place.refusal(replace(view, reserved=frozenset())) == "n1 is not in Slurm's reservation portal"
    with place.choosing() as chosen:
        assert chosen == Chosen("n1")
