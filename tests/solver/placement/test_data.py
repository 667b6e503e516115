"""Data that requests name: nodes that have it are preferred, and nothing waits for them."""

from dataclasses import replace
from random import Random

import pytest

from solver import Cache, Host, Place, Plan, Request, Snapshot, decode, encode, solve
from solver.model.rows import document_of, rows_of
from solver.reasons.reason import Reason
from tests.solver import truth
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_request,
    a_share,
    a_snapshot,
    an_ask,
    gpus,
)

TWO = gpus(4, node="n1") + gpus(4, node="n2")
ON_N2 = (Cache("n2", ("coco", "imagenet")),)


def asked(*data: str, count: int = 1, **more) -> Request:  # type: ignore[no-untyped-def]  # as a_request
    return a_request(ask=replace(an_ask(count), data=data), **more)


def site(*requests: Request, caches: tuple[Cache, ...] = ON_N2, **more) -> Snapshot:  # type: ignore[no-untyped-def]
    return replace(a_snapshot(*requests, **{"fleet": TWO, **more}), caches=caches)


def nodes(plan: Plan, booking: str = "b1") -> set[str]:
    rows = [row for row in truth.given_by(plan) if row.booking == booking]
    return {place.gpu.partition("-")[0] for row in rows for place in row.places}


def data_reason(plan: Plan) -> Reason:
    (found,) = [why for row in plan.assigns for why in row.reasons if why.code == "data_place"]
    return found


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("profile", [None, "1g.10gb", "3g.40gb"])
def test_the_node_with_the_data_is_taken(count: int, profile: str | None) -> None:
    ask = replace(an_ask(count, profile=profile), data=("imagenet",))
    assert nodes(solve(site(a_request(ask=an_ask(count, profile=profile))), POLICY)) == {"n1"}
    assert nodes(solve(site(a_request(ask=ask)), POLICY)) == {"n2"}


def test_so_is_it_for_a_share() -> None:
    assert nodes(solve(site(a_request(ask=replace(a_share(), data=("coco",)))), POLICY)) == {"n2"}


def test_an_idle_gpu_elsewhere_is_taken_rather_than_waiting() -> None:
    busy = tuple(a_held(f"n2-{number}") for number in range(4))
    plan = solve(site(asked("imagenet"), held=busy), POLICY)

    assert nodes(plan) == {"n1"}
    assert [row.starts for row in plan.assigns] == [NOON]
    assert data_reason(plan).facts == {"data": "imagenet", "lacks": "n1", "elsewhere_on": "n2"}


def test_the_reason_names_the_node_that_has_it() -> None:
    plan = solve(site(asked("coco", "imagenet")), POLICY)
    assert data_reason(plan).facts == {"data": "coco,imagenet", "has": "n2"}
    nowhere = solve(site(asked("genomes"), caches=()), POLICY)
    assert data_reason(nowhere).facts == {"data": "genomes", "lacks": "n1"}


def test_most_of_the_data_is_better_than_less_of_it() -> None:
    caches = (Cache("n1", ("coco",)), Cache("n2", ("coco", "imagenet")))
    assert nodes(solve(site(asked("coco", "genomes", "imagenet"), caches=caches), POLICY)) == {"n2"}
    full = tuple(a_held(f"n2-{number}") for number in range(4))
    three = (*TWO, *gpus(4, node="n3"))
    caches = (*caches[1:], Cache("n3", ("coco",)))
    plan = solve(site(asked("coco", "imagenet"), caches=caches, held=full, fleet=three), POLICY)
    assert nodes(plan) == {"n3"}


def test_a_gang_is_never_looser_for_its_data() -> None:
    # Three of the four are free on the node with the data, and all four on the other one.
    busy = (a_held("n2-0"),)
    plan = solve(site(asked("imagenet", count=4), held=busy), POLICY)
    assert nodes(plan) == {"n1"}


