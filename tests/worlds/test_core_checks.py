"""The check of cores finds what it is for, and random worlds have work on cores."""

from dataclasses import replace

from solver import Assign, Place
from tests.worlds.core_checks import cores_look
from tests.worlds.cores import CPU, has_cores
from tests.worlds.draw import world_draw
from tests.worlds.life import World


def with_cores() -> World:
    seed = next(seed for seed in range(1, 80) if has_cores(seed, world_draw(seed)) and len(_nodes(seed)) > 1)
    return World.of(seed)


def _nodes(seed: int) -> set[str]:
    return {gpu.node for gpu in World.of(seed).drawn.gpus if gpu.gpu_class == CPU}


def test_work_on_cores_runs_and_one_on_two_nodes_is_found() -> None:
    world = with_cores()
    cores = {gpu.id: gpu.node for gpu in world.drawn.gpus if gpu.gpu_class == CPU}
    used: set[str] = set()
    for turn in world.turns():
        used |= {row.booking for row in world.rows if row.place.gpu in cores and row.started}
        last = turn
    assert len(used) > 3
    assert list(cores_look(last, world.policy)) == []
    apart = tuple(
        Place(next(name for name in cores if cores[name] == node), None, 0, 8)
        for node in sorted(set(cores.values()))
    )
    torn = Assign("torn", CPU, apart, last.site.now, last.site.now + 60, ())
    found = cores_look(replace(last, plan=replace(last.plan, assigns=(torn,))), world.policy)
    assert [each.partition(": ")[2] for each in found] == [
        "torn has cores of several nodes, or of a node and GPUs"
    ]
