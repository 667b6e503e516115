"""Operators in a world of its own, and faults in orders and idleness that the oracle finds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest

from solver import Policy, Snapshot, Waiting
from solver.model.plan import IdleRelease
from solver.reasons.reason import reason
from tests.solver.builders import HOUR, NOON, a_limit, an_ask, gpus
from tests.solver.claims.story import TIERS, asks
from tests.worlds.draw import Drawn, Event
from tests.worlds.jobs import Job
from tests.worlds.life import Turn, World
from tests.worlds.operations import Idleness, Look, Operations, OrderedPause
from tests.worlds.operator_checks import (
    OperatorChecks,
    carried_out,
    next_to_orders,
    out_of_service,
    released,
    without_the_idle,
)
from tests.worlds.oracle import Oracle

POLICY = Policy(1)
LIMITS = (a_limit("a", 0, borrow=None), a_limit("b", 1, borrow=None))


def half(name: str, at: int, really: float) -> Job:
    """Half of a GPU for eight hours, which may be paused and ends earlier."""
    job = asks(name, "a", "flex", 8, at=at)
    ask = an_ask(1, profile="3g.40gb")
    return replace(job, ask=ask, really=int(really * HOUR))


def a_world(operations: Operations, *events: Event, jobs: tuple[Job, ...] = ()) -> World:
    """Two GPUs in halves: after two hours a half of each is free, and somebody waits for both."""
    halves = [half(f"half{n}", n, 2 if n in (0, 1) else 8) for n in range(4)]
    whole = asks("whole", "b", "spot", 3, at=int(2.1 * HOUR))
    drawn = Drawn(
        POLICY,
        gpus(2),
        (),
        tuple(TIERS.values()),
        LIMITS,
        jobs or (*halves, whole),
        events,
        is_plain=False,
        operations=operations,
    )
    return World.of_drawn(drawn)


def lived(world: World, until: Callable[[Turn], bool]) -> tuple[Turn, Oracle]:
    """The first such turn; the oracle has found nothing by then, nor in three hours more."""
    oracle, found = Oracle(world), None
    for turn in world.turns():
        oracle.look(turn)
        if found is None and until(turn):
            found = turn
        if found is not None and turn.site.now > found.site.now + 3 * HOUR:
            break
    assert oracle.found.violations == oracle.found.later == oracle.found.rings == []
    assert found is not None
    return found, oracle


def test_an_ordered_move_lands_where_it_was_ordered() -> None:
    world = a_world(Operations(looks=(Look(NOON + 8_000, 20, is_made_up=True),)))
    turn, _ = lived(world, lambda turn: bool(turn.plan.orders))
    (order,), plan = turn.site.orders, turn.plan
    assert plan.orders[0].reasons == ()
    checks = OperatorChecks(world)
    assert list(checks._ordered(turn.site, plan)) == []
    landings = dict(checks._landings)
    late = replace(plan.assigns[0], starts=plan.assigns[0].starts + 60)
    assert list(carried_out(order, replace(plan, assigns=(late,)), landings)) != []
    assert list(carried_out(order, replace(plan, pauses=()), landings)) != []
    assert list(next_to_orders(turn.site, plan, POLICY)) == []
    # Whoever was moved is somewhere else by the second of the order.
    world.now = landings[order.beneficiary].at
    world.ended.clear()
    world.rows = []
    assert any("was ordered to" in each for each in checks._landed(replace(turn)))
    stale = replace(plan.orders[0], reasons=(reason("order_stale", problem="moved"),))
    assert list(next_to_orders(turn.site, replace(plan, orders=(stale,)), POLICY)) != []


def with_idle(action: Literal["end", "pause"]) -> World:
    """Two bookings that are idle at the same time, one of them never paused; one that waits."""
    jobs = (
        asks("first", "a", "flex", 6),
        asks("second", "b", "std", 6),
        asks("waits", "b", "flex", 2, at=60),
    )
    idle = {"first": Idleness(600, action, 1, 600), "second": Idleness(600, "end", 1, 600)}
    return a_world(Operations(idle=idle), jobs=jobs)


@pytest.mark.parametrize("action", ["end", "pause"])
def test_idle_work_leaves_for_who_waits_and_faults_in_it_are_found(
    action: Literal["end", "pause"],
) -> None:
    world = with_idle(action)
    turn, _ = lived(world, lambda turn: bool(turn.plan.idle))
    assert world.started["waits"] == pytest.approx(turn.site.now, abs=200)
    site, plan = turn.site, turn.plan
    (taken,) = plan.idle
    assert (list(released(site, plan)), list(without_the_idle(site, plan, POLICY))) == ([], [])

    def found(site: Snapshot, *idle: IdleRelease, waits: tuple[Waiting, ...] = plan.waits) -> str:
        now = replace(plan, idle=idle, waits=waits)
        return "; ".join((*released(site, now), *without_the_idle(site, now, POLICY)))

    early = tuple(replace(each, veto_until=site.now + 1) for each in site.idle)
    assert "may still answer" in found(replace(site, idle=early), taken)
    assert "does not wait" in found(site, replace(taken, beneficiary="nobody"))
    assert "starts as early" in found(site, replace(taken, starts=NOON + 9 * HOUR))
    assert "does not start" in found(site, replace(taken, starts=taken.starts - 1))
    both = [replace(taken, booking=each.booking, gpus=each.gpus) for each in site.idle]
    assert "nobody gains by it" in found(site, *both)
    assert "would start earlier" in found(site)
    assert "change the plan" in found(site, taken, waits=())


def test_a_lifted_pause_is_withdrawn_and_hardware_out_of_service_gets_no_work() -> None:
    pauses = (OrderedPause("half1", 700, 20), OrderedPause("half3", 700, 4_000))
    events = (Event(NOON + 900, "drain", node="n1-1"), Event(NOON + 9_000, "in service", node="n1"))
    world = a_world(Operations(pauses=pauses), *events)
    turn, _ = lived(world, lambda turn: "half1" in turn.plan.withdrawn)
    assert world.runs["half1"].pauses == 0
    assert world.runs["half3"].pauses >= 1
    drained = tuple(replace(gpu, usable=False) for gpu in turn.site.gpus)
    later = Waiting("whole", "h100", (world.rows[0].place,), NOON, NOON + HOUR, (), None)
    found = out_of_service(replace(turn.site, gpus=drained), replace(turn.plan, waits=(later,)))
    assert any("out of service" in each for each in found)
