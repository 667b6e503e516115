"""What is set aside when the solver fails, by searches of a part on which it does not."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from allocation.services.decide.set_aside import MOST_TRIES, decided_without
from solver import Plan, Policy, Request, Snapshot, solve
from tests.solver.builders import HOUR, a_planned_start, a_request, a_snapshot, whole

POLICY = Policy(1)


class Fragile:
    """A solver that fails on some bookings, on each alone or only if it sees all of them."""

    def __init__(self, *bookings: str, together: bool = False) -> None:
        self._bookings, self._together, self.tries = set(bookings), together, 0

    def __call__(self, site: Snapshot) -> Plan:
        self.tries += 1
        seen = self._bookings & {each.booking for each in site.requests}
        if seen == self._bookings if self._together else seen:
            raise KeyError("a mistake")
        return solve(site, POLICY)


def waiting(count: int) -> tuple[Request, ...]:
    return tuple(a_request(f"b{number:03}", submitted=number) for number in range(count))


def aside(site: Snapshot, decide: Fragile) -> Collection[str]:
    found = decided_without(site, decide)
    assert found is not None
    part, plan = found
    assert plan == solve(part, POLICY)
    return {each.booking for each in site.requests} - {each.booking for each in part.requests}


@pytest.mark.turn
@pytest.mark.parametrize("culprits", [["b000"], ["b049"], ["b021"], ["b003", "b031"]])
def test_only_those_on_which_it_fails_are_set_aside(culprits: list[str]) -> None:
    decide = Fragile(*culprits)
    assert aside(a_snapshot(*waiting(50)), decide) == set(culprits)
    assert decide.tries <= MOST_TRIES + 1


def test_of_those_on_which_it_fails_together_the_last_is_set_aside() -> None:
    assert aside(a_snapshot(*waiting(9)), Fragile("b002", "b007", together=True)) == {"b007"}


def test_dates_of_a_series_are_set_aside_together() -> None:
    dates = tuple(replace(each, series="s", fixed=True) for each in waiting(3))
    others = (a_request("x", submitted=1), a_request("y", submitted=5))
    assert aside(a_snapshot(*dates, *others), Fragile("b001")) == {"b000", "b001", "b002"}


def test_what_has_a_planned_start_is_never_set_aside() -> None:
    planned = replace(waiting(1)[0], planned=a_planned_start(HOUR, 1, whole("n1-0")))
    site = a_snapshot(planned, a_request("x", submitted=1))
    assert decided_without(site, Fragile("b000")) is None
    assert aside(site, Fragile("x")) == {"x"}


def test_a_single_request_is_set_aside() -> None:
    assert aside(a_snapshot(*waiting(1)), Fragile("b000")) == {"b000"}
