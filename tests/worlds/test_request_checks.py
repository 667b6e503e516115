"""Faults in what becomes of changes, approvals and offers, which the oracle of the worlds finds."""

from dataclasses import replace
from typing import Any

import pytest

from solver import Pause, Plan, Policy, Snapshot, Waiting, solve
from solver.model.plan import ChangeAnswer
from solver.reasons.reason import reason
from tests.solver.builders import HOUR, NOON, a_limit, gpus
from tests.solver.claims.story import TIERS, asks
from tests.worlds import request_checks
from tests.worlds.draw import Drawn
from tests.worlds.life import Turn, World
from tests.worlds.people import Weakened
from tests.worlds.request_checks import RequestChecks
from tests.worlds.requests import Edit, Listed, Requests

LISTED = Listed("offer", ((3 * HOUR, 5 * HOUR),), (("none", 60),))
REQUESTS = Requests(
    edits=(
        Edit("mine", 120, "longer", is_bound=False),
        Edit("less", 120, "shorter", is_bound=False),
    ),
    approvals={"pending": (HOUR, True)},
    listed={"listed": LISTED},
)
JOBS = (
    *(asks(f"first{n}", "b", "std", 1) for n in range(2)),
    asks("mine", "a", "flex", 1, at=60),
    asks("less", "a", "flex", 1, at=60, earliest=3 * HOUR),
    asks("pending", "a", "flex", 1, at=60),
    asks("listed", "b", "flex", 2, at=60, owner="eve"),
)
LIMITS = (a_limit("a", 2, borrow=None), a_limit("b", 2, borrow=None))


def a_turn(seconds: int) -> tuple[World, Turn]:
    """Two GPUs that are busy for an hour: a change, an approval, and an entry of the list."""
    drawn = Drawn(
        Policy(1),
        gpus(2),
        (),
        tuple(TIERS.values()),
        LIMITS,
        JOBS,
        (),
        is_plain=False,
        requests=REQUESTS,
    )
    world = World.of_drawn(drawn)
    for turn in world.turns():
        if turn.site.now >= NOON + seconds:
            return world, turn
    raise AssertionError


def planted(world: World, turn: Turn, **changes: Any) -> str:  # noqa: ANN401
    """What the oracle says of the turn with this in its plan."""
    plan = replace(turn.plan, **changes)
    return "; ".join(RequestChecks(world).look(replace(turn, plan=plan)))


def waits_with(turn: Turn, name: str, **changes: Any) -> tuple[Waiting, ...]:  # noqa: ANN401
    """The planned starts, one of them changed."""
    rows = turn.plan.waits
    return tuple(replace(row, **changes) if row.booking == name else row for row in rows)


def later(turn: Turn, name: str, **changes: Any) -> tuple[Waiting, ...]:  # noqa: ANN401
    """The planned starts, one of them ten minutes later."""
    row = next(row for row in turn.plan.waits if row.booking == name)
    return waits_with(turn, name, starts=row.starts + 600, ends=row.ends + 600, **changes)


@pytest.mark.parametrize("seconds", [60, 120])
def test_without_a_fault_nothing_is_found(seconds: int) -> None:
    assert planted(*a_turn(seconds)) == ""


def test_1_a_refused_change_that_changes_something_is_found() -> None:
    world, turn = a_turn(120)
    no = ChangeAnswer("mine", "change of mine", (reason("change_no_room"),))
    assert "asks for something else" in planted(world, turn, changes=(no,))
    rows = (replace(world.rows[0], booking="mine"),)
    lost = replace(turn, site=replace(turn.site, held=rows), plan=replace(turn.plan, changes=(no,)))
    assert "lost rows" in "; ".join(RequestChecks(world)._kept(lost))


def test_2_who_is_ahead_of_a_change_and_later_for_it_is_found() -> None:
    world, turn = a_turn(120)
    waits = tuple(replace(row, key=(9,) * 8) if row.booking == "mine" else row for row in later(turn, "less"))
    assert "is ahead of the change" in planted(world, turn, waits=waits)


def test_2_who_is_later_by_a_weaker_change_is_found() -> None:
    world, turn = a_turn(120)
    mine = next(row for row in turn.site.requests if row.booking == "mine")
    waits = tuple(replace(row, key=(2,) * 8) if row.booking == "mine" else row for row in later(turn, "less"))
    plan = replace(turn.plan, waits=waits)
    one = Turn(turn.site, plan, turn.outside, (Weakened("mine", mine),))
    assert "by a weaker change" in "; ".join(request_checks.after_weaker(one, world.drawn.policy))


def test_4_who_only_waits_changes_nothing_of_anybodys() -> None:
    world, turn = a_turn(120)
    pause = Pause("first0", "pending", NOON, 0, ())
    assert "which only waits" in planted(world, turn, pauses=(pause,))
    assert "somebody waits for an approval" in planted(world, turn, waits=later(turn, "less"))
    world, turn = a_turn(60)
    assert "change what others get" in planted(world, turn, waits=later(turn, "mine"))


def test_5_what_is_kept_for_an_approval_and_given_to_others_is_found() -> None:
    world, turn = a_turn(120)
    (kept,), mine = turn.plan.soft, next(w for w in turn.plan.waits if w.booking == "mine")
    soft = replace(kept, places=mine.places, starts=mine.starts, ends=mine.ends)
    assert "mine has what is kept for pending" in planted(world, turn, soft=(soft,))


def test_6_a_start_without_an_approval_or_an_accepted_offer_is_found() -> None:
    world, turn = a_turn(120)
    waits = waits_with(turn, "mine", booking="pending")
    assert "was not approved" in planted(world, turn, waits=waits)
    world.rows = [replace(row, starts=NOON) for row in world.rows]
    assert "that nobody accepted" in planted(world, turn)


def test_7_an_offer_of_what_the_queue_can_use_is_found() -> None:
    world, turn = a_turn(60)
    offer = replace(turn.plan.offers[0], starts=NOON + 600)
    assert "is offered what mine can use" in planted(world, turn, offers=(offer,))


def test_8_rows_that_decide_by_their_order_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    world, turn = a_turn(120)
    seen = []

    def by_order(site: Snapshot, policy: Policy) -> Plan:
        seen.append(site)
        return solve(replace(site, requests=site.requests[:1]), policy)

    monkeypatch.setattr(request_checks, "solve", by_order)
    found = request_checks.in_another_order(turn.site, turn.plan, world.drawn.policy)
    assert list(found) == ["the order of rows decides"]
    assert len(seen) == 1


def test_9_two_answers_and_11_more_time_than_was_asked_for_are_found() -> None:
    world, turn = a_turn(60)
    (offer,) = turn.plan.offers
    assert "two answers for one" in planted(world, turn, offers=(offer, offer))
    longer = replace(offer, ends=offer.ends + 60)
    assert "and asked for" in planted(world, turn, offers=(longer,))
    (mine,) = (row for row in turn.plan.waits if row.booking == "mine")
    assert "and asked for" in planted(world, turn, waits=waits_with(turn, "mine", ends=mine.ends + 60))
