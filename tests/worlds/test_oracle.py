"""The oracle's own definitions by worked examples, and faults that it must find."""

from dataclasses import replace

import pytest

from solver import Held, Pause, Place, Plan, PlannedStart, Waiting
from solver.model.inner_limits import PersonLimits
from solver.preemption.victim_rules import VictimRules
from solver.quota import quota
from solver.quota.gpu_hour_caps import GpuHourCaps
from solver.quota.tier_parts import TierParts
from solver.quota.tree import Tree
from solver.reasons.reason import reason
from tests.solver.builders import NOON, a_limit
from tests.solver.standing import Block
from tests.worlds.__main__ import world_check
from tests.worlds.life import Turn, World
from tests.worlds.messages import Messages
from tests.worlds.oracle import EMPTY, Oracle
from tests.worlds.planned import planned_look

PLAIN = 48
"""A large world of whole GPUs."""
SHARING = (78, 66)
"""Worlds in which tenants borrow from each other."""
IN_TIME = (1013, 1186, 369, 5014, 20039, 941038)
"""Worlds with a resume that is planned while its pause is under way, with a pause that is right
because of what starts later, with a booking at risk that gets a start after all, with a start that
is later because of a resume, with a limit of nothing after an exception ends, and with a claim that
waits for GPUs inside the part of a guarantee that is for its tier."""
FAILING = 79
"""A world in which a GPU fails and returns."""
MIXED = 67
"""A world with bookings of two classes."""
GPU = 56_000
STD, FLEX, LOW = (50, True), (40, False), (20, False)


def an_oracle(*limits: object) -> Oracle:
    """An oracle of a plain world with these limits."""
    world = World.of(PLAIN)
    world.limits = limits  # type: ignore[assignment]
    return Oracle(world)


def a_block(
    name: str, granted: int, level: tuple[int, bool] = FLEX, *, project: str = "a-p", gpus: int = 1
) -> Block:
    """Whole GPUs of tenant `a` in place."""
    return Block(name, "a", project, "h100", gpus * GPU, level, granted, counts=True)


def test_equals_are_inside_in_the_order_of_their_grants_and_not_of_their_names() -> None:
    oracle = an_oracle(a_limit("a", 1))
    assert set(oracle.inside([a_block("x", 2), a_block("y", 1)])) == {"y"}


def test_a_gang_that_does_not_fit_the_rest_of_the_guarantee_is_borrowed_as_a_whole() -> None:
    oracle = an_oracle(a_limit("a", 4))
    assert set(oracle.inside([a_block("gang", 1, gpus=8), a_block("one", 2)])) == {"one"}


def test_a_higher_level_is_inside_before_a_lower_one_that_was_granted_earlier() -> None:
    oracle = an_oracle(a_limit("a", 1))
    assert set(oracle.inside([a_block("low", 1, LOW), a_block("own", 2, FLEX)])) == {"own"}


def test_a_projects_own_part_goes_before_what_other_projects_have_of_it() -> None:
    oracle = an_oracle(a_limit("a", 2), a_limit("a-p", 1, parent="a"), a_limit("a-q", 1, parent="a"))
    mine = [a_block("p1", 1), a_block("p2", 2), a_block("q1", 3, project="a-q")]
    assert oracle.inside(mine[:2]) == {"p1": True, "p2": False}
    assert oracle.inside(mine) == {"p1": True, "q1": True}


def test_a_pause_for_more_of_the_same_organisation_raises_nothing() -> None:
    oracle = an_oracle(a_limit("a", 0, borrow=None), a_limit("b", 0, borrow=None))
    mine = [a_block("a1", 1), a_block("a2", 2)]
    other = replace(a_block("b1", 3), tenant="b")
    apart = oracle.potential([mine[0], other], "h100")
    assert apart > oracle.potential(mine, "h100")
    assert oracle.potential([other, replace(other, name="b2")], "h100") < apart


def test_what_is_inside_is_worth_more_than_any_fairness() -> None:
    oracle = an_oracle(a_limit("a", 1), a_limit("b", 0, borrow=None))
    others = [replace(a_block(f"b{n}", n), tenant="b") for n in range(3)]
    inside = oracle.potential([a_block("a1", 9)], "h100")
    assert inside > oracle.potential(others, "h100")


@pytest.mark.turn
@pytest.mark.parametrize("seed", IN_TIME)
def test_only_what_is_in_place_in_time_decides(seed: int) -> None:
    found = world_check(seed)[1]
    assert (found.violations, found.rings, found.inside_guarantee, found.later) == ([], [], [], [])


