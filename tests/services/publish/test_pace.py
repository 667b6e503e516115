"""How the solver rests between turns that are asked for one after the other."""

import pytest

from allocation import tasks
from allocation.tasks import BUSY_ANSWERS, BUSY_REST_SECONDS, MAX_REST_SECONDS, Pace


class Clock:
    """In place of the module's `time`: sleeping is what moves it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(tasks, "time", clock)
    return clock


def turned(pace: Pace, clock: Clock, seconds: float) -> None:
    with pace.turn():
        clock.now += seconds


def test_the_first_turn_is_at_once_and_the_next_after_as_long_as_it_took(clock: Clock) -> None:
    pace = Pace()
    pace.rest()
    turned(pace, clock, 0.25)
    pace.rest()
    turned(pace, clock, 60)
    pace.rest()
    assert clock.slept == [0.25, MAX_REST_SECONDS]


def test_who_asks_later_than_that_waits_for_nothing(clock: Clock) -> None:
    pace = Pace()
    turned(pace, clock, 0.25)
    clock.now += 0.1
    pace.rest()
    assert clock.slept == [0.15]
    turned(pace, clock, 0.25)
    clock.now += 0.25
    pace.rest()
    assert clock.slept == [0.15]


def test_a_turn_that_fails_is_rested_from_too(clock: Clock) -> None:
    pace = Pace()

    def fails() -> None:
        with pace.turn():
            clock.now += 0.5
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    pace.rest()
    assert clock.slept == [0.5]


def test_after_many_answers_the_next_requests_gather_for_a_while(clock: Clock) -> None:
    pace = Pace()
    for count in (BUSY_ANSWERS, BUSY_ANSWERS - 1):
        with pace.turn():
            clock.now += 0.125
            pace.answered(count)
        pace.rest()
    # A turn that failed has answered nothing.
    turned(pace, clock, 0.125)
    pace.rest()
    assert clock.slept == [BUSY_REST_SECONDS, 0.125, 0.125]
