"""Room that is kept for requests that wait for an approval: worked examples, and random worlds."""

from collections.abc import Collection
from dataclasses import replace
from random import Random

import pytest

from solver import Place, Plan, PlannedStart, Request, Snapshot, encode, solve
from solver.cycle.order.queue import Turn
from solver.cycle.soft_places import MARGIN, MOST_UNITS, SoftPlaces
from solver.model.demand import Fit
from solver.model.plan import Assign, SoftPlace, Waiting
from tests.solver.builders import HOUR, NOON, POLICY, a_limit, gpus, whole
from tests.solver.pausing import a_claim, a_site, given, notices, running
from tests.solver.standing import units_of
from tests.solver.world import RESTLESS, World, a_world, after, an_arrival, running_requests

MINUTE = 60


def awaiting(request: Request, *, until: int, decided_in: int = 0) -> Request:
    """The request while it waits for an approval; times from NOON."""
    earliest = max(request.earliest, NOON + decided_in)
    return replace(request, until=NOON + until, earliest=earliest, project="pending")


def starts(plan: Plan) -> dict[str, int]:
    """The start of every booking that has one, from NOON."""
    rows: tuple[Assign | Waiting | SoftPlace, ...] = (*plan.assigns, *plan.waits, *plan.soft)
    return {row.booking: row.starts - NOON for row in rows if row.places}


def decided(site: Snapshot, *pending: Request) -> dict[str, int]:
    return starts(solve(replace(site, pending=pending), POLICY))


@pytest.mark.parametrize(
    ("guaranteed", "found"),
    [
        # Example 8: reserved 2 h ahead for the time to decide; shorter work uses the wait.
        (4, {"a": 2 * HOUR, "short": 0, "long": 6 * HOUR}),
        # Example 9: without a guarantee it has no place.
        (0, {"short": 0, "long": HOUR}),
    ],
)
def test_8_and_9_shorter_work_uses_the_wait_and_the_guarantee_decides(
    guaranteed: int, found: dict[str, int]
) -> None:
    limits = (a_limit("a", guaranteed, borrow=None), a_limit("b", 4, borrow=None))
    asked = a_claim("a", 4, tier="flex", tenant="a", hours=4)
    pending = awaiting(asked, until=HOUR + 45 * MINUTE, decided_in=2 * HOUR)
    site = a_site(
        a_claim("short", 8, tier="flex", tenant="b", hours=1, submitted=60),
        a_claim("long", 8, tier="flex", tenant="b", hours=4, submitted=120),
        fleet=gpus(8),
        limits=limits,
    )
    assert decided(site, pending) == found
    # Undecided at 10:45, in the next turn: the place is gone, and others start.
    late = replace(site, now=NOON + HOUR + 45 * MINUTE, requests=site.requests[1:])
    assert decided(late, pending) == {"long": HOUR + 45 * MINUTE}


def test_8_approved_too_late_it_claims_its_guarantee() -> None:
    limits = (a_limit("a", 4, borrow=None), a_limit("b", 4, borrow=None))
    site = a_site(
        a_claim("a", 4, tier="flex", tenant="a", hours=4),
        held=running("b", *(p for p in _places(8)), tenant="b", since=-45 * MINUTE, ends=4 * HOUR),
        fleet=gpus(8),
        limits=limits,
    )
    plan = solve(replace(site, running=tuple(running_requests(site))), POLICY)
    assert notices(plan).keys() == {"b"}
    site = replace(site, requests=(), pending=(awaiting(site.requests[0], until=4 * HOUR),))
    plan = solve(replace(site, running=tuple(running_requests(site))), POLICY)
    assert not plan.pauses, "nobody is paused for what is not approved"
    assert starts(plan) == {"a": 4 * HOUR}


def _places(count: int) -> list[Place]:
    return [whole(f"n1-{index}") for index in range(count)]


def test_those_ahead_pass_it_those_behind_and_of_its_tenant_do_not() -> None:
    limits = (a_limit("lab", 8, borrow=0),)
    pending = awaiting(a_claim("a", 8, hours=2, submitted=60), until=2 * HOUR, decided_in=HOUR)
    before = a_claim("x", 8, hours=2, submitted=120)
    before = replace(before, priority=90)
    behind = a_claim("y", 8, hours=2, submitted=120)
    assert decided(a_site(before, limits=limits), pending) == {"x": 0, "a": 2 * HOUR}
    assert decided(a_site(behind, limits=limits), pending) == {"a": HOUR, "y": 3 * HOUR}


def test_its_age_counts_from_its_submission_not_from_its_window() -> None:
    window = awaiting(a_claim("w", 8, hours=1, earliest=13 * HOUR, fixed=True), until=HOUR)
    site = a_site(a_claim("x", 8, hours=20, submitted=60), limits=(a_limit("lab", 8, borrow=0),))
    assert decided(site, window) == {"w": 13 * HOUR, "x": 14 * HOUR}


