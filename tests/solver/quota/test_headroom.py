"""Headroom: at expected peaks, work that can wait leaves GPUs free for starts that can't."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from solver import Assign, Held, Plan, Policy, Request, Snapshot, Waiting, decode, encode, solve
from solver.cycle.quote import quote
from solver.model.inner_limits import Peak
from solver.model.inputs import Maintenance
from solver.model.quote import QuoteRequest
from solver.reasons.catalogue import UNPROVEN
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_limit,
    a_planned_start,
    a_request,
    a_snapshot,
    an_ask,
    gpus,
    whole,
)
from tests.worlds.life import World

KEEPING = Policy(1, headroom=(("h100", 2),), headroom_for=(("flex", HOUR),))
PEAKS = (Peak("a100", NOON, NOON + HOUR), Peak("h100", NOON + HOUR // 2, NOON + 4 * HOUR))


def site(*requests: Request, held: tuple[Held, ...] = (), fleet: int = 4, now: int = 0) -> Snapshot:
    """GPUs of which two are kept free from half past twelve to four; `other` is guaranteed two."""
    limits = (a_limit("lab", 0, borrow=None), a_limit("other", 2, borrow=None))
    found = a_snapshot(*requests, fleet=gpus(fleet), held=held, limits=limits, now=now)
    return replace(found, peaks=PEAKS)


def can_wait(name: str = "b1", count: int = 3, hours: float = 2, **facts: object) -> Request:
    """A request in a tier that may be paused, that borrows."""
    return a_request(name, an_ask(count), hours=hours, tier="flex", **facts)  # type: ignore[arg-type]  # a builder's


def at_once(name: str = "now", count: int = 1, hours: float = 1) -> Request:
    """Short work that was asked for just now, to start now."""
    return replace(can_wait(name, count, hours), submitted=NOON)


def start(plan: Plan, name: str = "b1") -> float:
    """Hours after noon at which a booking starts."""
    every: tuple[Assign | Waiting, ...] = (*plan.assigns, *plan.waits)
    return next((each.starts - NOON) / HOUR for each in every if each.booking == name)


def test_work_that_can_wait_starts_after_the_peak_and_names_the_rule() -> None:
    plan = solve(site(can_wait()), KEEPING)
    assert start(plan) == 4
    (wait,) = plan.waits
    why = next(each for each in wait.reasons if each.code == "headroom")
    assert why.facts == {"gpu_class": "h100", "gpus": 2, "until": NOON + 4 * HOUR}
    assert why.frees_at == NOON + 4 * HOUR
    assert start(solve(site(can_wait()), POLICY)) == 0


def test_what_ends_before_the_peak_or_leaves_enough_free_starts() -> None:
    assert start(solve(site(can_wait(hours=0.5)), KEEPING)) == 0
    assert start(solve(site(can_wait(count=2)), KEEPING)) == 0
    # Each counts next to the other.
    both = solve(site(can_wait("one", 2), can_wait("two", 1)), KEEPING)
    assert (start(both, "one"), start(both, "two")) == (0, 2)


def test_a_start_at_once_of_a_named_tier_and_length_uses_it() -> None:
    full = tuple(a_held(f"n1-{n}", booking=f"h{n}", ends=9 * HOUR) for n in range(2))
    plan = solve(site(at_once(count=2), can_wait(count=1), held=full), KEEPING)
    assert (start(plan, "now"), start(plan)) == (0, 4)
    for request in (at_once(count=1, hours=1.5), replace(at_once(), tier="spot"), can_wait("now", 1)):
        assert start(solve(site(request, held=full), KEEPING), "now") == 4


@pytest.mark.parametrize(
    "request_",
    [
        can_wait(tenant="other", project="else", count=2),
        can_wait(fixed=True),
        can_wait(planned=a_planned_start(0, 2, *map(whole, ("n1-0", "n1-1", "n1-2")), strength="guaranteed")),
        a_request(ask=an_ask(2), hours=2, tenant="other", project="else"),
    ],
    ids=["inside its guarantee", "fixed", "a guaranteed start", "never paused"],
)
def test_sure_work_takes_it_like_any_other(request_: Request) -> None:
    held = (a_held("n1-3", booking="h", tenant="third", project="x", ends=9 * HOUR),)
    assert start(solve(site(request_, held=held if request_.ask.count < 3 else ()), KEEPING)) == 0


def test_who_has_waited_longer_than_the_patience_takes_it() -> None:
    old = replace(can_wait(), submitted=NOON - 9 * 86_400, earliest=NOON - 9 * 86_400)
    assert start(solve(site(old), KEEPING)) == 0


def test_gpus_that_are_away_are_not_free() -> None:
    broken = site(can_wait(count=2))
    out = replace(broken, gpus=(replace(broken.gpus[0], usable=False), *broken.gpus[1:]))
    assert start(solve(out, KEEPING)) == 4
    away = replace(broken, blackouts=(Maintenance("n1-0", NOON + 90 * 60, NOON + 3 * HOUR),))
    assert start(solve(away, KEEPING)) == 3


def test_a_peak_that_is_foreseen_later_moves_an_expected_start_and_says_why() -> None:
    planned = a_planned_start(HOUR, 2, *map(whole, ("n1-0", "n1-1", "n1-2")), strength="expected")
    (wait,) = solve(site(can_wait(planned=planned, earliest=HOUR)), KEEPING).waits
    assert wait.delayed_by is not None
    assert (wait.starts, wait.delayed_by.code) == (NOON + 4 * HOUR, "headroom")


def test_a_quote_says_what_the_cycle_does() -> None:
    def quoted(earliest: int, hours: float) -> float:
        question = QuoteRequest(
            an_ask(3),
            int(hours * HOUR),
            NOON + earliest,
            latest=None,
            fixed=False,
            tenant="lab",
            project="folding",
            tier="flex",
        )
        return (quote(site(), KEEPING, question).options[0].starts - NOON) / HOUR

    assert (quoted(0, 0.5), quoted(0, 2), quoted(60, 2)) == (0, 4, 4)


def test_documents_without_it_keep_their_bytes_and_with_it_are_read_again() -> None:
    assert b"headroom" not in encode(POLICY)
    assert b"peaks" not in encode(a_snapshot(can_wait()))
    assert b"behind" not in encode(site(can_wait()))
    assert decode(Policy, encode(KEEPING)) == KEEPING
    assert decode(Snapshot, encode(site(can_wait()))).peaks == PEAKS


class PeakWorld(World):
    """A random world in which every second hour of each class is a peak."""

    def snapshot(self) -> Snapshot:
        found = super().snapshot()
        names = sorted({gpu.gpu_class for gpu in found.gpus})
        hour = self.now // HOUR * HOUR
        peaks = (Peak(name, hour + n * HOUR, hour + (n + 1) * HOUR) for name in names for n in range(48))
        return replace(found, peaks=tuple(each for each in peaks if each.starts // HOUR % 2))


def worlds(seed: int, *, gpus_kept: int) -> Iterator[tuple[Snapshot, Plan]]:
    """The cycles of a world with so many GPUs of each class kept free."""
    drawn = World.of(seed).drawn
    kept = tuple((name, gpus_kept) for name in sorted({gpu.gpu_class for gpu in drawn.gpus}))
    policy = replace(drawn.policy, headroom=kept if gpus_kept else ())
    world = PeakWorld.of_drawn(replace(drawn, policy=policy))
    for number, turn in enumerate(world.turns()):
        if number == 40:
            return
        yield turn.site, turn.plan


@pytest.mark.parametrize("seed", range(1, 9))
def test_off_it_changes_no_byte_of_a_random_world(seed: int) -> None:
    policy = World.of(seed).drawn.policy
    for site, plan in worlds(seed, gpus_kept=0):
        without = replace(site, peaks=())
        assert encode(solve(without, policy)) == encode(plan)
        only = replace(policy, headroom=(("h100", 1), ("a100", 1)))
        assert encode(solve(without, only)) == encode(plan)


BORROWING = (2, 3)
"""Bands of who borrows and of spot."""


def taken(site: Snapshot, plan: Plan) -> Iterator[tuple[str, int, int, int, int]]:
    """By class and instant of a peak at which work that can wait has a new expected start: GPUs of
    such work, GPUs that are held, GPUs there are, and the instant."""
    requests = {request.booking: request for request in (*site.running, *site.requests)}
    class_of = {gpu.id: gpu.gpu_class for gpu in site.gpus}
    leaving = {pause.booking for pause in plan.pauses}
    waits = [
        each
        for each in plan.waits
        if each.key[0] in BORROWING
        and each.strength == "expected"
        and each.places
        and not requests[each.booking].fixed
        and not any(why.code in UNPROVEN for why in each.reasons)
    ]
    for peak in site.peaks:
        mine = [each for each in waits if each.gpu_class == peak.gpu_class]
        there = {g.id for g in site.gpus if g.gpu_class == peak.gpu_class and g.usable and not g.silent}
        held = [r for r in site.held if class_of[r.place.gpu] == peak.gpu_class and r.booking not in leaving]
        for at in range(peak.starts, peak.ends, 300):
            new = sum(len(each.places) for each in mine if each.starts <= at < each.ends)
            busy = {row.place.gpu for row in held if row.starts <= at < row.ends}
            if new:
                yield peak.gpu_class, new, len(busy), len(there | busy), at


@pytest.mark.parametrize("seed", range(3, 60, 3))
def test_in_random_worlds_of_whole_gpus_the_last_ones_stay_free_at_peaks(seed: int) -> None:
    for site, plan in worlds(seed, gpus_kept=1):
        for name, new, busy, most, at in taken(site, plan):
            assert new + busy <= max(most - 1, busy), (seed, site.now - NOON, name, at - NOON)
