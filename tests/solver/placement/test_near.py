"""Whole GPUs without NVLink are taken near each other by PCIe: behind one switch, else at one processor."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest

from solver import Gpu, Plan, Snapshot, decode, encode, solve
from tests.solver import truth
from tests.solver.builders import POLICY, a_held, a_request, a_snapshot, an_ask, gpus

EIGHT = 8


def a_node(name: str, *, domains: int | None = None) -> tuple[Gpu, ...]:
    """Two processors with two switches of two GPUs each."""
    return tuple(
        replace(gpu, near=(gpu.index // 4 * 4, gpu.index // 2 * 2))
        for gpu in gpus(EIGHT, node=name, domains=domains)
    )


def taken(plan: Plan) -> list[str]:
    (row,) = truth.given_by(plan)
    return sorted(place.gpu for place in row.places)


def asked(count: int, busy: Iterable[str] = (), fleet: tuple[Gpu, ...] = ()) -> Snapshot:
    held = tuple(a_held(name) for name in busy)
    return a_snapshot(a_request(ask=an_ask(count)), fleet=fleet or a_node("n1"), held=held)


def test_two_are_behind_one_switch() -> None:
    assert taken(solve(asked(2, ["n1-1", "n1-2"]), POLICY)) == ["n1-4", "n1-5"]


def test_three_are_at_one_processor() -> None:
    assert taken(solve(asked(3, ["n1-1", "n1-2"]), POLICY)) == ["n1-4", "n1-5", "n1-6"]


def test_one_takes_what_is_left_of_a_switch() -> None:
    assert taken(solve(asked(1, ["n1-4"]), POLICY)) == ["n1-5"]


def test_without_known_paths_the_lowest_are_taken() -> None:
    fleet = gpus(EIGHT, node="n1", domains=None)
    assert taken(solve(asked(2, ["n1-1", "n1-2"], fleet), POLICY)) == ["n1-0", "n1-3"]


def test_a_node_with_a_switch_for_all_of_them_goes_before_a_fuller_one() -> None:
    busy = [f"n1-{index}" for index in range(EIGHT) if index not in (0, 7)]
    fleet = a_node("n1") + a_node("n2")
    unknown = tuple(replace(gpu, near=()) for gpu in fleet)
    assert taken(solve(asked(2, busy, fleet), POLICY)) == ["n2-0", "n2-1"]
    assert taken(solve(asked(2, busy, unknown), POLICY)) == ["n1-0", "n1-7"]


def test_a_domain_of_nvlink_goes_first() -> None:
    """Of two domains the fuller one, though its two free GPUs are behind two switches."""
    busy = ["n1-1", "n1-2"]
    assert taken(solve(asked(2, busy, a_node("n1", domains=2)), POLICY)) == ["n1-0", "n1-3"]


def test_gpus_of_a_fixed_mode_go_first() -> None:
    """Those that may be cut in slices are kept for slices, also where they are nearer."""
    fleet = tuple(
        replace(gpu, mode="whole" if gpu.index in (1, 2) else None) for gpu in gpus(EIGHT, node="n1")
    )
    fleet = tuple(replace(gpu, near=(gpu.index // 4, gpu.index // 2), domain=None) for gpu in fleet)
    assert taken(solve(asked(2, (), fleet), POLICY)) == ["n1-1", "n1-2"]


@pytest.mark.parametrize("seed", range(40))
def test_a_gang_is_never_wider_than_it_has_to_be(seed: int) -> None:
    """For random busy GPUs: one switch if any of the nodes has one with room, else one processor."""
    chance = Random(seed)  # noqa: S311  made-up sites
    fleet = a_node("n1") + a_node("n2")
    busy = [gpu.id for gpu in fleet if chance.random() < 0.5]
    count = chance.choice((2, 2, 3, 4))
    free = [gpu for gpu in fleet if gpu.id not in busy]

    def most(depth: int) -> int:
        groups = [(gpu.node, *gpu.near[:depth]) for gpu in free]
        return max(map(groups.count, groups), default=0)

    if most(0) < count:
        return
    chosen = set(taken(solve(asked(count, busy, fleet), POLICY)))
    for depth in (2, 1, 0):
        if most(depth) >= count:
            assert len({(gpu.node, *gpu.near[:depth]) for gpu in fleet if gpu.id in chosen}) == 1
            return


@pytest.mark.parametrize(
    ("busy", "near"), [((), "switch"), ((1, 3, 4, 6, 7), "processor"), ((1, 2, 3, 5, 6, 7), "node")]
)
def test_the_reason_says_how_near_they_are(busy: tuple[int, ...], near: str) -> None:
    plan = solve(asked(2, [f"n1-{index}" for index in busy]), POLICY)
    (why,) = [each for each in plan.assigns[0].reasons if each.code == "placed"]
    assert why.facts["near"] == near


def test_a_snapshot_keeps_the_groups_and_old_bytes_have_none() -> None:
    snapshot = asked(1)
    again = decode(Snapshot, encode(snapshot))
    assert {gpu.near for gpu in again.gpus} == {(0, 0), (0, 2), (4, 4), (4, 6)}
    assert b"near" not in encode(asked(1, fleet=gpus(EIGHT)))
