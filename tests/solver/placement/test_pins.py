"""Pins: a booking gets only the nodes and GPUs that it names."""

from dataclasses import replace
from random import Random

import pytest

from solver import (
    Place,
    Plan,
    Policy,
    QuoteRequest,
    Request,
    Snapshot,
    decode,
    encode,
    quote,
    solve,
)
from solver.cycle.compaction import propose
from tests.solver import truth
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
from tests.solver.pausing import GRACE, a_claim, a_site, notices, running

TWO_NODES = gpus(2, node="n1") + gpus(4, node="n2")
PLANNED = a_planned_start(HOUR, 1, whole("n2-3"))
LATE = a_held("n2-3", ends=2 * HOUR)


def pinned(*names: str, count: int = 1, **more) -> Request:  # type: ignore[no-untyped-def]  # as a_request
    return a_request(ask=replace(an_ask(count), pin=names), **more)


def site(*requests: Request, **more) -> Snapshot:  # type: ignore[no-untyped-def]  # as a_snapshot
    return a_snapshot(*requests, **{"fleet": TWO_NODES, **more})


def where(plan: Plan) -> list[str]:
    return [place.gpu for row in truth.given_by(plan) for place in row.places]


def codes(plan: Plan) -> list[str]:
    return [why.code for row in plan.assigns for why in row.reasons]


@pytest.mark.parametrize(
    ("names", "taken"), [(("n2",), ["n2-0"]), (("n2/2",), ["n2-2"]), (("n1/1", "n2/3"), ["n1-1"])]
)
def test_it_lies_where_it_is_pinned_to_and_not_where_it_would_fit_best(
    names: tuple[str, ...], taken: list[str]
) -> None:
    assert where(solve(site(a_request()), POLICY)) == ["n1-0"], "the smaller node first"
    assert where(solve(site(pinned(*names)), POLICY)) == taken


def test_it_is_promised_the_start_there_and_says_why_it_is_late() -> None:
    free, stuck = a_request("free"), pinned("n2/3")
    (given,) = solve(site(stuck, held=(LATE,)), POLICY).waits
    assert (given.starts, [place.gpu for place in given.places]) == (NOON + 2 * HOUR, ["n2-3"])
    why = next(each for each in given.reasons if each.code == "pinned")
    assert (why.facts, why.frees_at) == ({"elsewhere": 1, "pin": "n2/3"}, NOON + 2 * HOUR)
    full = tuple(a_held(gpu.id, ends=2 * HOUR) for gpu in TWO_NODES)
    plan = solve(site(free, stuck, held=full), POLICY)
    assert (plan.assigns, len(plan.waits)) == ((), 2)


def test_it_starts_there_as_soon_as_its_place_comes_free() -> None:
    (late,) = solve(site(pinned("n2/3"), held=(LATE,)), POLICY).waits
    planned = replace(PLANNED, starts=late.starts, ends=late.ends, places=late.places)
    again = replace(pinned("n2/3"), planned=planned)
    (kept,) = solve(site(again, held=(LATE,)), POLICY).waits
    assert (kept.starts, kept.places) == (late.starts, late.places)
    (given,) = solve(site(again), POLICY).assigns
    assert (given.starts, given.places) == (NOON, late.places)


def test_a_window_that_is_pinned_has_its_row_at_once() -> None:
    window = pinned("n2/3", earliest=5 * HOUR, fixed=True)
    assert where(solve(site(window), POLICY)) == ["n2-3"]


def test_a_start_that_the_pin_does_not_delay_has_no_reason_for_being_late() -> None:
    assert codes(solve(site(pinned("n2/3")), POLICY)) == ["placed"]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (pinned("n9"), "pin_elsewhere"),
        (pinned("n2/7"), "pin_elsewhere"),
        (pinned("n1", count=3), "pin_too_small"),
        (pinned("n2/1", count=2), "pin_too_small"),
        (
            a_request(ask=replace(an_ask(3, together="node", required=True), pin=("n1", "n2/0"))),
            "pin_too_small",
        ),
    ],
)
def test_what_the_pin_can_never_give_is_refused(asked: Request, code: str) -> None:
    plan = solve(site(asked), POLICY)
    assert plan.refusals[0].reasons[0].code == code
    assert any(each.pin == () for each in plan.refusals[0].alternatives), "without the pin"


def test_a_device_out_of_service_is_said_and_the_rest_of_the_fleet_offered() -> None:
    fleet = tuple(replace(gpu, usable=gpu.id != "n2-3") for gpu in TWO_NODES)
    plan = solve(site(pinned("n2/3", earliest=HOUR, fixed=True), fleet=fleet), POLICY)
    (refused,) = plan.refusals
    assert [why.code for why in refused.reasons] == ["pin_out"]
    assert [(each.starts, each.pin) for each in refused.alternatives] == [(NOON + HOUR, ())]


def test_a_promised_one_whose_device_died_is_kept_and_told() -> None:
    from_before = replace(pinned("n2/3"), planned=replace(PLANNED, places=(whole("n2-3"),)))
    fleet = tuple(replace(gpu, usable=gpu.id != "n2-3") for gpu in TWO_NODES)
    (wait,) = solve(site(from_before, fleet=fleet), POLICY).waits
    assert wait.delayed_by is not None
    assert wait.delayed_by.code == "hardware_lost"
    assert "pin_out" in [why.code for why in wait.reasons]


