"""An agent whose driver answers with any code at any time.

`python -m tests.agent.driver_noise --answers 100000` counts what got past the agent.
"""

import argparse
import collections
import dataclasses
import itertools
import random
import sys
import tempfile
from pathlib import Path
from typing import get_args

import pynvml

from agent.host.machine import inventory_take
from agent.ports.gpu import GpuError
from devtools.simulated.drivers import DRIVERS
from devtools.simulated.host import host_simulated
from devtools.simulated.processes import Kind
from devtools.simulated.programs import simulated_port
from tests.agent.builders import NOW, Rig, a_document, a_rig, a_slice, a_whole

CODES = (
    *(value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")),
    *(31, 77, 4242),
)
"""Those that the binding knows, and some that it has never heard of."""


@dataclasses.dataclass
class Noise:
    """Answers in place of the driver, and counts."""

    chance: random.Random
    often: float
    given: int = 0
    refused: int = 0
    codes: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)

    def __call__(self, symbol: str) -> int | None:
        if symbol == "nvmlShutdown" or self.chance.random() >= self.often:
            return None
        self.given += 1
        code = self.chance.choice(CODES)
        self.codes[code] += 1
        return int(code)


def life(folder: Path, seed: int, turns: int = 40) -> Noise:
    """One life of an agent: bookings come and go, people use GPUs, the driver answers at random.
    Whatever the agent does not expect comes out here."""
    chance = random.Random(seed)  # noqa: S311 (a game, not a secret)
    noise = Noise(chance, chance.choice((0.02, 0.1, 0.4)))
    branch = chance.choice(sorted(DRIVERS))
    with a_rig(folder, simulate="h100:1,a100:1", driver=branch) as rig:
        rig.driver.noise = noise
        for generation in range(1, turns):
            _something_happens(rig, chance, generation)
            rig.later(chance.choice((0, 1, 5, 15)))
            if chance.random() < 0.1:
                _starts_again(rig, noise)
        rig.driver.noise = None
    return noise


def _starts_again(rig: Rig, noise: Noise) -> None:
    """As a new process would; a driver that refuses ends it with a message."""
    try:
        port = simulated_port(rig.hardware)
        inventory_take(host_simulated("n1", 2), port)
        port.close()
    except GpuError:
        noise.refused += 1


def _something_happens(rig: Rig, chance: random.Random, generation: int) -> None:
    now = int(rig.wall())
    wanted = {}
    for gpu in rig.hardware.gpus:
        name = f"a{generation // 5}-{gpu.index}"
        if chance.random() < 0.5:
            slices = (("2g.20gb", 14, 0, 2), ("1g.20gb", 15, 4, 2), ("1g.10gb", 19, 6, 1))
            profile, number, slot, size = chance.choice(slices)
            wanted[gpu.uuid] = [
                a_slice(
                    name,
                    profile=profile,
                    profile_id=number,
                    slot=slot,
                    size=size,
                    starts=NOW,
                    ends=now + chance.choice((3, 600)),
                )
            ]
        else:
            wanted[gpu.uuid] = [a_whole(name, starts=NOW, ends=now + chance.choice((3, 600)))]
        if chance.random() < 0.2:
            kind = chance.choice(get_args(Kind))
            rig.hardware.holder_start(gpu.uuid, label="eve", kind=kind, user="eve")
        elif chance.random() < 0.2:
            gpu.processes.clear()
        if chance.random() < 0.1:
            rig.hardware.fail(gpu, chance.choice((13, 31, 63, 119, 154)))
        gpu.lost = chance.random() < 0.05
    rig.desire(a_document(wanted, generation=generation))


def run(answers: int, first_seed: int = 0) -> collections.Counter[str]:
    """Lives until so many random answers were given; what happened, counted."""
    found: collections.Counter[str] = collections.Counter()
    for seed in itertools.count(first_seed):
        with tempfile.TemporaryDirectory() as folder:
            noise = life(Path(folder), seed)
        found["lives"] += 1
        found["starts refused"] += noise.refused
        found["answers"] += noise.given
        if found["answers"] >= answers:
            return found
    raise AssertionError("unreachable: seeds never end")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=100_000)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    sys.stdout.write(f"{dict(run(options.answers, options.first_seed))}\n")
