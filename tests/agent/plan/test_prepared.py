"""Slices that are made ahead of allocations: when, where, and what goes before them."""

import dataclasses
from pathlib import Path

import pytest

import wire
from agent.plan.reconcile import Problem, plan
from agent.plan.steps import Create, Destroy, HandOver, SetMode, Step
from agent.plan.targets import gpu_targets, records_of
from agent.ports.gpu import FoundInstance, Place, Truth
from tests.agent.builders import NOW, Rig, a_document, a_rig, a_slice, a_whole

GPU = "GPU-1"
AHEAD = (wire.DesiredSlice(profile_id=14, slot=0, size=2), wire.DesiredSlice(profile_id=14, slot=2, size=2))


def there(slot: int, *, processes: int = 0) -> FoundInstance:
    return FoundInstance(slot + 1, Place(14, slot, 2), "2g.20gb", f"MIG-{slot}", processes)


def ahead(wanted: list[wire.DesiredAllocation], gpu: str = GPU, mode: wire.Mode = "sliced") -> wire.Desired:
    """A document with two slices to make ahead."""
    desired = a_document({gpu: wanted}, mode=mode)
    gpus = tuple(dataclasses.replace(each, prepared=AHEAD) for each in desired.gpus)
    return dataclasses.replace(desired, gpus=gpus)


def steps(
    wanted: list[wire.DesiredAllocation],
    truth: Truth,
    problems: dict[str, Problem] | None = None,
    **more: wire.Mode,
) -> list[Step]:
    """One pass at NOW."""
    desired = ahead(wanted, **more)
    (target,) = gpu_targets(desired, records_of(desired, {}, NOW), NOW)
    return plan(target, truth, {}, problems or {}).steps


def test_they_are_made_one_after_the_other_on_a_sliced_gpu_with_nothing_else_to_do() -> None:
    assert steps([], Truth(GPU, "sliced", ())) == [Create(None, Place(14, 0, 2))]
    assert steps([], Truth(GPU, "sliced", (there(0),))) == [Create(None, Place(14, 2, 2))]
    assert steps([], Truth(GPU, "sliced", (there(0), there(2)))) == []
    assert steps([], Truth(GPU, "whole", (), processes=0)) == [SetMode("sliced")]
    assert steps([], Truth(GPU, "sliced", ()), {GPU: Problem("no")}) == []


def test_what_an_allocation_needs_goes_first() -> None:
    own = a_slice("a1")
    assert steps([own], Truth(GPU, "sliced", ())) == [Create("a1", Place(14, 0, 2))]
    assert steps([own], Truth(GPU, "sliced", (there(0),))) == [HandOver(own, "MIG-0")]
    whole = a_whole("w1")
    assert steps([whole], Truth(GPU, "sliced", (there(0),)), mode="whole") == [Destroy(1, None)]


@pytest.mark.parametrize("processes", [0, 1])
def test_no_place_of_an_instance_is_used_again(processes: int) -> None:
    wide = FoundInstance(1, Place(9, 0, 4), "3g.40gb", "MIG-9", processes)
    assert steps([], Truth(GPU, "sliced", (wide,))) == []


def test_a_node_makes_them_and_hands_one_over_at_once(rig: Rig) -> None:
    rig.desire(ahead([], rig.gpu))
    rig.later(1)
    found = [(each.slot, each.allocation) for each in rig.sent.report().gpus[0].instances]
    assert found == [(0, None), (2, None)]
    own = a_slice("a1")
    desired = dataclasses.replace(ahead([own], rig.gpu), generation=2)
    rig.desire(desired)
    assert rig.sent.states() == {"a1": "ready"}
    rig.desire(dataclasses.replace(a_document({rig.gpu: [a_whole("w1")]}), generation=3))
    rig.later(30)
    assert rig.sent.report().gpus[0].mode == "whole"


def test_a_gpu_that_needs_a_reset_is_reset_and_gets_them(tmp_path: Path) -> None:
    with a_rig(tmp_path, simulate="a100:1") as rig:
        rig.desire(ahead([], rig.gpu))
        rig.later(120)
        found = rig.sent.report().gpus[0]
        assert found.mode == "sliced"
        assert [each.slot for each in found.instances] == [0, 2]
        rig.desire(dataclasses.replace(a_document({rig.gpu: []}, mode="whole"), generation=2))
        rig.later(120)
        assert rig.sent.report().gpus[0].mode == "whole"
