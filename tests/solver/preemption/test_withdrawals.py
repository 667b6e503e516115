"""A pause that nobody needs is withdrawn, unless a later planned start is in the way."""

from dataclasses import replace

from allocation.solver import Extension, Held, Limit, Plan, Request, Snapshot, solve
from tests.solver.builders import HOUR, NOON, POLICY, a_limit, a_planned_start, gpus, whole
from tests.solver.pausing import a_claim, a_site, given, running

NOTICE_ENDS = 10 * 60
ENDS = 6 * HOUR


def leaving(*gpu: str) -> tuple[Held, ...]:
    """A booking that ran to six in the evening and has notice to leave in ten minutes."""
    rows = running("notified", *map(whole, gpu), ends=NOTICE_ENDS)
    return tuple(replace(row, pausing=True) for row in rows)


def its_rest(*places: str, starts: int = NOTICE_ENDS) -> Request:
    """What it would resume with; with places, its planned resume."""
    planned = (
        a_planned_start(starts, (ENDS - NOTICE_ENDS) / HOUR, *map(whole, places))
        if places
        else None
    )
    rest = a_claim(
        "notified", max(1, len(places)), tier="flex", tenant="firm", earliest=NOTICE_ENDS
    )
    return replace(rest, duration=ENDS - NOTICE_ENDS, paused=True, pauses=1, planned=planned)


def decided(
    *requests: Request, held: tuple[Held, ...], count: int = 1, limits: tuple[Limit, ...] = ()
) -> Plan:
    site: Snapshot = a_site(*requests, held=held, fleet=gpus(count), limits=limits)
    return solve(replace(site, unneeded=(Extension("notified", NOON + ENDS),)), POLICY)


def test_it_stays_and_wants_nothing_any_more() -> None:
    plan = decided(its_rest("n1-0", starts=2 * HOUR), held=leaving("n1-0"))
    assert plan.withdrawn == ("notified",)
    assert given(plan) == {}


def test_its_own_planned_start_to_go_on_is_not_in_its_way_but_its_room_is_in_that_of_others() -> (
    None
):
    plan = decided(its_rest("n1-0"), a_claim(), held=leaving("n1-0"))
    assert plan.withdrawn == ("notified",)
    # A newcomer starts when it ends; who may pause it asks in the next cycle.
    assert given(plan) == {"claim": ("wait", ENDS)}


def test_a_planned_start_that_was_given_since_stands_and_so_does_the_pause() -> None:
    promised = a_claim("since", planned=a_planned_start(HOUR, 1, whole("n1-0")))
    plan = decided(its_rest("n1-0", starts=2 * HOUR), promised, held=leaving("n1-0"))
    assert plan.withdrawn == ()
    assert given(plan)["since"] == ("wait", NOTICE_ENDS)
    assert "notified" in given(plan)


def test_a_planned_start_that_fits_elsewhere_at_its_own_start_gives_way() -> None:
    promised = a_claim("since", planned=a_planned_start(HOUR, 1, whole("n1-0")))
    plan = decided(its_rest(), promised, held=leaving("n1-0"), count=2)
    assert plan.withdrawn == ("notified",)
    assert given(plan) == {"since": ("assign", 0)}


def test_a_limit_that_others_use_by_then_holds() -> None:
    limits = (a_limit("firm", 1),)
    since = a_claim("since", tenant="firm", planned=a_planned_start(HOUR, 1, whole("n1-1")))
    held = leaving("n1-0")
    assert decided(its_rest(), held=held, count=2, limits=limits).withdrawn == ("notified",)
    assert decided(its_rest(), since, held=held, count=2, limits=limits).withdrawn == ()


def test_hardware_that_is_taken_out_of_service_keeps_nobody() -> None:
    site = a_site(its_rest(), held=leaving("n1-0"), fleet=gpus(1, usable=False))
    plan = solve(replace(site, unneeded=(Extension("notified", NOON + ENDS),)), POLICY)
    assert plan.withdrawn == ()


def test_a_gang_stays_whole_or_goes_whole() -> None:
    held = leaving("n1-0", "n1-1")
    promised = a_claim("since", planned=a_planned_start(HOUR, 1, whole("n1-1")))
    assert decided(its_rest("n1-0", "n1-1"), held=held, count=2).withdrawn == ("notified",)
    assert decided(its_rest(), promised, held=held, count=2).withdrawn == ()
