"""Quiet classes: nothing was given back since the last search, so planned starts are only kept."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from solver import Held, Limit, Request, Snapshot, solve
from solver.model.rows import rows_of
from solver.state import kept
from solver.state.kept import EVERY, QuietClasses
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_limit,
    a_planned_start,
    a_request,
    a_snapshot,
    gpus,
    whole,
)
from tests.worlds.__main__ import world_check

FLEET = (*gpus(2, "h100"), *gpus(1, "a100", "a100-40gb", node="n2"))
H0, H1, A0 = (gpu.id for gpu in FLEET)
BUSY = (a_held(H0, ends=4 * HOUR), a_held(H1, ends=6 * HOUR), a_held(A0, ends=4 * HOUR))
PLANNED = a_planned_start(4 * HOUR, 1, whole(H0), strength="expected")
WAITS = a_request("b0", planned=PLANNED)
NEXT = NOON + 5
GIVES_BACK = 195
"""A random world whose room would stay idle if nobody saw that it was given back."""


def a_site(*requests: Request, held: Iterable[Held] = BUSY, limits: tuple[Limit, ...] = ()) -> Snapshot:
    return a_snapshot(*(requests or (WAITS,)), fleet=FLEET, held=tuple(held), limits=limits)


def after(*sites: Snapshot) -> tuple[str, ...]:
    """The quiet classes of the last of these snapshots, five seconds apart."""
    classes = QuietClasses(least=0)
    found: tuple[str, ...] = ()
    for number, site in enumerate(sites):
        found = classes.of(rows_of(replace(site, now=NOON + 5 * number)))
    return found


def instead(old: Held, *new: Held) -> tuple[Held, ...]:
    return (*(row for row in BUSY if row is not old), *new)


def test_a_class_is_quiet_until_its_next_search() -> None:
    assert after(a_site()) == ()
    assert after(a_site(), a_site()) == ("a100", "h100")
    steps = EVERY // 5
    assert after(*[a_site()] * steps) == ("a100", "h100")
    assert after(*[a_site()] * (steps + 1)) == ()
    assert after(*[a_site()] * (steps + 2)) == ("a100", "h100")


@pytest.mark.parametrize(
    "held",
    [
        instead(BUSY[0]),
        instead(BUSY[0], replace(BUSY[0], ends=BUSY[0].ends - 1)),
        instead(BUSY[0], replace(BUSY[0], starts=BUSY[0].starts + 1)),
        instead(BUSY[0], replace(BUSY[0], place=whole(H1))),
    ],
    ids=["ended", "shorter", "begins later", "moved"],
)
def test_held_work_that_gives_back_room_makes_its_class_searched(held: tuple[Held, ...]) -> None:
    assert after(a_site(), a_site(held=held)) == ("a100",)


@pytest.mark.parametrize(
    "held",
    [
        instead(BUSY[0], replace(BUSY[0], ends=BUSY[0].ends + 1)),
        instead(BUSY[0], replace(BUSY[0], tier="spot", pausing=True)),
        (*BUSY, a_held(H0, starts=5 * HOUR, ends=6 * HOUR)),
    ],
    ids=["longer", "the same room", "more"],
)
def test_held_work_that_takes_room_leaves_its_class_quiet(held: tuple[Held, ...]) -> None:
    assert after(a_site(), a_site(held=held)) == ("a100", "h100")


def test_held_work_that_ends_as_planned_leaves_its_class_quiet() -> None:
    ending = replace(BUSY[0], ends=NEXT)
    assert after(a_site(held=instead(BUSY[0], ending)), a_site(held=BUSY[1:])) == ("a100", "h100")
    ending = replace(BUSY[0], ends=NEXT + 1)
    assert after(a_site(held=instead(BUSY[0], ending)), a_site(held=BUSY[1:])) == ("a100",)


def test_a_request_that_leaves_its_planned_start_makes_its_classes_searched() -> None:
    other = a_request("b1")
    assert after(a_site(WAITS, other), a_site(other)) == ("a100",)
    assert after(a_site(WAITS, other), a_site(WAITS)) == ("a100", "h100")
    # As it was planned, and for a shorter time.
    whole_time = a_held(H0, starts=4 * HOUR, ends=5 * HOUR, booking="b0")
    shorter = replace(whole_time, ends=whole_time.ends - 1)
    assert after(a_site(WAITS, other), a_site(other, held=(*BUSY, whole_time))) == ("a100", "h100")
    assert after(a_site(WAITS, other), a_site(other, held=(*BUSY, shorter))) == ("a100",)


def test_a_request_that_asks_for_something_else_makes_its_classes_searched() -> None:
    moved = replace(WAITS, planned=a_planned_start(5 * HOUR, 1, whole(H0), strength="expected"))
    assert after(a_site(), a_site(moved)) == ("a100", "h100")
    for other in (
        replace(WAITS, duration=HOUR // 2),
        replace(WAITS, revision=2),
        replace(WAITS, planned=None),
    ):
        assert after(a_site(), a_site(other)) == ("a100",)


def test_changes_of_rules_and_of_the_fleet_make_all_classes_searched() -> None:
    limits = (a_limit("lab", 1),)
    assert after(a_site(), a_site(limits=limits)) == ()
    assert after(a_site(limits=limits), a_site()) == ()
    assert after(a_site(), replace(a_site(), gpus=FLEET[:2], held=BUSY[:2])) == ()
    pending = a_request("asks", planned=PLANNED)
    assert after(a_site(), replace(a_site(), pending=(pending,))) == ("a100", "h100")
    assert after(replace(a_site(), pending=(pending,)), a_site()) == ()


def test_nothing_is_quiet_where_few_wait_or_the_last_plan_was_not_written() -> None:
    few = QuietClasses(least=2)
    assert [few.of(rows_of(a_site())) for _ in range(2)] == [(), ()]
    classes = QuietClasses(least=1)
    assert [classes.of(rows_of(a_site())) for _ in range(2)] == [(), ("a100", "h100")]
    classes.forget()
    assert classes.of(rows_of(a_site())) == ()
    assert classes.of(rows_of(replace(a_site(), now=NOON - 1))) == ()


def test_a_planned_start_in_a_quiet_class_is_kept_without_a_search() -> None:
    site = replace(a_site(held=BUSY[1:]), now=NEXT)
    assert [row.starts for row in solve(site, POLICY).assigns] == [NEXT]
    (wait,) = solve(replace(site, quiet=("h100",)), POLICY).waits
    assert (wait.starts, wait.places) == (PLANNED.starts, PLANNED.places)
    assert wait.as_before
    assert wait.reasons == ()
    (row,) = solve(replace(site, quiet=("a100",)), POLICY).assigns
    assert row.starts == NEXT


def test_a_quiet_class_has_no_say_in_a_start_that_is_near() -> None:
    site = replace(a_site(held=BUSY[1:2]), quiet=("h100",))
    far = replace(site, now=PLANNED.starts - POLICY.grid - 1)
    (wait,) = solve(far, POLICY).waits
    assert wait.as_before
    near = replace(site, now=PLANNED.starts - POLICY.grid)
    (row,) = solve(near, POLICY).assigns
    assert row.starts == near.now


def test_a_newcomer_in_a_quiet_class_gets_the_start_that_it_would_get_after_a_search() -> None:
    newcomer = a_request("b1", submitted=100)
    site = replace(a_site(WAITS, newcomer), now=NEXT)
    searched, kept = solve(site, POLICY), solve(replace(site, quiet=("h100",)), POLICY)
    assert [(w.booking, w.starts, w.places) for w in kept.waits] == [
        (w.booking, w.starts, w.places) for w in searched.waits
    ]
    assert [w.as_before for w in kept.waits] == [True, False]
    assert kept.waits[1].reasons == searched.waits[1].reasons


def test_room_that_nobody_sees_given_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_given_back", lambda *_: iter(()))
    assert world_check(GIVES_BACK)[1].violations