def test_a_booking_that_is_lost_is_found() -> None:
    world = World.of(PLAIN)
    a_turn_of(world)
    oracle, lost = Oracle(world), world.rows[0].booking
    world.rows = [row for row in world.rows if row.booking != lost]
    assert f"{lost} was never served" in oracle.end().violations


def a_turn_of(world: World) -> Turn:
    """The first turn after which two different bookings are in place."""
    for turn in world.turns():
        if len({row.booking for row in world.rows if row.started}) > 1:
            return turn
    raise AssertionError


def test_one_slot_given_twice_is_found() -> None:
    world = World.of(PLAIN)
    turn = a_turn_of(world)
    oracle = Oracle(world)
    one, other = world.rows[:2]
    world.rows[1] = replace(other, place=one.place, starts=one.starts, ends=one.ends)
    oracle.look(turn)
    assert any("one slot" in each for each in oracle.found.violations)


def test_work_that_is_put_back_with_nothing_from_outside_is_a_ring() -> None:
    world = World.of(PLAIN)
    turn = a_turn_of(world)
    quiet = replace_turn(turn)
    oracle, rows = Oracle(world), list(world.rows)
    assert list(oracle._rings(quiet)) == []
    assert list(oracle._rings(quiet)) == [], "nothing has changed"
    world.rows = [row for row in rows if row.booking != rows[0].booking]
    assert list(oracle._rings(quiet)) == []
    world.rows = rows
    assert len(list(oracle._rings(quiet))) == 1


def replace_turn(turn: Turn, **changes: object) -> Turn:
    """The same turn with another plan and nothing from outside."""
    return Turn(turn.site, replace(turn.plan, **changes), frozenset())  # type: ignore[arg-type]


def test_what_is_inside_a_guarantee_and_paused_for_another_tenant_is_found() -> None:
    world = World.of(PLAIN)
    turn = a_turn_of(world)
    running = [row for row in turn.site.held if row.started] or world.rows
    victim = running[0]
    world.limits = (a_limit(victim.tenant, 8),)
    others = [name for name, run in world.runs.items() if run.job.tenant != victim.tenant]
    site = replace(turn.site, held=tuple(counted(world, running)))
    pause = Pause(victim.booking, others[0], NOON, 0, ())
    plan = Plan((), (), (), (), pauses=(pause,))
    assert list(Oracle(world)._inside(Turn(site, plan, frozenset()))) != []


def test_a_pause_above_the_maximum_of_the_tier_is_found() -> None:
    world = World.of(PLAIN)
    turn = a_turn_of(world)
    victim = next(row for row in world.rows if row.started)
    other = next(name for name in world.runs if name != victim.booking)
    pause = Pause(victim.booking, other, NOON, 0, ())
    site = replace(turn.site, held=tuple(counted(world, [victim])))
    late, oracle = Turn(site, Plan((), (), (), (), pauses=(pause,)), frozenset()), Oracle(world)
    tier = world.runs[victim.booking].job.tier
    oracle.tiers[tier.slug] = replace(tier, pauses=1)
    for pauses, is_found in ((1, False), (2, True)):
        world.runs[victim.booking].pauses = pauses
        assert any("more often" in each for each in oracle._inside(late)) is is_found


def test_gpus_fail_and_return_in_some_worlds() -> None:
    world = World.of(FAILING)
    kinds = {kind for turn in world.turns() for kind in turn.outside}
    assert {"failure", "repair"} <= kinds
    assert world.broken == set()


def counted(world: World, rows: list[Held]) -> list[Held]:
    """The rows in a tier that counts."""
    for row in rows:
        world.runs[row.booking].granted = 1
    return [replace(row, tier="flex", pausing=False) for row in rows]


