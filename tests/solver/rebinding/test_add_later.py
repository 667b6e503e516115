"""Rows that are read once something asks for them stand where they would if read at once."""

from functools import partial
from random import Random
from types import SimpleNamespace
from typing import cast

from solver.model.demand import Demand, Fit
from solver.model.inputs import Place
from solver.rebinding.movable import MovableReservations, Rows
from solver.state.cycle_state import CycleState
from tests.solver.builders import HOUR, NOON

HELD = ("h0", "h1", "h2")


def a_fit(gpu: str, starts: int = NOON) -> Fit:
    """A whole GPU for an hour."""
    owners = ("tenant", "project")
    demand = Demand("h100", None, 1, "any", HOUR, owners, "standard", None, 0, 0, owner="")
    return Fit(demand, (Place(gpu, None, 0, 8),), starts)


def movable() -> MovableReservations:
    """With three bookings that hold something."""
    work = SimpleNamespace(has=lambda booking: booking in HELD)
    return MovableReservations(cast(CycleState, SimpleNamespace(work=work)))


def held() -> Rows:
    """What they hold."""
    return {name: a_fit(name) for name in HELD}


def read(reads: list[int], step: int) -> Rows:
    """The same, noting that it was asked for."""
    reads.append(step)
    return held()


def test_rows_that_are_added_later_keep_their_places_in_the_order() -> None:
    for seed in range(200):
        dice = Random(seed)  # noqa: S311 (not for secrets)
        now, later = movable(), movable()
        read_at, reads = dice.randrange(12), list[int]()
        for step in range(20):
            if step == read_at:
                for name, found in held().items():
                    now.add(name, found)
                later.add_later(partial(read, reads, step))
            name = f"b{dice.randrange(6)}"
            if dice.random() < 0.6:
                found = a_fit(f"g{step}")
                now.add(name, found)
                later.add(name, found)
            else:
                assert now.take(name, "h100") == later.take(name, "h100")
        assert reads == [], "nothing has asked for them"
        window = (NOON, NOON + HOUR)
        assert [*now.near("h100", window).items()] == [*later.near("h100", window).items()], seed
        assert reads == [read_at]


def test_a_question_about_a_booking_that_holds_something_reads_the_rows() -> None:
    later = movable()
    later.add_later(held)
    assert later.found("b0", "h100") is None
    assert later.found("h1", "h100") == a_fit("h1")
    assert later.take("h1", "h100") == a_fit("h1")
    assert list(later.near("h100", (NOON, NOON + HOUR))) == ["h0", "h2"]
