"""What is kept of earlier looks at a class, and who has shares, against the slow way."""

from dataclasses import replace
from random import Random

import numpy as np

from solver.fleet.pool import pools_of
from solver.model.demand import demands_of
from solver.model.ordering import in_order
from solver.state.cycle_state import CycleState
from solver.timeline.share_calendar import ShareCalendar
from tests.solver.builders import (
    H100,
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_request,
    a_share,
    a_snapshot,
    an_ask,
    gpus,
    shared,
    whole,
)
from tests.solver.pausing import a_site, running
from tests.solver.timeline.test_shares import TWO_HOSTS, with_cores

OWNERS = ("ann", "bob", "eve")


def test_what_was_looked_at_before_changes_no_decision() -> None:
    chance = Random(3)  # noqa: S311  a made-up line
    shapes = (
        an_ask(),
        a_share(470, cores=4_000),
        an_ask(profile="2g.20gb"),
        a_share(200),
        with_cores(an_ask(2), 3_000),
    )
    running_requests = [
        replace(
            a_request(f"b{n:02}", chance.choice(shapes), hours=chance.randint(1, 3)),
            owner=chance.choice(OWNERS),
        )
        for n in range(40)
    ]
    site = in_order(a_snapshot(*running_requests, fleet=gpus(8), hosts=TWO_HOSTS))
    asked, curious = CycleState(site, POLICY), CycleState(site, POLICY)
    placed = []
    for request in running_requests:
        starts = NOON + HOUR * chance.randrange(3)
        for other in running_requests[::4]:
            curious.first_at(demands_of(other), NOON + HOUR * chance.randrange(3))
        found = asked.first_at(demands_of(request), starts)
        assert curious.first_at(demands_of(request), starts) == found
        if found is not None:
            placed.append(found)
            asked.reserve(found)
            curious.reserve(found)
        elif placed:
            gone = placed.pop(chance.randrange(len(placed)))
            asked.free(gone)
            curious.free(gone)
    assert len(placed) > 5


def test_a_class_is_looked_at_once_until_something_changes() -> None:
    site = a_snapshot(a_request("a"), fleet=gpus(2))
    space = CycleState(in_order(site), POLICY)
    whole, part = (demands_of(a_request("a", ask))[0] for ask in (an_ask(), a_share(500)))
    first = space.windows.pool_state(whole, NOON)
    assert space.windows.pool_state(part, NOON) is not first
    assert space.windows.pool_state(whole, NOON) is first
    space.all.gpus["h100"].put([shared("n1-0", 500)], NOON, NOON + HOUR)
    assert space.windows.pool_state(whole, NOON) is not first


def test_lasting_work_of_all_classes_counts_on_the_hosts_of_the_firm_layer() -> None:
    """The class that is loaded first has nobody who may be paused."""
    first, second = gpus(2)
    fleet = (replace(first, gpu_class="a100"), second)
    stays = replace(a_held("n1-0", booking="stays"), cores=10_000)
    leaves = [replace(row, cores=20_000) for row in running("leaves", whole("n1-1"))]
    site = a_site(held=(stays, *leaves), fleet=fleet, hosts=TWO_HOSTS[:1])
    state = CycleState(in_order(site), POLICY)
    window = (NOON, NOON + HOUR)
    assert state.running.classes == ("h100",)
    assert state.all.hosts.least("n1", window)[0] == 34_000
    assert state.firm.hosts.least("n1", window)[0] == 54_000


def test_who_shares_is_told_as_by_asking_every_share_in_turn() -> None:
    chance = Random(7)  # noqa: S311  made-up shares
    pools = pools_of((*gpus(3), *gpus(2, "a100", "h100-80gb", node="n2")), [H100])
    sharers = ShareCalendar(pools.values(), alone=True)
    rows: list[tuple[str, str, str, tuple[int, int]]] = []
    names = [(name, gpu.id) for name, pool in pools.items() for gpu in pool.gpus]
    for _ in range(150):
        if rows and chance.random() < 0.45:
            _, gpu, owner, window = rows.pop(chance.randrange(len(rows)))
            sharers.add([shared(gpu, 100)], owner, window, -1)
        else:
            begin = chance.randrange(9)
            row = (*chance.choice(names), chance.choice(OWNERS), (begin, begin + 3))
            sharers.add([shared(row[1], 100)], row[2], row[3])
            rows.append(row)
        owner, starts = chance.choice(OWNERS), np.array([0, 4, 9])
        for notices in (sharers, sharers.copy()):
            for name, pool in pools.items():
                found = notices.others(pool, owner, (starts, 2))
                slow = [
                    [
                        any(
                            gpu.id == on and owner != whose and since < at + 2 and at < until
                            for _, on, whose, (since, until) in rows
                        )
                        for gpu in pool.gpus
                    ]
                    for at in (0, 4, 9)
                ]
                assert found.tolist() == slow, name
        place = [shared("n1-0", 100)]
        column = pools["h100"].column["n1-0"]
        others = sharers.others(pools["h100"], owner, (starts, 2))[1, column]
        assert sharers.is_free(place, owner, (4, 6)) == (not others)