@pytest.mark.turn
def test_a_rule_that_is_not_looked_at_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the comparison of shares the potential drops pauses, which the oracle reports."""
    monkeypatch.setattr(VictimRules, "_is_poorer", lambda *_: True)
    assert any("dropped" in each for seed in SHARING for each in world_check(seed)[1].violations)


@pytest.mark.turn
@pytest.mark.parametrize(
    ("seed", "target", "name", "fault"),
    [
        (104, PersonLimits, "owners", lambda _self, owners, _account: owners),
        (166, quota, "with_labs", lambda rows, _labs: list(rows)),
        (11, TierParts, "key", lambda *_: None),
        (166, Tree, "_raise_caps", lambda _self, _raised: None),
        (98, GpuHourCaps, "over", lambda *_: None),
        (98, GpuHourCaps, "allows", lambda *_: None),
    ],
    ids=["persons", "labs", "tiers", "at some times", "GPU-hours of a window", "GPU-hours"],
)
def test_a_limit_that_is_not_looked_at_is_found(
    seed: int, target: object, name: str, fault: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, name, fault)
    found = "; ".join(world_check(seed)[1].violations)
    assert "over its limit" in found or "over the cap" in found


def test_a_start_made_later_without_a_cause_from_outside_is_found() -> None:
    world = World.of(PLAIN)
    for turn in world.turns():
        wait = next((each for each in turn.plan.waits if each.places), None)
        if wait is not None and any(r.booking == wait.booking for r in turn.site.requests):
            break
    assert wait is not None
    before = PlannedStart(wait.starts - 600, wait.ends - 600, wait.places, "expected")
    requests = tuple(
        replace(row, planned=before if row.booking == wait.booking else None) for row in turn.site.requests
    )
    site = replace(turn.site, requests=requests, now=turn.site.now - 600)
    late = Turn(site, turn.plan, frozenset())
    assert any(wait.booking in each for each in Oracle(world)._later(late))


def test_a_cut_of_limits_is_a_true_reason_in_its_own_turn_only() -> None:
    world = World.of(PLAIN)
    for turn in world.turns():
        wait = next((each for each in turn.plan.waits if each.places), None)
        if wait is not None:
            break
    assert wait is not None
    request = next(row for row in turn.site.requests if row.booking == wait.booking)
    before = PlannedStart(wait.starts - 600, wait.ends - 600, wait.places, "expected")
    site = replace(turn.site, requests=(replace(request, planned=before),), now=NOON)
    late = replace(wait, starts=wait.starts + 600, delayed_by=reason("quota_cut"))
    plan, oracle = replace(turn.plan, waits=(late,)), Oracle(world)
    assert list(oracle._later(Turn(site, plan, frozenset({"limits"})))) == []
    assert any("did not happen" in each for each in oracle._later(Turn(site, plan, frozenset())))


def test_planned_starts_in_one_place_or_over_a_limit_are_found() -> None:
    world = World.of(PLAIN)
    for turn in world.turns():
        wait = next((each for each in turn.plan.waits if each.strength == "guaranteed"), None)
        row = next((each for each in world.rows if not each.started), None)
        if wait is not None and row is not None:
            break
    assert wait is not None
    assert row is not None

    def found(turn: Turn) -> list[str]:
        return list(planned_look(world, turn, is_cut=False))

    assert found(turn) == []
    late = replace(wait, places=(row.place,), starts=row.starts, ends=row.ends)
    assert any("is planned where" in each for each in found(replace_turn(turn, waits=(late,))))
    tenant = world.runs[wait.booking].job.tenant
    site = replace(turn.site, limits=(a_limit(tenant, 0, borrow=0),))
    alone = replace(turn.plan, waits=(replace(wait, reasons=()),))
    assert any("over the limit" in each for each in found(Turn(site, alone, frozenset())))


def test_a_start_is_told_once_when_it_leaves_the_announced_range() -> None:
    place = Place("g", None, 0, 8)

    def notified(*hours: float) -> int:
        messages = Messages()
        for at, each in enumerate(hours):
            starts = NOON + int(each * 3_600)
            wait = Waiting("b", "h100", (place,), starts, starts + 3_600, (), None, "expected")
            site = replace(World.of(PLAIN).snapshot(), now=NOON + at)
            messages.read(Turn(site, replace(EMPTY, waits=(wait,)), frozenset()))
        return sum(messages.later.values())

    assert notified(8, 10, 9, 8) == 0, "in the range of two hours"
    assert notified(8, 10 + 1 / 60) == 0, "a minute late is on time"
    assert notified(8, 11, 12, 13) == 1, "the new range is what was announced then"
    assert notified(8, 11, 8, 11) == 2


def test_a_mixed_booking_without_one_of_its_groups_is_found() -> None:
    world = World.of(MIXED)
    mixed = {job.name for job in world.drawn.jobs if job.ask.groups}
    turn, name = next(
        (turn, row.booking) for turn in world.turns() for row in world.rows if row.booking in mixed
    )
    assert [each for each in Oracle(world)._hardware(turn) if name in each] == []
    rows = world.rows_of(name)
    world.rows = [row for row in world.rows if row.id != rows[-1].id]
    assert any(f"{name} has" in each for each in Oracle(world)._hardware(turn))
