"""Offers to the waiting list: after the queue, in its order, on what is left."""

from dataclasses import replace
from random import Random

import pytest

from solver import Plan, Request, Snapshot, encode, solve
from solver.cycle.offers import LONGEST, SHORTEST
from solver.model.inputs import Entry
from tests.solver.builders import HOUR, NOON, POLICY, a_held, a_limit, gpus
from tests.solver.pausing import a_claim, a_site
from tests.solver.world import a_world, after, an_arrival, running_requests

LIMITS = (a_limit("lab", 8, borrow=0), a_limit("firm", 8, borrow=0))
DAY = 24 * HOUR


def waits(
    booking: str, count: int = 4, *windows: tuple[int, int], hours: float = 2, submitted: int = 0
) -> Entry:
    """An entry of a person of its own; windows in seconds from NOON, by default tomorrow's."""
    found = windows or ((DAY, DAY + 2 * HOUR),)
    request = a_claim(booking, count, hours=hours, submitted=submitted)
    times = tuple((NOON + since, NOON + until) for since, until in found)
    return Entry(booking, replace(request, owner=f"owner {booking}"), times)


def offered(site: Snapshot, *entries: Entry) -> dict[str, tuple[int, int]]:
    """The start and the deadline of each offer, from NOON."""
    plan = solve(replace(site, entries=entries), POLICY)
    return {each.booking: (each.starts - NOON, each.until - NOON) for each in plan.offers}


def fixed(booking: str, count: int) -> Request:
    return a_claim(booking, count, hours=2, earliest=DAY, fixed=True)


def test_13_the_queue_is_first_then_one_after_the_other_in_its_order() -> None:
    """Tomorrow 12-14 has 8 GPUs: w1 is booked, w2 is offered the rest, w3 nothing."""
    site = a_site(fixed("w1", 4), fleet=gpus(8), limits=LIMITS)
    w2, w3 = waits("w2", submitted=60), waits("w3", submitted=120)
    plan = solve(replace(site, entries=(w2, w3)), POLICY)
    assert [each.booking for each in plan.assigns] == ["w1"]
    assert [each.booking for each in plan.offers] == ["w2"]
    assert offered(site, w2, w3) == {"w2": (DAY, LONGEST)}
    # After an offer without an answer it stands behind people who had none.
    assert offered(site, replace(w2, expired=1), w3) == {"w3": (DAY, LONGEST)}
    full = a_site(fixed("w1", 8), fleet=gpus(8), limits=LIMITS)
    assert offered(full, w2, w3) == {}


