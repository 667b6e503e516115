"""Worked cycles, each keyed by what it shows."""

from dataclasses import replace

import pytest

from solver import Extension, Override, Place, Plan, Policy, Refuse, Request, Waiting, solve
from solver.model.inputs import Held, Strength
from tests.solver.builders import (
    DAY,
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
from tests.solver.truth import given_by

MINUTE = 60


def starts(plan: Plan) -> dict[str, int]:
    """Start of everything that got one, in seconds from noon."""
    return {given.booking: given.starts - NOON for given in given_by(plan)}


def codes(plan: Plan, booking: str) -> list[str]:
    """Reason codes of a booking that waits or is refused."""
    answers: list[Waiting | Refuse] = [*plan.waits, *plan.refusals]
    return [r.code for each in answers if each.booking == booking for r in each.reasons]


def all_busy(ends: int = HOUR) -> tuple[Held, ...]:
    """Every GPU of the first node runs something until `ends`."""
    return tuple(a_held(f"n1-{index}", ends=ends) for index in range(8))


def alone(request: Request, **site: object) -> Plan:
    """A cycle for one booking."""
    return solve(a_snapshot(request, **site), POLICY)  # type: ignore[arg-type]  # as a_snapshot takes


class TestFlexible:
    def test_what_fits_now_starts_this_very_second(self) -> None:
        plan = solve(a_snapshot(a_request(), now=17), POLICY)
        assert starts(plan) == {"b1": 17}
        assert plan.assigns[0].reasons[0].code == "placed"

    def test_what_does_not_fit_waits_for_the_end_of_what_is_in_its_way(self) -> None:
        plan = alone(a_request(), held=all_busy(ends=HOUR - 123))
        assert (starts(plan), plan.assigns) == ({"b1": HOUR - 123}, ())
        assert len(plan.waits[0].places) == 1
        # A later end is rounded up to the grid.
        assert starts(alone(a_request(), held=all_busy(ends=2 * HOUR + 123))) == {"b1": 2 * HOUR + 300}

    def test_inside_the_freeze_horizon_it_is_given_and_no_longer_waits(self) -> None:
        plan = alone(a_request(), held=all_busy(ends=MINUTE))
        assert [given.booking for given in plan.assigns] == ["b1"]

    def test_a_request_for_later_is_kept_on_the_grid(self) -> None:
        plan = alone(a_request(earliest=HOUR + 1))
        assert starts(plan) == {"b1": HOUR + 300}
        assert codes(plan, "b1") == ["not_before"]

    def test_a_gap_that_is_too_short_is_not_used(self) -> None:
        fleet = gpus(1)
        held = (a_held("n1-0", ends=HOUR), a_held("n1-0", starts=2 * HOUR, ends=4 * HOUR))
        plan = alone(a_request(hours=2), fleet=fleet, held=held)
        assert starts(plan) == {"b1": 4 * HOUR}
        plan = alone(a_request(hours=1), fleet=fleet, held=held)
        assert starts(plan) == {"b1": HOUR}

    def test_any_of_the_classes_will_do_and_the_first_named_wins_a_tie(self) -> None:
        fleet = gpus() + gpus(4, "l40s", "l40s", node="n2", domains=None)
        both = an_ask(1, "l40s", "h100")
        assert alone(a_request(ask=both), fleet=fleet).assigns[0].gpu_class == "l40s"
        busy = tuple(a_held(f"n2-{index}") for index in range(4))
        assert alone(a_request(ask=both), fleet=fleet, held=busy).assigns[0].gpu_class == "h100"

    def test_what_cannot_end_before_its_deadline_is_refused_with_the_next_best(self) -> None:
        plan = alone(a_request(latest=HOUR + 60), held=all_busy())
        assert codes(plan, "b1") == ["deadline_unreachable", "gpus_busy"]
        assert plan.refusals[0].alternatives[0].starts == NOON + HOUR

    def test_a_deadline_in_the_past_says_so(self) -> None:
        assert codes(alone(a_request(latest=-5)), "b1") == ["deadline_passed"]

    def test_no_start_within_the_horizon_is_a_refusal(self) -> None:
        plan = solve(a_snapshot(a_request(), held=all_busy(ends=3 * DAY)), Policy(1, horizon=DAY))
        assert codes(plan, "b1")[0] == "no_room_in_horizon"

    def test_gpus_out_of_service_take_nothing_new_and_keep_what_they_have(self) -> None:
        fleet = gpus(1) + gpus(1, node="n2", usable=False)
        plan = alone(a_request(), fleet=fleet, held=(a_held("n1-0"), a_held("n2-0")))
        assert codes(plan, "b1") == ["gpus_busy"], "what is out is taken, too: it delays nothing"
        assert starts(plan) == {"b1": HOUR}


class TestLine:
    def test_the_higher_priority_then_the_earlier_submission_then_the_id_goes_first(self) -> None:
        one_gpu = gpus(1)
        requests = [
            a_request("late", submitted=2),
            a_request("b", submitted=1),
            a_request("a", submitted=1),
            a_request("spot", priority=10),
            a_request("assured", priority=90, submitted=9),
        ]
        order = starts(solve(a_snapshot(*requests, fleet=one_gpu), POLICY))
        assert sorted(order, key=order.__getitem__) == ["assured", "a", "b", "late", "spot"]

    def test_a_small_booking_slips_in_where_it_delays_nobody(self) -> None:
        big = a_request("big", an_ask(8), hours=4)
        short = a_request("short", hours=1, submitted=1)
        long = a_request("long", hours=2, submitted=2)
        plan = solve(a_snapshot(big, short, long, held=(a_held("n1-0"),)), POLICY)
        assert starts(plan) == {"big": HOUR, "short": 0, "long": 5 * HOUR}
        assert codes(plan, "long") == ["line"]

    def test_without_reservations_the_long_one_would_delay_the_big_one(self) -> None:
        """The negative control of conservative backfill: the long one alone starts at once."""
        long = a_request("long", hours=2, submitted=2)
        assert starts(alone(long, held=(a_held("n1-0"),))) == {"long": 0}

    def test_the_place_in_line_is_said_out_of_all_that_wait(self) -> None:
        requests = [a_request(f"b{n}", an_ask(8), submitted=n) for n in range(4)]
        plan = solve(a_snapshot(*requests), POLICY)
        line = [dict(wait.reasons[0].numbers) for wait in plan.waits]
        assert [(each["position"], each["of"]) for each in line] == [(1, 3), (2, 3), (3, 3)]


class TestFixed:
    def test_it_goes_exactly_where_it_was_asked_for_even_off_the_grid(self) -> None:
        plan = alone(a_request(fixed=True, earliest=5 * HOUR + 7))
        assert starts(plan) == {"b1": 5 * HOUR + 7}
        assert plan.assigns[0].ends == NOON + 6 * HOUR + 7

    def test_a_busy_window_is_refused_with_the_next_free_one_of_the_same_length(self) -> None:
        fleet = gpus() + gpus(4, "l40s", "l40s", node="n2", domains=None)
        request = a_request(ask=an_ask(2), fixed=True, earliest=60)
        plan = alone(request, fleet=fleet, held=all_busy())
        assert codes(plan, "b1") == ["gpus_busy"]
        assert plan.refusals[0].reasons[0].frees_at == NOON + HOUR
        assert [(each.gpu_class, each.starts - NOON) for each in plan.refusals[0].alternatives] == [
            ("h100", HOUR),
            ("l40s", 60),
        ]
        fewer = solve(a_snapshot(request, fleet=fleet, held=all_busy()), replace(POLICY, alternatives=1))
        assert [each.gpu_class for each in fewer.refusals[0].alternatives] == ["h100"]

    def test_a_busy_window_offers_as_many_gpus_as_are_free_in_it(self) -> None:
        taken = tuple(a_held(f"n1-{index}", ends=DAY) for index in range(3))
        request = a_request(ask=an_ask(7), fixed=True, earliest=HOUR)
        plan = alone(request, held=taken)
        assert codes(plan, "b1") == ["gpus_busy"]
        offered = [
            (each.count, each.starts - NOON) for each in plan.refusals[0].alternatives if each.profile is None
        ]
        assert offered == [(7, DAY), (5, HOUR)]
        assert starts(alone(replace(request, ask=an_ask(5)), held=taken)) == {"b1": HOUR}
        nothing = alone(replace(request, ask=an_ask(1)), held=all_busy(ends=2 * DAY))
        assert [each.count for each in nothing.refusals[0].alternatives] == [1]

    def test_a_limit_at_some_times_offers_what_it_allows_then_and_the_time_after_it(self) -> None:
        lower = Override("o", "lab", "h100", NOON, NOON + 10 * HOUR, -5 * 56_000)
        request = a_request(ask=an_ask(7), fixed=True, earliest=HOUR)
        snapshot = replace(a_snapshot(request, limits=(a_limit("lab", 8),)), overrides=(lower,))
        (refusal,) = solve(snapshot, POLICY).refusals
        offered = [(each.count, each.starts - NOON) for each in refusal.alternatives if each.profile is None]
        assert offered == [(7, 10 * HOUR), (3, HOUR)]

    def test_a_limit_at_some_times_offers_the_longest_window_that_it_allows(self) -> None:
        lower = tuple(
            Override(f"o{day}", "lab", "h100", at := NOON + day * DAY, at + 8 * HOUR, -8 * 56_000)
            for day in range(30)
        )
        longer = a_request(ask=an_ask(1), hours=20)
        snapshot = replace(a_snapshot(longer, limits=(a_limit("lab", 8),)), overrides=lower)
        (refusal,) = solve(snapshot, POLICY).refusals
        assert [each.code for each in refusal.reasons][:2] == ["tenant_quota", "no_room_in_horizon"]
        offered = [(each.starts - NOON, each.ends - each.starts) for each in refusal.alternatives]
        assert (8 * HOUR, 16 * HOUR) in offered
        # Between the limits of two days, from a start that is asked for.
        fixed = replace(longer, fixed=True, earliest=NOON + 10 * HOUR)
        (refusal,) = solve(replace(snapshot, requests=(fixed,)), POLICY).refusals
        offered = [(each.starts - NOON, each.ends - each.starts) for each in refusal.alternatives]
        assert (10 * HOUR, 14 * HOUR) in offered
        short = replace(longer, latest=NOON + 20 * HOUR)
        (refusal,) = solve(replace(snapshot, requests=(short,)), POLICY).refusals
        offered = [(each.starts - NOON, each.ends - each.starts) for each in refusal.alternatives]
        assert (8 * HOUR, 12 * HOUR) in offered

    def test_room_that_is_only_promised_makes_it_busy_too(self) -> None:
        promised = a_request("p", an_ask(8), planned=a_planned_start(HOUR, 1, *map(whole_of, range(8))))
        fixed = a_request("f", an_ask(1), fixed=True, earliest=HOUR, submitted=1)
        plan = solve(a_snapshot(promised, fixed, held=all_busy()), POLICY)
        assert starts(plan) == {"p": HOUR}
        assert codes(plan, "f") == ["window_busy"]

    def test_a_window_that_has_begun_is_given_what_is_left_of_it(self) -> None:
        plan = alone(a_request(fixed=True, earliest=-600))
        assert (plan.assigns[0].starts, plan.assigns[0].ends) == (NOON, NOON + HOUR - 600)

    def test_a_window_that_is_over_is_refused(self) -> None:
        assert codes(alone(a_request(fixed=True, earliest=-HOUR)), "b1") == ["window_past"]

    def test_a_window_beyond_the_horizon_is_refused(self) -> None:
        assert codes(alone(a_request(fixed=True, earliest=29 * DAY)), "b1") == ["advance_window"]


class TestNever:
    def test_more_than_exist(self) -> None:
        assert codes(alone(a_request(ask=an_ask(9))), "b1") == ["not_enough_gpus"]

    def test_more_than_lie_together(self) -> None:
        ask = an_ask(5, together="domain", required=True)
        assert codes(alone(a_request(ask=ask), fleet=gpus(8, domains=2)), "b1") == ["impossible_together"]

    def test_a_class_that_is_not_there(self) -> None:
        assert codes(alone(a_request(ask=an_ask(1, "b300"))), "b1") == ["unknown_class"]

    def test_a_slice_that_the_model_cannot_make(self) -> None:
        assert codes(alone(a_request(ask=an_ask(profile="5g.1gb"))), "b1") == ["impossible_profile"]

    def test_a_slice_of_gpus_that_are_fixed_to_whole(self) -> None:
        plan = alone(a_request(ask=an_ask(profile="1g.10gb")), fleet=gpus(mode="whole"))
        assert codes(plan, "b1") == ["mode_fixed"]

    def test_slices_with_nvlink(self) -> None:
        ask = an_ask(2, profile="1g.10gb", together="domain", required=True)
        assert codes(alone(a_request(ask=ask)), "b1") == ["impossible_together"]

    def test_over_the_whole_limit_of_the_tenant_or_the_project(self) -> None:
        plan = alone(a_request(ask=an_ask(3)), limits=(a_limit("lab", 2),))
        assert codes(plan, "b1") == ["tenant_quota"]
        plan = alone(a_request(ask=an_ask(3)), limits=(a_limit("folding", 2),))
        assert codes(plan, "b1") == ["project_quota"]

    def test_one_class_that_can_is_enough(self) -> None:
        plan = alone(a_request(ask=an_ask(1, "b300", "h100")))
        assert plan.assigns[0].gpu_class == "h100"


class TestQuota:
    def test_a_limit_delays_until_enough_of_the_own_work_has_ended(self) -> None:
        held = (a_held("n1-0", ends=3 * HOUR, tenant="lab"), a_held("n1-1", tenant="lab"))
        plan = alone(a_request(hours=4), held=held, limits=(a_limit("lab", 2),))
        assert starts(plan) == {"b1": HOUR}
        why = plan.waits[0].reasons[0]
        assert (why.code, why.frees_at) == ("tenant_quota", NOON + HOUR)
        assert dict(why.numbers)["used"] == 2 * 56_000

    def test_own_work_in_the_middle_of_the_window_counts_too(self) -> None:
        held = (a_held("n1-0", starts=2 * HOUR, ends=3 * HOUR, tenant="lab"),)
        plan = alone(a_request(hours=4), held=held, limits=(a_limit("lab", 1),))
        assert starts(plan) == {"b1": 3 * HOUR}

    def test_other_tenants_do_not_count(self) -> None:
        plan = alone(a_request(), held=(a_held("n1-0"),), limits=(a_limit("lab", 1),))
        assert starts(plan) == {"b1": 0}

    def test_a_lower_limit_stops_nothing_that_runs(self) -> None:
        held = (a_held("n1-0", tenant="lab"), a_held("n1-1", tenant="lab"))
        plan = alone(a_request(), held=held, limits=(a_limit("lab", 1),))
        assert starts(plan) == {"b1": HOUR}


def whole_of(index: int) -> Place:
    return whole(f"n1-{index}")


class TestPromises:
    def test_a_planned_start_is_kept_and_made_earlier_when_room_appears(self) -> None:
        planned = a_planned_start(3 * HOUR, 1, whole_of(0))
        request = a_request(planned=planned)
        busy = all_busy(ends=3 * HOUR)
        assert starts(alone(request, held=busy)) == {"b1": 3 * HOUR}
        assert starts(alone(request, held=(*busy[:7], a_held("n1-7", ends=HOUR)))) == {"b1": HOUR}

    @pytest.mark.parametrize(
        ("strength", "first", "then"),
        [("firm", HOUR, 2 * HOUR), ("expected", 3 * HOUR, HOUR), (None, 3 * HOUR, HOUR)],
    )
    def test_a_newcomer_ahead_in_the_queue_takes_an_expected_start_only(
        self, strength: Strength | None, first: int, then: int
    ) -> None:
        planned = a_planned_start(HOUR, 1, whole_of(0), strength=strength)
        newcomer = a_request("n", priority=90, hours=2)
        fleet, held = gpus(1), (a_held("n1-0"),)
        site = a_snapshot(a_request("p", planned=planned), newcomer, fleet=fleet, held=held)
        plan = solve(site, POLICY)
        assert starts(plan) == {"p": first, "n": then}
        why = {wait.booking: wait.delayed_by for wait in plan.waits}["p"]
        assert (why is None) == (strength == "firm")
        if why is not None:
            assert why.code == "overtaken"
            assert why.facts == {"rule": "tier", "own_tenant": 1, "booking": "n"}

    def test_a_planned_start_after_a_new_deadline_is_given_up(self) -> None:
        planned = a_planned_start(3 * HOUR, 1, whole_of(0))
        busy = all_busy(ends=3 * HOUR)
        plan = alone(a_request(planned=planned, latest=4 * HOUR - 1), held=busy)
        assert starts(plan) == {}
        assert [row.reasons[0].code for row in plan.refusals] == ["deadline_unreachable"]
        kept = alone(a_request(planned=planned, latest=4 * HOUR), held=busy)
        assert starts(kept) == {"b1": 3 * HOUR}

    def test_without_the_planned_start_the_newcomer_would_have_taken_it(self) -> None:
        """The negative control of a planned start."""
        before = a_request("p")
        newcomer = a_request("n", priority=90, hours=2)
        plan = solve(a_snapshot(before, newcomer, fleet=gpus(1), held=(a_held("n1-0"),)), POLICY)
        assert starts(plan) == {"n": HOUR, "p": 3 * HOUR}

    def test_a_lost_gpu_is_replaced_at_the_same_start_when_another_is_free(self) -> None:
        fleet = gpus(1, node="n0", usable=False) + gpus()
        planned = a_planned_start(HOUR, 1, whole("n0-0"))
        plan = alone(a_request(planned=planned, earliest=HOUR), fleet=fleet)
        assert starts(plan) == {"b1": HOUR}
        assert (plan.waits[0].delayed_by, plan.waits[0].places[0].gpu) == (None, "n1-0")

    def test_a_start_that_lost_hardware_delays_says_what_delays_it(self) -> None:
        fleet = gpus(1, node="n0", usable=False) + gpus(1)
        planned = a_planned_start(HOUR, 1, whole("n0-0"))
        held = (a_held("n1-0", ends=5 * HOUR),)
        wait = alone(a_request(planned=planned), fleet=fleet, held=held).waits[0]
        assert wait.starts == NOON + 5 * HOUR
        assert wait.delayed_by is not None
        assert wait.delayed_by.code == "hardware_lost"

    def test_work_that_runs_over_delays_and_is_named(self) -> None:
        planned = a_planned_start(HOUR, 1, whole_of(0))
        wait = alone(a_request(planned=planned), fleet=gpus(1), held=(a_held("n1-0", ends=2 * HOUR),)).waits[
            0
        ]
        assert wait.starts == NOON + 2 * HOUR
        assert wait.delayed_by is not None
        assert wait.delayed_by.code == "overrun"

    def test_with_no_hardware_left_it_keeps_waiting_and_is_not_refused(self) -> None:
        request = a_request(planned=a_planned_start(HOUR, 1, whole_of(0)))
        wait = alone(request, fleet=gpus(1, usable=False)).waits[0]
        assert wait.starts > NOON + 27 * DAY
        assert wait.delayed_by is not None
        again = a_request(planned=a_planned_start(wait.starts - NOON, 1, *wait.places))
        later = solve(a_snapshot(again, fleet=gpus(1, usable=False), now=DAY), POLICY)
        assert later.waits[0].starts == wait.starts, "nobody is notified every cycle"
        back = solve(a_snapshot(again, fleet=gpus(1), now=DAY), POLICY)
        assert starts(back) == {"b1": DAY}, "when the GPU is back it starts at once"

    def test_a_lowered_limit_moves_a_planned_start_and_says_so(self) -> None:
        held = (a_held("n1-1", ends=5 * HOUR, tenant="lab"),)
        request = a_request(planned=a_planned_start(HOUR, 1, whole_of(0)))
        wait = alone(request, held=held, limits=(a_limit("lab", 1),)).waits[0]
        assert wait.delayed_by is not None
        assert (wait.delayed_by.code, wait.starts) == ("quota_cut", NOON + 5 * HOUR)


class TestExtensions:
    def extended(self, until: int, *requests: Request, **site: object) -> Plan:
        return solve(
            a_snapshot(*requests, extensions=(Extension("mine", NOON + until),), **site),  # type: ignore[arg-type]  # as a_snapshot takes
            POLICY,
        )

    def test_free_room_is_granted(self) -> None:
        plan = self.extended(3 * HOUR, held=(a_held("n1-0", booking="mine"),))
        assert plan.extensions[0].granted

    def test_a_gang_is_extended_whole_or_not_at_all(self) -> None:
        gang = (a_held("n1-0", booking="mine"), a_held("n1-1", booking="mine"))
        other = a_held("n1-1", starts=2 * HOUR, ends=3 * HOUR)
        plan = self.extended(3 * HOUR, a_request("next", an_ask(7)), held=(*gang, other))
        assert [reason.code for reason in plan.extensions[0].reasons] == ["extension_busy"]
        assert dict(plan.extensions[0].reasons[0].numbers) == {"possible_until": NOON + 2 * HOUR}

    def test_a_planned_start_moves_to_another_place_at_the_same_start(self) -> None:
        promised = a_request("p", planned=a_planned_start(HOUR, 1, whole_of(0)), earliest=HOUR)
        plan = self.extended(2 * HOUR, promised, held=(a_held("n1-0", booking="mine"),))
        assert plan.extensions[0].granted
        assert starts(plan) == {"p": HOUR}
        assert plan.waits[0].places[0].gpu != "n1-0"

    def test_a_planned_start_that_has_no_other_place_wins(self) -> None:
        planned = a_planned_start(HOUR, 1, whole_of(0), strength="guaranteed")
        promised = a_request("p", planned=planned)
        plan = self.extended(2 * HOUR, promised, fleet=gpus(1), held=(a_held("n1-0", booking="mine"),))
        assert not plan.extensions[0].granted
        assert starts(plan) == {"p": HOUR}

    def test_a_limit_refuses_it(self) -> None:
        held = (
            a_held("n1-0", booking="mine", tenant="lab"),
            a_held("n1-1", starts=HOUR, ends=3 * HOUR, tenant="lab"),
        )
        plan = self.extended(2 * HOUR, held=held, limits=(a_limit("lab", 1),))
        assert plan.extensions[0].reasons[0].code == "tenant_quota"

    def test_a_gpu_that_leaves_service_takes_no_more(self) -> None:
        fleet = gpus(1, usable=False)
        plan = self.extended(2 * HOUR, fleet=fleet, held=(a_held("n1-0", booking="mine"),))
        assert plan.extensions[0].reasons[0].code == "hardware_out"

    def test_nothing_live_cannot_be_extended(self) -> None:
        assert self.extended(2 * HOUR).extensions[0].reasons[0].code == "not_live"


class TestSnapshot:
    def test_work_past_its_end_still_has_its_room(self) -> None:
        plan = alone(a_request(), fleet=gpus(1), held=(a_held("n1-0", starts=-HOUR, ends=-5),))
        assert starts(plan) == {"b1": 300}

    def test_ids_that_are_there_twice_are_refused(self) -> None:
        twice = a_snapshot(a_request(), a_request())
        with pytest.raises(ValueError, match="b1 occurs twice"):
            solve(twice, POLICY)
