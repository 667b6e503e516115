"""Free host cores are lent, never those of others, and taken back before anybody else needs them."""

import dataclasses
from pathlib import Path

import pytest

import wire
from agent.ports.clock import Clock
from agent.ports.handover import Handover
from agent.ports.host_cores import CoreTopology
from agent.process import Agent
from tests.agent.builders import NOW, Rig, a_document, a_whole

EIGHT = CoreTopology({0: (0, 1, 2, 3), 1: (4, 5, 6, 7)})


def given(root: Path, *cores: int) -> Handover:
    """Allocations a0, a1, … with so many cores of eight."""
    handover = Handover(root, topology=EIGHT)
    for number, count in enumerate(cores):
        row = dataclasses.replace(a_whole(f"a{number}", booking=f"BK-{number}"), cores=count)
        handover.give(row, f"GPU-{number}", f"GPU-{number}", NOW)
    return handover


def test_free_cores_are_divided_and_some_stay_free(tmp_path: Path) -> None:
    handover = given(tmp_path, 2, 2)
    handover.cores_lend({"a0": 8, "a1": 8}, kept=1)
    assert handover.cores() == {"a0": (0, 1, 4, 6), "a1": (2, 3, 5)}
    handover.cores_lend({"a0": 1}, kept=1)
    assert handover.cores() == {"a0": (0, 1, 4), "a1": (2, 3)}
    handover.cores_lend({}, kept=0)
    assert handover.cores() == {"a0": (0, 1), "a1": (2, 3)}


@pytest.mark.parametrize("kept", [4, 5, 100])
def test_nothing_is_lent_where_all_stays_free(tmp_path: Path, kept: int) -> None:
    handover = given(tmp_path, 2, 2)
    handover.cores_lend({"a0": 8}, kept)
    assert handover.cores() == {"a0": (0, 1), "a1": (2, 3)}


def test_without_cores_of_its_own_it_gets_none(tmp_path: Path) -> None:
    handover = given(tmp_path, 0, 2)
    handover.cores_lend({"a0": 4, "gone": 4}, kept=0)
    assert handover.cores() == {"a1": (0, 1)}


def test_what_is_lent_is_nobodys_own_and_gone_after_a_restart(tmp_path: Path) -> None:
    handover = given(tmp_path, 2)
    handover.cores_lend({"a0": 6}, kept=0)
    assert len(handover.cores()["a0"]) == 8
    # Somebody else gets cores that were lent, and they are nobody else's then.
    row = dataclasses.replace(a_whole("b", booking="BK-9"), cores=4)
    handover.give(row, "GPU-9", "GPU-9", NOW)
    handover.cores_lend({"a0": 6}, kept=0)
    cores = handover.cores()
    assert len(cores["b"]) == 4
    assert not set(cores["a0"]) & set(cores["b"])
    assert {name: len(found) for name, found in Handover(tmp_path, topology=EIGHT).cores().items()} == {
        "a0": 2,
        "b": 4,
    }


@pytest.fixture
def lending(rig: Rig) -> Rig:
    """The agent of the rig with eight cores, of which one always stays free."""
    handover = Handover(rig.node.handover.root, topology=EIGHT)
    rig.node = dataclasses.replace(rig.node, handover=handover, cores_kept=1)
    rig.agent = Agent(rig.node, Clock(wall=rig.wall, steady=rig.steady))
    return rig


def a_row(name: str, cores: int, more_cores: int = 0) -> wire.DesiredAllocation:
    row = a_whole(name, booking=f"BK-{name}")
    return dataclasses.replace(row, cores=cores, more_cores=more_cores)


def test_the_agent_lends_and_takes_back_before_another_begins(lending: Rig) -> None:
    first, second = (gpu.uuid for gpu in lending.hardware.gpus)
    one = a_row("a", 2, more_cores=8)
    lending.desire(a_document({first: [one]}))
    lending.later(5)
    assert len(lending.node.handover.cores()["a"]) == 7
    (env,) = lending.node.handover.root.glob("*.BK-a/env")
    assert "GPU_BOOKING_CORES=0-6\n" in env.read_text()

    lending.desire(a_document({first: [one], second: [a_row("b", 4)]}, generation=2))

    cores = lending.node.handover.cores()
    assert (len(cores["a"]), len(cores["b"])) == (3, 4)
    assert not set(cores["a"]) & set(cores["b"])
    lending.desire(a_document({first: [dataclasses.replace(one, more_cores=0)]}, generation=3))
    assert len(lending.node.handover.cores()["a"]) == 2


def test_an_agent_that_does_not_lend_ignores_it(lending: Rig) -> None:
    lending.node = dataclasses.replace(lending.node, cores_kept=None)
    lending.agent = Agent(lending.node, Clock(wall=lending.wall, steady=lending.steady))
    lending.desire(a_document({lending.gpu: [a_row("a", 2, more_cores=8)]}))
    lending.later(5)
    assert len(lending.node.handover.cores()["a"]) == 2
