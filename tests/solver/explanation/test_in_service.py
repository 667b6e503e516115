"""When too few of a class are in service, what is flexible waits in line and what is fixed asks."""

from dataclasses import replace

import pytest

from solver import (
    Maintenance,
    Plan,
    PlannedStart,
    Policy,
    QuoteRequest,
    Snapshot,
    quote,
    solve,
)
from tests.solver.builders import (
    DAY,
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_request,
    a_snapshot,
    an_ask,
    gpus,
)

OUT = gpus(2, usable=False)
L40S = gpus(2, "l40s", "l40s", node="n2", domains=None)


def closed(snapshot: Snapshot, *, until: int) -> Snapshot:
    """All GPUs are in maintenance from now until then."""
    away = tuple(Maintenance(gpu.id, NOON, NOON + until) for gpu in snapshot.gpus)
    return replace(snapshot, blackouts=away)


def only_wait(plan: Plan) -> tuple[list[str], int | None]:
    """Codes of why the one booking waits, and when the first of them ends, from NOON."""
    assert not plan.assigns
    assert not plan.refusals
    (wait,) = plan.waits
    back = wait.reasons[0].frees_at
    return [each.code for each in wait.reasons], back and back - NOON


def test_a_flexible_booking_waits_when_all_of_its_class_are_out_of_service() -> None:
    plan = solve(a_snapshot(a_request(), fleet=OUT), POLICY)
    assert only_wait(plan) == (["none_in_service"], None)
    (wait,) = plan.waits
    assert wait.reasons[0].facts == {"gpu_class": "h100", "out": 2, "gpus": 2}
    assert wait.places == ()
    assert wait.starts >= NOON + POLICY.horizon


def test_it_waits_too_when_what_is_left_is_too_few_for_its_gang() -> None:
    gang = a_request(ask=an_ask(3, together="node", required=True))
    fleet = gpus(2) + gpus(4, node="n2", usable=False)
    assert only_wait(solve(a_snapshot(gang, fleet=fleet), POLICY))[0] == ["none_in_service"]
    pair = a_request(ask=an_ask(2, together="node", required=True))
    assert len(solve(a_snapshot(pair, fleet=fleet), POLICY).assigns) == 1


def test_a_class_that_is_in_service_is_taken_instead() -> None:
    plan = solve(a_snapshot(a_request(ask=an_ask(1, "h100", "l40s")), fleet=OUT + L40S), POLICY)
    assert [given.gpu_class for given in plan.assigns] == ["l40s"]


def test_it_does_not_wait_for_more_than_the_fleet_has() -> None:
    (refused,) = solve(a_snapshot(a_request(ask=an_ask(3)), fleet=OUT), POLICY).refusals
    assert [each.code for each in refused.reasons] == ["not_enough_gpus"]


def test_maintenance_that_outlasts_the_horizon_is_waited_for_until_it_ends() -> None:
    policy = Policy(1, horizon=DAY)
    site = closed(a_snapshot(a_request(), fleet=gpus(2)), until=3 * DAY)
    assert only_wait(solve(site, policy)) == (["none_in_service"], 3 * DAY)
    soon = closed(a_snapshot(a_request(), fleet=gpus(2)), until=HOUR)
    assert [wait.starts for wait in solve(soon, policy).waits] == [NOON + HOUR]


def test_what_is_only_full_as_far_ahead_as_is_planned_is_refused_as_before() -> None:
    held = tuple(a_held(f"n1-{gpu}", ends=3 * DAY) for gpu in range(8))
    (refused,) = solve(a_snapshot(a_request(), held=held), Policy(1, horizon=DAY)).refusals
    assert refused.reasons[0].code == "no_room_in_horizon"


@pytest.mark.parametrize(("latest", "waits"), [(2 * HOUR, True), (HOUR, True), (HOUR - 1, False)])
def test_it_waits_only_while_its_deadline_can_be_met(latest: int, *, waits: bool) -> None:
    plan = solve(a_snapshot(a_request(latest=latest), fleet=OUT), POLICY)
    assert bool(plan.waits) == waits
    assert all(wait.ends <= NOON + latest for wait in plan.waits)


def test_the_start_that_nothing_proves_is_not_told_anew_each_day() -> None:
    first = solve(a_snapshot(a_request(), fleet=OUT), POLICY).waits[0]
    again = a_request(planned=PlannedStart(first.starts, first.ends, ()))
    for days in (1, 7, 13):
        later = solve(a_snapshot(again, fleet=OUT, now=days * DAY), POLICY).waits[0]
        assert (later.starts, later.reasons) == (first.starts, first.reasons)


def test_who_waited_goes_before_who_comes_when_hardware_is_back() -> None:
    planned = PlannedStart(NOON + 28 * DAY, NOON + 28 * DAY + HOUR, ())
    waited = a_request("z", planned=planned)
    plan = solve(a_snapshot(a_request("a", submitted=1), waited, fleet=gpus(1)), POLICY)
    assert [given.booking for given in plan.assigns] == ["z"]
    assert [(wait.booking, wait.starts) for wait in plan.waits] == [("a", NOON + HOUR)]


def test_a_fixed_window_is_refused_with_what_would_work() -> None:
    asked = a_request(fixed=True, earliest=HOUR)
    (refused,) = solve(a_snapshot(asked, fleet=OUT + L40S), POLICY).refusals
    assert "hardware_out" in [each.code for each in refused.reasons]
    assert [each.gpu_class for each in refused.alternatives] == ["l40s"]


def test_a_quote_says_what_is_out_of_service_instead_of_no_room() -> None:
    question = QuoteRequest(an_ask(), HOUR, NOON, None, fixed=False, tenant="lab", project="folding")
    answer = quote(a_snapshot(fleet=OUT + L40S), POLICY, question)
    assert answer.blocked is not None
    assert answer.blocked.code == "none_in_service"
    assert [option.kind for option in answer.options] == ["other_class"]
    late = quote(a_snapshot(fleet=OUT), POLICY, replace(question, latest=NOON + 2 * HOUR))
    assert late.blocked is not None
    assert late.blocked.code == "none_in_service"
    fixed = quote(a_snapshot(fleet=OUT), POLICY, replace(question, fixed=True))
    assert fixed.blocked is not None
    assert fixed.blocked.code == "gpus_busy"
