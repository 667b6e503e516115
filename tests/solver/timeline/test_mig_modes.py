"""GPUs that change between whole and slices by a reset: only while they are empty, and in time."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from solver import (
    Assign,
    Extension,
    Gpu,
    Plan,
    Policy,
    Refuse,
    Request,
    Snapshot,
    Waiting,
    digest,
    solve,
)
from solver.cycle.quote import Availability, quote
from solver.model.inputs import Held
from solver.model.quote import QuoteRequest
from solver.timeline.mig_modes import ModeCalendar
from tests.rings import holds_for
from tests.solver import truth
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    SWITCH,
    a_held,
    a_planned_start,
    a_request,
    a_snapshot,
    an_ask,
    gpus,
    whole,
)
from tests.solver.strategies import the_next

FIXED = replace(POLICY, mode_changes=0)


def a100s(
    whole_ones: int = 0, sliced: int = 0, *, node: str = "n1", domains: int | None = 1
) -> tuple[Gpu, ...]:
    """One node of A100s, the first of them standing whole and the others sliced."""
    fleet = gpus(whole_ones + sliced, "a100", "a100-40gb", node=node, domains=domains)
    return tuple(
        replace(gpu, stands="whole" if number < whole_ones else "sliced") for number, gpu in enumerate(fleet)
    )


def on_a100(count: int = 1, profile: str | None = None) -> Request:
    """An hour on A100s."""
    return a_request(ask=an_ask(count, "a100", profile=profile))


def a_slice(gpu: str, *, starts: int = 0, ends: int = HOUR, start: int = 0) -> Held:
    """Half of an A100."""
    return a_held(gpu, starts=starts, ends=ends, profile="3g.20gb", start=start, size=4)


def starts_of(plan: Plan) -> dict[str, int]:
    """Seconds from noon by booking."""
    return {each.booking: each.starts - NOON for each in truth.given_by(plan)}


def codes_of(plan: Plan, booking: str = "b1") -> list[str]:
    """Why a booking is not given at once, or what its start waits for."""
    rows: list[Assign | Waiting | Refuse] = [*plan.assigns, *plan.waits, *plan.refusals]
    return [why.code for row in rows if row.booking == booking for why in row.reasons]


class TestWhen:
    def test_a_whole_node_is_had_once_its_idle_slices_have_changed(self) -> None:
        plan = solve(a_snapshot(on_a100(8), fleet=a100s(4, 4)), POLICY)
        assert [row.starts for row in plan.assigns] == [NOON + SWITCH]
        (why,) = (why for why in plan.assigns[0].reasons if why.code == "mode_change")
        assert why.rule == "R96"
        assert why.facts == {"gpu_class": "a100", "gpus": 4, "mode": "whole", "seconds": SWITCH}

    def test_slices_are_had_of_gpus_that_stand_whole(self) -> None:
        plan = solve(a_snapshot(on_a100(profile="3g.20gb"), fleet=a100s(2)), POLICY)
        assert starts_of(plan) == {"b1": SWITCH}

    def test_what_stands_as_it_is_needed_starts_at_once(self) -> None:
        plan = solve(a_snapshot(on_a100(2), fleet=a100s(2, 2)), POLICY)
        assert starts_of(plan) == {"b1": 0}
        assert {place.gpu for place in plan.assigns[0].places} == {"n1-0", "n1-1"}

    def test_the_change_begins_when_the_last_slice_has_left(self) -> None:
        held = (a_slice("n1-0", ends=900), a_slice("n1-0", ends=2 * HOUR, start=4))
        plan = solve(a_snapshot(on_a100(), fleet=a100s(0, 1), held=held), POLICY)
        assert starts_of(plan) == {"b1": 2 * HOUR + SWITCH}

    def test_nothing_is_planned_that_would_leave_no_time_to_change_back(self) -> None:
        held = (a_slice("n1-0", starts=HOUR + SWITCH, ends=2 * HOUR),)
        in_time = solve(a_snapshot(on_a100(), fleet=a100s(1), held=held), POLICY)
        assert starts_of(in_time) == {"b1": 0}
        held = (a_slice("n1-0", starts=HOUR + SWITCH - 1, ends=2 * HOUR),)
        too_late = solve(a_snapshot(on_a100(), fleet=a100s(1), held=held), POLICY)
        assert starts_of(too_late) == {"b1": 2 * HOUR + SWITCH}

    def test_rows_of_one_mode_abut(self) -> None:
        held = (a_held("n1-0", ends=HOUR),)
        assert starts_of(solve(a_snapshot(on_a100(), fleet=a100s(1), held=held), POLICY)) == {"b1": HOUR}

    def test_a_fixed_window_right_after_the_other_mode_is_refused_with_the_next(self) -> None:
        request = a_request(ask=an_ask(1, "a100"), earliest=HOUR, fixed=True)
        held = (a_slice("n1-0", ends=HOUR),)
        plan = solve(a_snapshot(request, fleet=a100s(0, 1), held=held), POLICY)
        assert codes_of(plan) == ["gpus_busy", "mode_change"]
        assert plan.refusals[0].reasons[0].frees_at == NOON + HOUR + SWITCH

    def test_a_quote_says_the_same_start(self) -> None:
        ask = an_ask(8, "a100")
        question = QuoteRequest(ask, HOUR, NOON, None, fixed=False, tenant="lab", project="folding")
        site = a_snapshot(fleet=a100s(4, 4))
        assert quote(site, POLICY, question).options[0].starts == NOON + SWITCH

    def test_what_is_free_when_knows_of_changes(self) -> None:
        held = (a_slice("n1-2", starts=HOUR, ends=2 * HOUR),)
        site = a_snapshot(fleet=a100s(1, 2), held=held)
        free = Availability(site, POLICY).free(NOON, NOON + 3 * HOUR)
        assert free["n1-0"] == ((NOON, NOON + 3 * HOUR),)
        assert free["n1-1"] == ((NOON + SWITCH, NOON + 3 * HOUR),)
        assert free["n1-2"] == (
            (NOON + SWITCH, NOON + HOUR - SWITCH),
            (NOON + 2 * HOUR + SWITCH, NOON + 3 * HOUR),
        )

    def test_an_extension_leaves_the_time_for_the_change_after_it(self) -> None:
        held = (a_held("n1-0", booking="k"), a_slice("n1-0", starts=2 * HOUR, ends=3 * HOUR))
        asked = (Extension("k", NOON + 2 * HOUR),)
        site = a_snapshot(fleet=a100s(1), held=held, extensions=asked)
        (answer,) = solve(site, POLICY).extensions
        assert not answer.granted
        assert dict(answer.reasons[0].numbers) == {"possible_until": NOON + 2 * HOUR - SWITCH}
        shorter = replace(site, extensions=(Extension("k", NOON + 2 * HOUR - SWITCH),))
        assert solve(shorter, POLICY).extensions[0].granted

    def test_a_planned_start_is_not_put_off_by_a_change_that_has_to_come_first(self) -> None:
        promised = replace(on_a100(), planned=a_planned_start(HOUR, 1, whole("n1-0")))
        newcomer = replace(on_a100(profile="3g.20gb"), booking="b2", duration=HOUR)
        plan = solve(a_snapshot(promised, newcomer, fleet=a100s(0, 1)), POLICY)
        assert starts_of(plan) == {"b1": SWITCH, "b2": HOUR + 300}

    def test_a_start_is_reached_by_cycles_that_come_meanwhile(self) -> None:
        site = a_snapshot(on_a100(8), fleet=a100s(4, 4))
        plan = solve(site, replace(POLICY, freeze_horizon=1))
        assert [row.starts for row in plan.assigns] == [NOON + SWITCH], "given, not promised anew"
        later = the_next(site, plan, 10)
        assert [row.starts for row in later.held][:1] == [NOON + SWITCH]


class TestWhere:
    def test_a_slice_goes_where_slices_are(self) -> None:
        fleet = (*a100s(2, node="n1"), *a100s(0, 1, node="n2"))
        plan = solve(a_snapshot(on_a100(profile="3g.20gb"), fleet=fleet), POLICY)
        assert (starts_of(plan), plan.assigns[0].places[0].gpu) == ({"b1": 0}, "n2-0")

    def test_of_two_nodes_that_is_chosen_where_fewer_change(self) -> None:
        fleet = (*a100s(1, 3, node="n1"), *a100s(3, 1, node="n2"))
        request = a_request(ask=an_ask(4, "a100", together="node", required=True))
        plan = solve(a_snapshot(request, fleet=fleet), POLICY)
        assert {place.gpu[:2] for place in plan.assigns[0].places} == {"n2"}

    def test_within_a_node_those_that_need_no_change_come_first(self) -> None:
        request = a_request(ask=an_ask(2, "a100"), earliest=HOUR)
        for domains in (1, 2, None):
            fleet = a100s(2, 4, domains=domains)
            plan = solve(a_snapshot(request, fleet=fleet), POLICY)
            assert {p.gpu for p in plan.waits[0].places} == {"n1-0", "n1-1"}
        three = replace(request, ask=an_ask(3, "a100"))
        (wait,) = solve(a_snapshot(three, fleet=a100s(2, 4)), POLICY).waits
        assert {"n1-0", "n1-1"} < {place.gpu for place in wait.places}

    def test_two_slices_lie_on_one_gpu_that_changes(self) -> None:
        plan = solve(a_snapshot(on_a100(2, "3g.20gb"), fleet=a100s(4)), POLICY)
        assert len({place.gpu for place in plan.assigns[0].places}) == 1

    def test_nobody_is_paused_for_a_gpu_of_the_other_mode(self) -> None:
        spot = replace(a_slice("n1-0", starts=-HOUR), tier="spot", since=NOON - HOUR)
        plan = solve(a_snapshot(on_a100(), fleet=a100s(0, 1), held=(spot,)), POLICY)
        assert plan.pauses == ()
        assert starts_of(plan) == {"b1": HOUR + SWITCH}


class TestPatience:
    """No change is planned for a start that is only little earlier."""

    @pytest.mark.parametrize(
        ("busy_until", "starts"),
        [
            (POLICY.mode_patience, POLICY.mode_patience),
            (POLICY.mode_patience + SWITCH, POLICY.mode_patience + SWITCH),
            (POLICY.mode_patience + SWITCH + 1, SWITCH),
        ],
    )
    def test_a_slice_waits_a_little_for_the_slices_there_are(self, busy_until: int, starts: int) -> None:
        held = (
            a_slice("n1-1", ends=busy_until),
            a_slice("n1-1", ends=busy_until, start=4),
        )
        site = a_snapshot(on_a100(profile="3g.20gb"), fleet=a100s(1, 1), held=held)
        assert starts_of(solve(site, POLICY)) == {"b1": starts}

    def test_short_asks_of_both_kinds_do_not_turn_two_gpus_about(self) -> None:
        """An hour of five-minute asks, each kind in turn: each GPU stays as it is."""
        site = a_snapshot(fleet=a100s(1, 1))
        changes = 0
        for number in range(24):
            profile = None if number % 2 else "3g.20gb"
            request = replace(
                on_a100(profile=profile),
                booking=f"b{number}",
                duration=290,
                earliest=site.now,
                submitted=site.now,
            )
            asked = replace(site, requests=(*site.requests, request))
            plan = solve(asked, POLICY)
            changes += sum("mode_change" in [w.code for w in row.reasons] for row in plan.assigns)
            site = the_next(asked, plan, 150)
        assert changes == 0


class TestForbidden:
    def test_without_changes_a_gpu_keeps_the_mode_it_stands_in(self) -> None:
        plan = solve(a_snapshot(on_a100(8), fleet=a100s(4, 4)), FIXED)
        assert codes_of(plan) == ["mode_fixed"]
        facts = {"fixed": 4, "gpu_class": "a100", "gpus": 8, "mode": "sliced"}
        assert plan.refusals[0].reasons[0].facts == facts

    def test_a_pin_is_named_with_whose_it_is(self) -> None:
        fleet = tuple(
            replace(gpu, mode="sliced", pinned=True) if gpu.index > 5 else gpu for gpu in a100s(4, 4)
        )
        plan = solve(a_snapshot(on_a100(8), fleet=fleet), POLICY)
        (why,) = plan.refusals[0].reasons
        assert (why.rule, why.code) == ("R95", "mode_pinned")
        assert why.facts == {"gpu_class": "a100", "gpus": 8, "mode": "sliced", "pinned": 2}
        assert starts_of(solve(a_snapshot(on_a100(6), fleet=fleet), POLICY)) == {"b1": SWITCH}

    def test_a_pin_to_the_other_mode_waits_for_its_change(self) -> None:
        fleet = (replace(a100s(0, 1)[0], mode="whole", pinned=True),)
        plan = solve(a_snapshot(on_a100(), fleet=fleet), POLICY)
        assert starts_of(plan) == {"b1": SWITCH}

    def test_gpus_that_change_at_no_cost_are_not_looked_at(self) -> None:
        site = a_snapshot(a_request(ask=an_ask(profile="3g.40gb")))
        assert starts_of(solve(site, POLICY)) == {"b1": 0}


@st.composite
def crowds(draw: st.DrawFn) -> Snapshot:
    """A crowd of short whole and sliced asks for few A100s, of both modes."""
    fleet: tuple[Gpu, ...] = ()
    for number in range(draw(st.integers(1, 2))):
        node = a100s(
            draw(st.integers(0, 3)),
            draw(st.integers(1, 3)),
            node=f"n{number}",
            domains=draw(st.sampled_from((None, 1, 2))),
        )
        fleet += node
    profiles = st.sampled_from((None, None, "3g.20gb", "1g.5gb", "2g.10gb"))
    running_requests = []
    for number in range(draw(st.integers(4, 14))):
        profile = draw(profiles)
        fixed = draw(st.integers(0, 3)) == 0
        request = a_request(
            f"b{number}",
            an_ask(
                draw(st.integers(1, 3)),
                "a100",
                profile=profile,
                together=draw(st.sampled_from(("any", "node", "domain"))),
                required=draw(st.booleans()),
            ),
            earliest=draw(st.integers(0, 20)) * 97,
            fixed=fixed,
            priority=draw(st.sampled_from((10, 50, 90))),
            submitted=number,
        )
        running_requests.append(replace(request, duration=draw(st.integers(1, 20)) * 113))
    held = tuple(
        a_slice(gpu.id, ends=draw(st.integers(1, 9)) * 211)
        if gpu.stands == "sliced"
        else a_held(gpu.id, ends=draw(st.integers(1, 9)) * 211)
        for gpu in fleet
        if draw(st.integers(0, 2)) == 0
    )
    return a_snapshot(*running_requests, fleet=fleet, held=held)


@holds_for(crowds(), st.sampled_from([1, 15, 29, 30, 31, 60]), few=25)
def test_modes_have_their_time_and_planned_starts_hold_over_three_cycles(
    site: Snapshot, seconds: int
) -> None:
    for _ in range(3):
        plan = solve(site, POLICY)
        assert truth.overlaps(site, plan) == []
        assert truth.uncut(site, plan) == []
        assert truth.illegal(site, plan) == []
        assert digest(solve(site, POLICY)) == digest(plan)
        planned = {wait.booking: wait for wait in plan.waits if wait.places}
        site = the_next(site, plan, seconds)
        after = solve(site, POLICY)
        for wait in after.waits:
            before = planned.get(wait.booking)
            if before is not None and wait.starts > max(before.starts, site.now):
                assert before.strength == "expected"
                assert wait.delayed_by is not None
                assert wait.delayed_by.code == "overtaken"


def test_without_the_rows_of_modes_a_gpu_is_given_while_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = (a_slice("n1-0", ends=900),)
    site = a_snapshot(on_a100(), fleet=a100s(0, 1), held=held)
    assert truth.uncut(site, solve(site, POLICY)) == []
    monkeypatch.setattr(ModeCalendar, "add", lambda *_: None)
    assert truth.uncut(site, solve(site, POLICY)) != []


def test_the_policy_has_both_tunables() -> None:
    assert (Policy(1).mode_changes, Policy(1).mode_patience) == (1, 300)