def test_a_claim_of_another_tenant_inside_its_guarantee_always_passes() -> None:
    limits = (a_limit("lab", 4), a_limit("firm", 4), a_limit("inst", 0, borrow=None))
    pending = awaiting(a_claim("a", 4, hours=8), until=2 * HOUR, decided_in=HOUR)
    held = running("h", *_places(4), tenant="inst", tier="standard", ends=20 * HOUR)
    claim = a_claim("f", 4, tenant="firm", hours=4, submitted=60)
    assert decided(a_site(claim, held=held, limits=limits), pending) == {"f": 0, "a": 4 * HOUR}
    colleague = replace(claim, tenant="lab", project="lab-p")
    site = a_site(colleague, held=held, limits=limits)
    assert decided(site, pending) == {"a": HOUR, "f": 9 * HOUR}


def test_it_takes_no_quota_and_pushes_nobody_out_of_a_guarantee() -> None:
    limits = (a_limit("lab", 4, borrow=0), a_limit("firm", 4, borrow=0))
    pending = awaiting(a_claim("a", 4, hours=4), until=2 * HOUR, decided_in=HOUR)
    colleague = a_claim("c", 4, hours=4, submitted=60)
    plan = solve(a_site(colleague, limits=limits), POLICY)
    alongside = solve(replace(a_site(colleague, limits=limits), pending=(pending,)), POLICY)
    assert given(plan) == given(alongside)
    assert [borrow.borrowed for borrow in alongside.borrows] == [b.borrowed for b in plan.borrows]


def test_it_keeps_its_start_and_gives_it_up_in_time() -> None:
    limits = (a_limit("lab", 8, borrow=0),)
    asked = a_claim("a", 8, hours=2)
    site = a_site(limits=limits)
    promised = PlannedStart(NOON + 2 * HOUR, NOON + 4 * HOUR, tuple(_places(8)))
    pending = awaiting(replace(asked, planned=promised), until=HOUR, decided_in=HOUR)
    assert decided(site, pending) == {"a": 2 * HOUR}, "although an hour earlier is free"
    taken = running("h", *_places(8), tenant="lab", tier="standard", ends=6 * HOUR)
    (lost,) = solve(replace(a_site(held=taken), pending=(pending,)), POLICY).soft
    assert (lost.booking, lost.places) == ("a", ())
    window = awaiting(a_claim("w", 8, hours=1, earliest=MARGIN, fixed=True), until=HOUR)
    assert decided(site, window) == {}
    window = replace(window, earliest=window.earliest + 1)
    assert decided(site, window) == {"w": MARGIN + 1}


def test_the_policy_bounds_what_is_kept() -> None:
    narrow = replace(POLICY, soft_bounds=(60, 2, 10))
    site = a_site(limits=(a_limit("lab", 8, borrow=0),))

    def found(claim: Request) -> dict[str, int]:
        return starts(solve(replace(site, pending=(awaiting(claim, until=HOUR),)), narrow))

    assert found(a_claim("w", 2, hours=1, earliest=61, fixed=True)) == {"w": 61}
    assert found(a_claim("w", 2, hours=1, earliest=60, fixed=True)) == {}
    assert found(a_claim("w", 3, hours=1, earliest=61, fixed=True)) == {}


def test_a_project_keeps_eight_gpus_and_a_tenant_borrows_a_tenth() -> None:
    fleet = tuple(gpu for node in range(3) for gpu in gpus(8, node=f"n{node}"))
    asks = [
        awaiting(a_claim(f"a{n}", 4, hours=2, submitted=n), until=HOUR, decided_in=HOUR) for n in range(3)
    ]
    site = a_site(fleet=fleet, limits=(a_limit("lab", 24),))
    assert decided(site, *asks).keys() == {"a0", "a1"}
    windows = [
        awaiting(a_claim(f"w{n}", 1, tier="flex", earliest=HOUR, fixed=True, submitted=n), until=HOUR)
        for n in range(3)
    ]
    site = a_site(fleet=fleet, limits=(a_limit("lab", 0, borrow=None),))
    assert decided(site, *windows, *asks).keys() == {"w0", "w1"}, "2 of 24 GPUs, and only windows"


def _meet(one: Place, other: Place) -> bool:
    if one.gpu != other.gpu or (one.share is not None and other.share is not None):
        return False
    return one.start < other.start + other.size and other.start < one.start + one.size


def _drawn(chance: Random, world: World, number: int) -> tuple[Request, ...]:
    """Two to four requests that wait for an approval."""
    now, found = world.site.now, []
    for at in range(chance.randint(2, 4)):
        request = an_arrival(chance, 100 * number + at, now)
        earliest = max(request.earliest, now + chance.choice((0, 1_800, HOUR)))
        kept = replace(request, booking=f"p{at}", until=now + chance.choice((600, HOUR, 4 * HOUR)))
        found.append(kept if request.fixed else replace(kept, earliest=earliest))
    return tuple(found)