def test_somebody_is_paused_for_a_pin_only_where_it_names() -> None:
    held = (*running("there", whole("n1-2")), *running("cheap", whole("n1-3"), since=-700))
    limits = (a_limit("lab", 2, borrow=0), a_limit("firm", 0, borrow=None))
    free = a_held("n1-0", ends=8 * HOUR), a_held("n1-1", ends=8 * HOUR)
    claim = a_claim(ask=replace(an_ask(), pin=("n1/2",)))
    base = a_site(claim, held=(*held, *free), fleet=gpus(4), limits=limits)
    assert notices(solve(base, POLICY)) == {"there": ("claim", GRACE)}
    anywhere = replace(base, requests=(a_claim(),))
    assert notices(solve(anywhere, POLICY)) == {"cheap": ("claim", GRACE)}


def test_nobody_is_paused_for_a_pin_while_another_place_is_free() -> None:
    held = running("there", whole("n1-0"), tenant="lab", ends=2 * HOUR)
    claim = a_claim(ask=replace(an_ask(), pin=("n1/0",)))
    full_elsewhere = a_site(claim, held=held, fleet=gpus(2), limits=(a_limit("lab", 2, borrow=0),))
    plan = solve(full_elsewhere, POLICY)
    assert notices(plan) == {}
    assert [row.starts for row in plan.waits] == [NOON + 2 * HOUR]
    # Where nothing else is free it is a claim like any other.
    full = replace(full_elsewhere, held=(*held, a_held("n1-1", ends=2 * HOUR)))
    assert notices(solve(full, POLICY)) == {"there": ("claim", GRACE)}


def test_planned_starts_give_way_to_a_pin_and_never_push_a_pin_aside() -> None:
    later = a_request("late", an_ask(2), earliest=HOUR, hours=2)
    (promised,) = solve(site(later), POLICY).waits
    kept = replace(later, planned=PLANNED, earliest=promised.starts, duration=promised.ends - promised.starts)
    kept = replace(
        kept,
        planned=replace(PLANNED, starts=promised.starts, ends=promised.ends, places=promised.places),
    )
    (taken, _) = promised.places
    node, _, index = taken.gpu.partition("-")
    plan = solve(site(kept, pinned(f"{node}/{index}", hours=3)), POLICY)
    assert [(row.booking, row.starts) for row in plan.assigns] == [("b1", NOON)]
    assert [(row.starts, taken in row.places) for row in plan.waits] == [(promised.starts, False)]
    assert truth.overlaps(site(kept, pinned("n1")), plan) == []


def test_pinned_work_is_in_no_proposal_to_move() -> None:
    slices = tuple(Place(f"n1-{number}", "1g.10gb", 0, 1) for number in range(2))
    held = (*running("one", slices[0]), *running("other", slices[1]))
    base = a_site(a_request(), held=held, fleet=gpus(2), limits=())
    moves = [move.booking for row in propose(base, solve(base, POLICY), POLICY) for move in row.moves]
    # Either would do.
    assert len(moves) == 1
    assert set(moves) <= {"one", "other"}
    fixed = replace(base, held=tuple(replace(row, pinned=True) for row in held))
    assert propose(fixed, solve(fixed, POLICY), POLICY) == ()


def test_documents_without_a_pin_have_the_bytes_they_always_had() -> None:
    plain = site(a_request(), held=(LATE,))
    assert b"pin" not in encode(plain)
    pin = site(pinned("n1"), held=(replace(LATE, pinned=True),))
    for each in (plain, pin):
        assert encode(decode(Snapshot, encode(each))) == encode(each)
    assert decode(Snapshot, encode(pin)).held[0].pinned
    assert decode(Snapshot, encode(pin)).requests[0].pinned


def test_a_quote_says_when_it_is_free_and_what_would_start_sooner_without_the_pin() -> None:
    ask = replace(an_ask(), pin=("n2/3",))
    question = QuoteRequest(ask, HOUR, NOON, None, fixed=False, tenant="lab", project="p", rates={"h100": 1})
    found = quote(site(held=(LATE,)), POLICY, question).options
    assert [(each.kind, each.starts - NOON) for each in found][:2] == [
        ("as_asked", 2 * HOUR),
        ("unpinned", 0),
    ]


@pytest.mark.parametrize("count", [12, pytest.param(600, marks=pytest.mark.long)])
def test_no_random_booking_ever_lies_outside_its_pin(count: int) -> None:
    """Besides the usual checks; many are pinned, some to broken GPUs."""
    chance, seen = Random(7), 0  # noqa: S311  made-up sites
    names = ("n1", "n2", *(f"{gpu.node}/{gpu.index}" for gpu in TWO_NODES))
    for _ in range(count):
        fleet = tuple(replace(gpu, usable=chance.random() > 0.1) for gpu in TWO_NODES)
        asked = [a_pinned_request(chance, number, names) for number in range(chance.randint(2, 9))]
        before = site(*asked, fleet=fleet)
        plan = solve(before, Policy(1))
        assert truth.overlaps(before, plan) == []
        assert truth.illegal(before, plan) == []
        assert truth.torn(before, plan) == []
        asks = {request.booking: request.ask for request in asked}
        for row in truth.given_by(plan):
            pin = asks[row.booking].pin
            for place in row.places:
                node, _, index = place.gpu.partition("-")
                assert not pin or node in pin or f"{node}/{index}" in pin
            seen += bool(pin)
    assert seen > count


def a_pinned_request(chance: Random, number: int, names: tuple[str, ...]) -> Request:
    pin = tuple(sorted(set(chance.choices(names, k=chance.choice((0, 1, 1, 2, 3))))))
    profile = chance.choice((None, None, "1g.10gb", "3g.40gb"))
    ask = replace(an_ask(chance.choice((1, 1, 2)), profile=profile), pin=pin)
    if chance.random() < 0.2:
        ask = replace(ask, count=1, profile=None, share=300)
    return a_request(
        f"b{number}",
        ask,
        hours=chance.choice((1, 2, 5)),
        earliest=chance.choice((0, 0, HOUR)),
        fixed=chance.random() < 0.2,
        submitted=number,
    )
