"""Whether a reservation could be earlier, found while it is reserved, is what a search finds without it."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from solver import Gpu, Snapshot
from solver.model.demand import Demand, Fit
from solver.model.inputs import Together
from solver.state.cycle_state import CycleState
from solver.state.own_room import is_limited_until, room_before
from tests.solver.builders import NOON, POLICY, a_held, a_limit, a_snapshot, gpus

STEP = 300


def a_site(chance: Random) -> Snapshot:
    """Two nodes, of which some GPUs are taken now and then."""
    fleet: tuple[Gpu, ...] = (*gpus(4), *gpus(4, node="n2"))
    held = [
        replace(
            a_held(gpu.id, starts=begin * STEP, ends=(begin + chance.randint(1, 9)) * STEP),
            id=f"{gpu.id}/{begin}",
        )
        for gpu in fleet
        for begin in range(0, 60, 10)
        if chance.random() < 0.6
    ]
    return a_snapshot(fleet=fleet, held=tuple(held))


def a_demand(chance: Random, profile: str | None) -> Demand:
    count = chance.choice((1, 1, 2, 3, 4))
    level: Together = "node" if count > 1 and chance.random() < 0.5 else "any"
    return Demand(
        "h100", profile, count, level, chance.randint(1, 25) * STEP - chance.choice((0, 7)), ("lab", "lab-p")
    )


def reserved(state: CycleState, chance: Random, profile: str | None) -> Iterator[Fit]:
    """Reservations, not all of which are as early as they could be."""
    for _ in range(12):
        since = NOON + chance.choice((0, 0, 5, 20, 40)) * STEP
        found = state.earliest((a_demand(chance, profile),), since, NOON + 400 * STEP)
        if found is not None:
            state.reserve(found)
            yield found


@pytest.mark.parametrize("profile", [None, "2g.20gb"])
@pytest.mark.parametrize("grid", [1, STEP])
@pytest.mark.parametrize("is_tight", [True, False])
def test_room_before_an_own_reservation_is_what_a_search_without_it_finds(
    profile: str | None, grid: int, *, is_tight: bool
) -> None:
    answers, limited, free = {True: 0, False: 0}, 0, 0
    for seed in range(25):
        chance = Random(seed)  # noqa: S311  a made-up site, the same each time
        policy = replace(POLICY, grid=grid)
        site = a_site(chance)
        if is_tight:
            site = replace(
                site,
                limits=(
                    replace(
                        a_limit("lab", chance.choice((4, 6)) if profile is None else chance.choice((1, 2))),
                        borrow=0,
                    ),
                ),
            )
        state = CycleState(site, policy)
        for own in list(reserved(state, chance, profile)):
            first = NOON + chance.choice((0, 0, 3)) * STEP
            if own.starts <= first:
                continue
            is_limited = is_limited_until(state, own, first)
            has_room, room_at = room_before(state, own.demand, first, own.starts, own)
            state.free(own)
            found = state.first_between(own.demand, first, own.starts - 1)
            allowed = state.earliest((own.demand,), first, own.starts - 1)
            state.reserve(own)
            assert (has_room, room_at) == (found is not None, found), (seed, own, found)
            assert found is None or is_limited == (allowed is None), (seed, own, found, allowed)
            answers[has_room] += 1
            limited += is_limited and has_room
            free += allowed is not None
    assert min(answers.values()) > 10, answers
    assert (limited > 5) == is_tight, limited
    assert free > 5, free
