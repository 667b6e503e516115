"""The engine on a real Slurm: a booking is a job."""

import dataclasses
import time
from collections.abc import Callable

import wire
from tests.agent.builders import HOUR, a_document, a_whole
from tests.agent.processes import Portal
from tests.servers.waiting import wait_until
from tests.slurm.cluster import OWNER, Cluster
from tests.slurm.engine import Engine


def seen(check: Callable[[], bool], seconds: float = 15) -> None:
    wait_until(check, seconds=seconds, every=0.05)


def now() -> int:
    return int(time.time())


def booked(
    portal: Portal, count: int, *, generation: int, booking: str = "BK-7", state: str = "run"
) -> wire.Desired:
    """A document with one booking of the first GPUs."""
    gpus = portal.gpus()[:count]
    starts = now()
    return a_document(
        {
            gpu: [
                a_whole(
                    f"{booking}-{index}", booking=booking, starts=starts, ends=starts + HOUR, state=state
                )
            ]
            for index, gpu in enumerate(gpus)
        },
        generation=generation,
    )


def test_a_booking_is_a_job_from_its_start_to_its_end(
    portal: Portal, engine: Engine, cluster: Cluster
) -> None:
    engine.start()
    seen(lambda: len(portal.reports()) > 0)
    (enrolment,) = portal.enrolments
    inventory = wire.inventory_from_plain(enrolment["inventory"])
    assert (inventory.hostname, inventory.engine, len(inventory.gpus)) == ("n1", "slurm", 4)
    assert {(gpu.name, gpu.memory_mb) for gpu in inventory.gpus} == {("NVIDIA H100 80GB HBM3", 81559)}

    desired = booked(portal, 2, generation=1)
    portal.publish(desired)
    try:
        seen(lambda: portal.states() == {"BK-7-0": "ready", "BK-7-1": "ready"})
    finally:
        print(portal.reports()[-1])
    (job,) = cluster.jobs("R")
    number, _, owner, node, _ = job.split(" ", 4)
    assert (owner, node, cluster.used("n1")) == (OWNER, "n1", "gpu:h100:2(IDX:0-1)")
    assert {each.job for each in portal.reports()[-1].allocations} == {int(number)}

    released = dataclasses.replace(
        desired,
        generation=2,
        gpus=tuple(
            dataclasses.replace(
                gpu,
                allocations=tuple(dataclasses.replace(a, state="release") for a in gpu.allocations),
            )
            for gpu in desired.gpus
        ),
    )
    portal.publish(released)
    seen(lambda: portal.states() == {"BK-7-0": "empty", "BK-7-1": "empty"})
    assert cluster.jobs() == []
    assert engine.stop() == 0
