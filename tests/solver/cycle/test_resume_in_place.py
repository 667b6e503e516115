"""Where a suspended booking resumes: on its original GPUs, as long as waiting pays."""

from dataclasses import replace

import pytest

from solver import Plan, Request, solve
from solver.cycle.resume_in_place import planned_resume
from solver.model.ordering import in_order
from solver.state.cycle_state import CycleState
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_planned_start,
    a_request,
    a_snapshot,
    an_ask,
    gpus,
    whole,
)

MINUTE = 60


def suspended(*home: str, wait: int = 0, hours: float = 1, **more: object) -> Request:
    """Paused, with its memory kept for these GPUs; `wait` seconds of work are lost elsewhere."""
    request = a_request(ask=an_ask(len(home)), hours=hours, **more)  # type: ignore[arg-type]
    places = tuple(whole(gpu) for gpu in home)
    return replace(request, paused=True, home=places, home_wait=wait)


def where(plan: Plan) -> tuple[list[str], int]:
    """Its GPUs, and its start from NOON."""
    found = plan.assigns[0] if plan.assigns else plan.waits[0]
    return [place.gpu for place in found.places], found.starts - NOON


def test_it_goes_on_where_it_was_though_another_place_is_as_good() -> None:
    plain = replace(suspended("n1-5"), home=())
    assert where(solve(a_snapshot(plain), POLICY)) == (["n1-0"], 0)
    assert where(solve(a_snapshot(suspended("n1-5")), POLICY)) == (["n1-5"], 0)
    pair = solve(a_snapshot(suspended("n1-3", "n1-6")), POLICY)
    assert where(pair) == (["n1-3", "n1-6"], 0)


def test_it_waits_for_it_as_long_as_it_would_have_to_do_again() -> None:
    busy = (a_held("n1-5", ends=30 * MINUTE),)
    short = solve(a_snapshot(suspended("n1-5", wait=29 * MINUTE), held=busy), POLICY)
    assert where(short) == (["n1-0"], 0)
    long = solve(a_snapshot(suspended("n1-5", wait=30 * MINUTE), held=busy), POLICY)
    assert where(long) == (["n1-5"], 30 * MINUTE)
    (wait,) = long.waits
    assert "R87" in [reason.rule for reason in wait.reasons]


def test_what_has_a_deadline_goes_on_there_only_if_time_is_left() -> None:
    busy = (a_held("n1-5", ends=2 * HOUR),)
    request = suspended("n1-5", wait=3 * HOUR, latest=HOUR)
    assert where(solve(a_snapshot(request, held=busy), POLICY)) == (["n1-0"], 0)


def test_a_pin_to_another_node_is_stronger() -> None:
    fleet = gpus(2) + tuple(replace(g, node="n2", id="n2-0", number=2) for g in gpus(1))
    request = suspended("n1-1", wait=HOUR)
    pinned = replace(request, ask=replace(request.ask, pin=("n2",)))
    assert where(solve(a_snapshot(pinned, fleet=fleet), POLICY)) == (["n2-0"], 0)


def test_a_gpu_that_takes_no_work_is_no_home() -> None:
    fleet = gpus(7) + tuple(replace(gpu, node="n2", id="n2-0") for gpu in gpus(1, usable=False))
    fleet = tuple(replace(gpu, number=at) for at, gpu in enumerate(fleet))
    plan = solve(a_snapshot(suspended("n2-0", wait=HOUR), fleet=fleet), POLICY)
    assert where(plan) == (["n1-0"], 0)


def test_a_planned_start_at_home_is_not_left_for_an_earlier_start_elsewhere() -> None:
    busy = (a_held("n1-5", ends=30 * MINUTE),)
    planned = a_planned_start(30 * MINUTE, 1, whole("n1-5"))
    request = suspended("n1-5", wait=HOUR, planned=planned)
    assert where(solve(a_snapshot(request, held=busy), POLICY)) == (["n1-5"], 30 * MINUTE)
    # But when waiting costs more than beginning again, and for an earlier one at home, it is.
    assert where(solve(a_snapshot(replace(request, home_wait=60), held=busy), POLICY)) == (
        ["n1-0"],
        0,
    )
    assert where(solve(a_snapshot(request), POLICY)) == (["n1-5"], 0)


@pytest.mark.parametrize(("worked", "left"), [(59, MINUTE), (60, None), (61, None)])
def test_who_leaves_with_a_minute_left_resumes_and_with_nothing_left_does_not(
    worked: int, left: int | None
) -> None:
    """An hour was left. It runs until it leaves, so at its end no second is left to resume."""
    request = suspended("n1-5", hours=1)
    state = CycleState(in_order(a_snapshot(request)), POLICY)
    found, _ = planned_resume(state, request, NOON + worked * MINUTE)
    assert (found and found.demand.duration) == left


class TestSilence:
    def test_what_does_not_answer_gets_nothing_new_and_keeps_its_planned_starts(self) -> None:
        silent = tuple(replace(gpu, silent=True) for gpu in gpus(2))
        fleet = silent + tuple(
            replace(gpu, number=gpu.number + 2, node="n2", id=f"n2-{gpu.index}") for gpu in gpus(1)
        )
        new = solve(a_snapshot(a_request(), fleet=fleet), POLICY)
        assert where(new) == (["n2-0"], 0)
        taken = (a_held("n2-0"),)
        promised = a_request(planned=a_planned_start(HOUR // 2, 1, whole("n1-1")))
        kept = solve(a_snapshot(promised, fleet=fleet, held=taken), POLICY)
        assert where(kept) == (["n1-1"], HOUR // 2)
        waits = solve(a_snapshot(a_request(), fleet=fleet, held=taken), POLICY).waits
        assert [reason.code for reason in waits[0].reasons] == ["gpus_busy", "node_unanswering"]
        assert waits[0].reasons[1].facts == {"gpu_class": "h100", "gpus": 3, "out": 2}