def test_a_deadline_is_a_tenth_of_the_time_left_within_bounds_and_before_the_freeze() -> None:
    site = a_site(fleet=gpus(8), limits=LIMITS)
    for lead, until in ((DAY, 1_800), (3 * HOUR, 1_080), (HOUR // 2, SHORTEST), (360, SHORTEST)):
        assert offered(site, waits("w", 4, (lead, lead + 2 * HOUR))) == {"w": (lead, until)}
    # It could not be answered before its start is frozen.
    assert offered(site, waits("w", 4, (359, 359 + 2 * HOUR))) == {}


def test_the_earliest_time_of_its_windows_in_which_all_of_it_fits() -> None:
    site = a_site(fixed("x", 8), fleet=gpus(8), limits=LIMITS)
    any_time = waits("w", 8, (DAY - HOUR, DAY + 3 * HOUR), (2 * DAY, 2 * DAY + 5 * HOUR))
    assert offered(site, any_time) == {"w": (2 * DAY, LONGEST)}
    assert offered(site, replace(any_time, windows=any_time.windows[:1])) == {}


def test_a_person_has_one_offer_in_a_class() -> None:
    site = a_site(fleet=gpus(8), limits=LIMITS)
    one, two = waits("a", submitted=60), waits("b", submitted=120)
    two = replace(two, request=replace(two.request, owner=one.request.owner))
    assert offered(site, one, two).keys() == {"a"}
    assert offered(site, replace(one, barred=("h100",)), two).keys() == {"b"}


def test_any_of_its_classes_will_do_and_one_that_is_barred_will_not() -> None:
    """In an hour; h100 are all taken."""
    fleet = (*gpus(4), *gpus(4, "l40s", "l40s", node="n2", domains=None))
    limits = tuple(a_limit("lab", 4, name, borrow=0) for name in ("h100", "l40s"))
    now = a_claim("x", 4, hours=9)
    entry = waits("w", 4, (HOUR, 3 * HOUR))
    both = replace(entry.request.ask, classes=("h100", "l40s"))
    entry = replace(entry, request=replace(entry.request, ask=both))
    plan = solve(replace(a_site(now, fleet=fleet, limits=limits), entries=(entry,)), POLICY)
    assert [(each.gpu_class, each.until - NOON) for each in plan.offers] == [("l40s", 360)]
    barred = replace(entry, barred=("l40s",))
    plan = solve(replace(a_site(now, fleet=fleet, limits=limits), entries=(barred,)), POLICY)
    assert plan.offers == ()


def test_offers_stay_within_the_quota_of_their_tenant() -> None:
    site = a_site(fleet=gpus(8), limits=(a_limit("lab", 4, borrow=0),))
    assert len(offered(site, waits("a", submitted=60), waits("b"))) == 1


def test_an_open_offer_is_withdrawn_for_a_claim_inside_its_guarantee_alone() -> None:
    rows = tuple(
        replace(
            a_held(f"n1-{n}", booking="o1" if n < 4 else "o2", starts=DAY, ends=DAY + 2 * HOUR),
            tenant="firm",
            project="firm-p",
            offered=True,
        )
        for n in range(6)
    )

    def withdrawn(count: int, **changes: object) -> tuple[str, ...]:
        claim = replace(fixed("w1", count), **changes)  # type: ignore[arg-type]  # its fields
        site = a_site(claim, fleet=gpus(8), held=rows, limits=LIMITS)
        return solve(site, POLICY).offers_withdrawn

    assert withdrawn(2) == (), "there is other room"
    assert withdrawn(4) == ("o1",), "as few as are enough"
    assert withdrawn(8) == ("o1", "o2")
    assert withdrawn(4, earliest=NOON + 2 * DAY) == ()
    spot = a_site(replace(fixed("w1", 8), tier="spot"), fleet=gpus(8), held=rows, limits=LIMITS)
    assert solve(spot, POLICY).offers_withdrawn == ()
    taken = a_site(
        fixed("w1", 8),
        fleet=gpus(8),
        limits=LIMITS,
        held=tuple(replace(row, offered=False) for row in rows),
    )
    assert solve(taken, POLICY).offers_withdrawn == ()


@pytest.mark.parametrize("seed", range(40))
def test_in_random_worlds_offers_change_nothing_for_others(seed: int) -> None:
    """Nobody is paused, moved or later because of an entry, and their order has no effect."""
    chance = Random(seed)  # noqa: S311
    world = a_world(chance)
    arrivals = tuple(an_arrival(chance, number, world.site.now) for number in range(8))
    world.site = replace(world.site, requests=arrivals)
    world.site = after(world.site, world.cycle())
    later = tuple(an_arrival(chance, 8 + number, world.site.now) for number in range(4))
    world.site = replace(world.site, requests=(*world.site.requests, *later))
    site = replace(world.site, running=tuple(running_requests(world.site)))
    tenants = sorted({row.owner for row in site.limits if row.parent is None})
    entries = [_drawn(chance, number, site, tenants) for number in range(6)]
    with_entries = solve(replace(site, entries=tuple(entries)), world.policy)
    assert _others(with_entries) == _others(solve(site, world.policy))
    chance.shuffle(entries)
    again = solve(replace(site, entries=tuple(entries)), world.policy)
    assert encode(again) == encode(with_entries)


def _others(plan: Plan) -> bytes:
    return encode(replace(plan, offers=()))


def _drawn(chance: Random, number: int, site: Snapshot, tenants: list[str]) -> Entry:
    classes = sorted({gpu.gpu_class for gpu in site.gpus})
    model = chance.choice(sorted(site.requests, key=lambda each: each.booking) or [a_claim()])
    since = site.now + chance.randrange(0, DAY)
    request = replace(
        model,
        booking=f"entry {number}",
        tenant=chance.choice(tenants),
        planned=None,
        fixed=False,
        ask=replace(model.ask, classes=(chance.choice(classes),), pin=()),
        series=None,
        latest=None,
        durations=(),
        home=(),
        paused=False,
        owner=f"person {number % 3}",
    )
    length = request.duration
    windows = tuple((since + n * DAY, since + n * DAY + 2 * length) for n in range(2))
    return Entry(request.booking, request, windows, chance.randrange(2))


def test_an_offer_takes_no_quota_from_a_planned_start_that_does_not_count() -> None:
    """Found by the random worlds: the limits of work that counts ignore spot."""
    spot = replace(a_claim("spot", 1, hours=3, earliest=DAY), tier="spot", priority=10)
    site = a_site(spot, fleet=gpus(2), limits=(a_limit("lab", 1, borrow=0),))
    assert [wait.starts - NOON for wait in solve(site, POLICY).waits] == [DAY]
    windows = ((DAY, DAY + 2 * HOUR), (DAY, DAY + 5 * HOUR))
    assert offered(site, waits("w", 1, windows[0])) == {}
    assert offered(site, waits("w", 1, windows[1])) == {"w": (DAY + 3 * HOUR, LONGEST)}