def _is_sure(request: Request, theirs: set[str]) -> bool:
    """True for a firm start, and for a guaranteed one of a tenant that has no soft place."""
    strength = request.planned.strength if request.planned else None
    return strength == "firm" or (strength == "guaranteed" and request.tenant not in theirs)


def _compared(site: Snapshot, pending: tuple[Request, ...], chance: Random) -> int:
    """Checks one cycle with soft places against the same without; returns how many were kept."""
    plan = solve(site, RESTLESS)
    alongside = solve(replace(site, pending=pending), RESTLESS)
    mixed = list(pending)
    chance.shuffle(mixed)
    assert encode(solve(replace(site, pending=tuple(mixed)), RESTLESS)) == encode(alongside)
    assert notices(alongside).keys() <= notices(plan).keys(), "nobody is paused for a soft place"
    theirs = {each.tenant for each in pending}
    promised = {
        each.booking: each.planned.starts - NOON
        for each in site.requests
        if each.planned is not None and _is_sure(each, theirs)
    }
    alone, together = starts(plan), starts(alongside)
    for booking, start in promised.items():
        if booking in alone and booking in together:
            assert together[booking] <= max(start, alone[booking]), "no sure start moves"
    kept = [each for each in alongside.soft if each.places]
    models = {gpu.id: model for gpu in site.gpus for model in site.models if model.slug == gpu.model}
    asked = {each.booking: each for each in pending}
    for project in {each.project for each in pending}:
        mine = [each for each in kept if asked[each.booking].project == project]
        units = sum(units_of(models[p.gpu], p) for each in mine for p in each.places)
        assert units <= MOST_UNITS
    assert all(each.starts - MARGIN > site.now for each in kept)
    given = [(r.places, r.starts, r.ends) for r in alongside.assigns]
    given += [(r.places, r.starts, r.ends) for r in alongside.waits]
    taken = [(place, since, until) for places, since, until in given for place in places]
    leaves = {pause.booking: pause.at for pause in alongside.pauses}
    taken += [(row.place, row.starts, leaves.get(row.booking, row.ends)) for row in site.held]
    for at, row in enumerate(kept):
        others = [(p, k.starts, k.ends) for k in kept[at + 1 :] for p in k.places]
        for place, since, until in (*taken, *others):
            meets = any(_meet(place, mine) for mine in row.places)
            assert not (meets and since < row.ends and row.starts < until), (row, place)
    return len(kept)


@pytest.mark.parametrize(
    "seed", [1, 4, 11, *(pytest.param(n, marks=pytest.mark.long) for n in range(20, 50))]
)
def test_in_random_worlds_nobody_pays_for_what_is_not_approved(seed: int) -> None:
    chance, kept = Random(seed), 0  # noqa: S311  a made-up world, the same each time
    world = a_world(chance)
    for number in range(4):
        arrivals = tuple(an_arrival(chance, number * 10 + n, world.site.now) for n in range(3))
        world.site = replace(world.site, requests=(*world.site.requests, *arrivals))
        site = replace(world.site, running=tuple(running_requests(world.site)))
        kept += _compared(site, _drawn(chance, world, number), chance)
        world.site = after(site, solve(site, RESTLESS))
        world.until(min(world.next_event(), world.site.now + 2 * HOUR))
    assert kept or seed not in (1, 4, 11)


def test_a_place_that_all_may_pass_is_kept_once_and_not_for_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each booking behind may have the running work paused, so it may pass. The place costs the same
    for forty of them as for four."""
    kept: list[str] = []
    keep = SoftPlaces._keep

    def counted(places: SoftPlaces, turn: Turn, before: Fit | None, freed: Collection[Fit]) -> None:
        kept.append(turn.request.booking)
        keep(places, turn, before, freed)

    monkeypatch.setattr(SoftPlaces, "_keep", counted)
    pending = awaiting(a_claim("p", 2, tenant="a", hours=2, submitted=-HOUR), until=2 * HOUR, decided_in=HOUR)
    held = running("h", *_places(4), tenant="b", since=-45 * MINUTE, ends=40 * HOUR)
    asked = [a_claim(f"c{n:02}", 4, tenant="a", hours=4, submitted=n) for n in range(40)]
    site = a_site(*asked, held=held, fleet=gpus(8), limits=(a_limit("a", 8, borrow=0), a_limit("b", 8)))
    site = replace(site, running=tuple(running_requests(site)))
    waits = {each.booking: each for each in solve(site, POLICY).waits}
    planned = tuple(
        replace(each, planned=PlannedStart(wait.starts, wait.ends, wait.places, "expected"))
        for each in asked
        if (wait := waits.get(each.booking))
    )
    plan = solve(replace(site, requests=planned, pending=(pending,)), POLICY)
    assert len(planned) > 30
    assert [each.booking for each in plan.soft if each.places] == ["p"]
    assert 1 <= len(kept) < 6