def test_among_equal_classes_the_one_with_the_data_is_taken() -> None:
    fleet = (*gpus(2, node="n1"), *gpus(2, "l40s", "l40s", node="n2"))
    ask = replace(an_ask(1, "h100", "l40s"), any_class=True)
    places = [
        nodes(
            solve(site(a_request(ask=replace(ask, data=("imagenet",))), fleet=fleet, caches=caches), POLICY)
        )
        for caches in ((Cache("n1", ("imagenet",)),), ON_N2)
    ]
    assert places == [{"n1"}, {"n2"}]


def test_a_preferred_class_is_not_left_for_the_data() -> None:
    fleet = (*gpus(2, node="n1"), *gpus(2, "l40s", "l40s", node="n2", domains=None))
    plan = solve(
        site(a_request(ask=replace(an_ask(1, "h100", "l40s"), data=("imagenet",))), fleet=fleet), POLICY
    )
    assert nodes(plan) == {"n1"}


def test_host_resources_still_count() -> None:
    hosts = (Host("n1", 64_000, 1 << 20), Host("n2", 4_000, 1 << 20))
    ask = replace(an_ask(1), cores=8_000, data=("imagenet",))
    assert nodes(solve(site(a_request(ask=ask), hosts=hosts), POLICY)) == {"n1"}


def test_requests_without_data_have_the_same_bytes_whatever_is_cached() -> None:
    requests = tuple(a_request(f"b{number}", an_ask(1 + number % 3)) for number in range(6))
    assert encode(solve(site(*requests), POLICY)) == encode(solve(site(*requests, caches=()), POLICY))
    assert b"data" not in encode(site(*requests, caches=()))
    assert b"caches" not in encode(site(*requests, caches=()))


def test_the_order_of_caches_is_not_part_of_the_snapshot() -> None:
    caches = [Cache(f"n{number}", ("imagenet",)) for number in (1, 2)]
    one, other = (site(asked("imagenet"), caches=tuple(each)) for each in (caches, caches[::-1]))
    assert encode(one) == encode(other)
    assert decode(Snapshot, encode(one)).caches == tuple(caches)
    assert document_of(Snapshot, rows_of(one)).caches == tuple(caches)
    with pytest.raises(ValueError, match="occurs twice"):
        encode(site(caches=(ON_N2[0], ON_N2[0])))


def test_starts_are_never_later_with_data_than_without() -> None:
    random = Random(7)  # noqa: S311  made-up sites
    for _ in range(60):
        held = tuple(
            a_held(f"n{node}-{number}", ends=HOUR * random.randint(1, 4))
            for node in (1, 2)
            for number in range(4)
            if random.random() < 0.7
        )
        count = random.randint(1, 4)
        plain, near = (
            solve(site(asked(*data, count=count), held=held), POLICY) for data in ((), ("imagenet",))
        )
        assert _starts(plain) == _starts(near)


def _starts(plan: Plan) -> list[int]:
    return [*(row.starts for row in plan.assigns), *(row.starts for row in plan.waits)]


def test_mixed_bookings_prefer_it_in_each_group() -> None:
    fleet = tuple(
        gpu
        for node in (1, 2)
        for gpu in (*gpus(2, node=f"n{node}"), *gpus(2, "l40s", "l40s", node=f"m{node}", domains=None))
    )
    data = ("imagenet",)
    ask = replace(an_ask(1), data=data, groups=(replace(an_ask(1, "l40s"), data=data),))
    caches = (Cache("m2", data), Cache("n2", data))
    plan = solve(site(a_request(ask=ask), fleet=fleet, caches=caches), POLICY)
    assert nodes(plan) == {"m2", "n2"}
    assert data_reason(plan).facts == {"data": "imagenet", "has": "m2,n2"}


def test_places_are_those_of_the_fleet() -> None:
    plan = solve(site(asked("imagenet")), POLICY)
    assert [row.places for row in plan.assigns] == [(Place("n2-0", None, 0, 8),)]
