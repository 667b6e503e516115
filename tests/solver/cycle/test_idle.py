"""Idle bookings are taken only if somebody in the queue starts earlier by it."""

from dataclasses import replace

from solver import Held, Plan, Snapshot, solve
from solver.model.inputs import Entry
from solver.model.leaving import Idle
from tests.solver.builders import HOUR, NOON, POLICY, a_limit, gpus, whole
from tests.solver.pausing import GRACE, a_claim, a_site, running

LIMITS = (a_limit("lab", 8, borrow=0), a_limit("firm", 8, borrow=0))


def on(booking: str, *at: int, ends: int = 6 * HOUR) -> tuple[Held, ...]:
    """A booking of a tier that nobody can pause, on these GPUs of the node."""
    return running(booking, *(whole(f"n1-{n}") for n in at), tier="standard", ends=ends)


def idle(booking: str, since: int = HOUR, veto: int = 0, grace: int = 0) -> Idle:
    """An idle booking; since so long before NOON."""
    return Idle(booking, (f"n1-{booking}",), NOON - since, NOON + veto, grace)


def decided(site: Snapshot, *found: Idle) -> Plan:
    return solve(replace(site, idle=found), POLICY)


def taken(site: Snapshot, *found: Idle) -> list[str]:
    return [each.booking for each in decided(site, *found).idle]


def test_only_those_with_which_somebody_starts_earlier_are_taken() -> None:
    """x has idled for longer, but z is enough for one GPU."""
    held = (*on("x", 0), *on("y", 1, ends=HOUR // 4), *on("z", 2))
    site = a_site(a_claim(), fleet=gpus(3), held=held, limits=LIMITS)
    plan = decided(site, idle("x", 2 * HOUR), idle("z"))
    assert [(each.booking, each.beneficiary) for each in plan.idle] == [("x", "claim")]
    assert NOON < plan.idle[0].starts < NOON + GRACE
    # A grace period counts: then the other one is sooner free.
    assert taken(site, idle("x", 2 * HOUR, grace=GRACE), idle("z")) == ["z"]
    # All else is decided as if nobody were idle.
    assert replace(plan, idle=()) == decided(site)
    assert taken(site, idle("y")) == ["y"]


def test_nobody_is_taken_for_nobody_or_for_a_start_that_is_as_early_without() -> None:
    site = a_site(fleet=gpus(2), held=(*on("x", 0),), limits=LIMITS)
    assert taken(site, idle("x")) == []
    free = a_site(a_claim(), fleet=gpus(2), held=on("x", 0), limits=LIMITS)
    assert taken(free, idle("x")) == []
    # Another booking is in the way of the two GPUs until the evening.
    blocked = a_site(a_claim(count=2), fleet=gpus(2), held=(*on("x", 0), *on("y", 1)), limits=LIMITS)
    assert taken(blocked, idle("x")) == []
    assert taken(blocked, idle("x"), idle("y")) == ["x", "y"]


def test_nobody_is_taken_for_a_start_that_is_earlier_by_a_step_of_the_grid_or_less() -> None:
    """A planned start would not move for that, so the GPU would be taken for nothing."""
    busy = (*on("x", 0), *on("y", 1, ends=500))
    site = a_site(a_claim(earliest=300), fleet=gpus(2), held=busy, limits=LIMITS)
    assert taken(site, idle("x")) == []
    later = (*on("x", 0), *on("y", 1, ends=900))
    assert taken(replace(site, held=later), idle("x")) == ["x"]


def test_who_may_still_answer_or_leaves_already_is_not_taken() -> None:
    site = a_site(a_claim(), fleet=gpus(1), held=on("x", 0), limits=LIMITS)
    assert taken(site, idle("x", veto=1)) == []
    assert taken(site, idle("x")) == ["x"]
    leaves = tuple(replace(row, pausing=True) for row in on("x", 0))
    assert taken(replace(site, held=leaves), idle("x")) == []


def test_quota_that_an_idle_booking_uses_counts_as_room() -> None:
    limits = (a_limit("firm", 1, borrow=0),)
    site = a_site(a_claim("second", tenant="firm"), fleet=gpus(4), held=on("x", 0), limits=limits)
    assert taken(site, idle("x")) == ["x"]


def test_a_start_that_is_far_away_takes_nothing_yet() -> None:
    later = a_claim(earliest=HOUR)
    site = a_site(later, fleet=gpus(1), held=on("x", 0), limits=LIMITS)
    assert taken(site, idle("x")) == []
    assert taken(replace(site, now=NOON + HOUR), idle("x")) == ["x"]


def test_the_waiting_list_gets_an_offer_of_idle_gpus_if_it_gets_none_without() -> None:
    """It is taken only for an offer that could be answered within ten minutes of the release."""
    site = a_site(fleet=gpus(2), held=(*on("x", 0), *on("y", 1)), limits=LIMITS)
    request = a_claim("entry", hours=1)
    entry = Entry("entry", replace(request, owner="somebody"), ((NOON, NOON + 2 * HOUR),))
    waits = replace(site, entries=(entry,))
    plan = decided(waits, idle("x"))
    assert [(each.booking, each.beneficiary) for each in plan.idle] == [("x", "entry")]
    assert plan.idle[0].starts == NOON + 360
    assert plan.offers == (), "the next cycle makes the offer"
    assert taken(waits, idle("x"), idle("y", 2 * HOUR)) == ["y"], "one is enough"
    assert taken(waits, idle("x", veto=1)) == []
    later = replace(entry, windows=((NOON + HOUR, NOON + 3 * HOUR),))
    assert taken(replace(site, entries=(later,)), idle("x")) == []
    # Who gets an offer without it takes nobody's GPUs for a better one.
    free = replace(a_site(fleet=gpus(2), held=on("x", 0), limits=LIMITS), entries=(entry,))
    assert taken(free, idle("x")) == []
