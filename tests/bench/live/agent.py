"""One node's agent in a separate process: `python -m tests.bench.live.agent`.

It has eight simulated GPUs and a real Valkey; this program acts as the portal. It measures

- the cost when nothing happens: processor time in percent of one core, and memory;
- the time from publishing a notice of a pause to the booking's `notice.json` and to its report;
- the distance from the deadline to the program's end, and to the report of the empty device.
"""

import argparse
import contextlib
import dataclasses
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

import wire
from agent.state.enrol import Identity, identity_save
from tests.agent.builders import KEY, NODE, a_document, a_whole
from tests.bench.machine import ROOT, machine, report, spread
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until

GPUS = 8
HOUR = 3600
PATIENCE_S = 30
# Owners of simulated nodes start their programs two seconds after they were given a device.
SETTLE_S = 4


@dataclasses.dataclass
class Site:
    """The portal's side of one node."""

    client: "redis.Redis"
    state: Path
    process: "subprocess.Popen[bytes]"
    generation: int = 0

    def __post_init__(self) -> None:
        self._last = "0"
        self.gpus: list[str] = []

    def publish(self, wanted: dict[str, list[wire.DesiredAllocation]]) -> float:
        """Returns when, in Unix seconds."""
        self.generation += 1
        desired = a_document(wanted, generation=self.generation, mode="whole")
        raw = wire.seal(desired, key=KEY, key_version=1).to_json()
        self.client.set(wire.desired_key(NODE), raw)
        at = time.time()
        self.client.publish(wire.wake_channel(NODE), b"")
        return at

    def said(self) -> Iterator[tuple[float, wire.FromAgent]]:
        """Yields the agent's messages from now on, with the Unix seconds of their arrival."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            found: Any = self.client.xread({wire.report_stream(NODE): self._last}, block=1000)
            at = time.time()
            for _, entries in found or ():
                for number, fields in entries:
                    self._last = number
                    yield at, wire.open_report(wire.Envelope.from_fields(fields), {1: KEY})
        raise TimeoutError("the agent did not send the expected report")

    def allocation(self, name: str, **wanted: object) -> tuple[float, wire.ReportedAllocation]:
        """Waits for a report in which an allocation has these values; None is any but None."""
        for at, message in self.said():
            for found in message.allocations if isinstance(message, wire.Report) else ():
                values = {key: getattr(found, key) for key in wanted}
                fits = (values[k] == v if v is not None else values[k] for k, v in wanted.items())
                if found.id == name and all(fits):
                    return at, found
        raise AssertionError("unreachable: it waits or raises")

    def processor_s(self) -> float:
        """The processor seconds that it has used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
        return round(int(line.split()[1]) / 1024, 1)


@contextlib.contextmanager
def launched() -> Iterator[Site]:
    servers = Servers()
    servers.valkey_ensure()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="bench-agent-") as folder,
            redis.Redis.from_url(f"{servers.agents_access.url}/0") as client,
        ):
            state = Path(folder)
            identity = Identity(NODE, {1: KEY}, 1, f"{servers.agents_access.url}/0")
            identity_save(state / "identity.json", identity)
            command = ["-m", "devtools.simulated", "--state", folder, "--simulate", f"h100:{GPUS}"]
            with (state / "log").open("wb") as log:
                process = subprocess.Popen([sys.executable, *command], stderr=log, cwd=ROOT)
            try:
                yield _ready(Site(client, state, process))
            finally:
                process.terminate()
                process.wait(PATIENCE_S)
    finally:
        servers.close()


def _ready(site: Site) -> Site:
    for _, message in site.said():
        if isinstance(message, wire.Inventory):
            site.gpus = [gpu.uuid for gpu in message.gpus]
            return site
    raise AssertionError("unreachable: it waits or raises")


def _bookings(site: Site, mark: str) -> dict[str, list[wire.DesiredAllocation]]:
    now = int(time.time())
    return {
        gpu: [a_whole(f"{mark}-{n}", booking=f"BK-{n}", starts=now, ends=now + HOUR)]
        for n, gpu in enumerate(site.gpus)
    }


def _paused(allocation: wire.DesiredAllocation, name: str, at: int) -> wire.DesiredAllocation:
    notice = wire.Notice(id=name, told=int(time.time()), at=at, method="stop")
    return dataclasses.replace(allocation, notice=notice, ends=at)


def idle(site: Site, seconds: int) -> dict[str, float]:
    """Measures with every GPU booked and busy, without changes."""
    site.publish(_bookings(site, "idle"))
    site.allocation(f"idle-{GPUS - 1}", state="ready")
    time.sleep(SETTLE_S)
    begun, used = time.monotonic(), site.processor_s()
    time.sleep(seconds)
    percent = 100 * (site.processor_s() - used) / (time.monotonic() - begun)
    return {"processor_percent": round(percent, 2), "memory_mb": site.memory_mb()}


def notices(site: Site, count: int) -> dict[str, Any]:
    """Publishes notices one after another, each for another booking."""
    wanted = _bookings(site, "idle")
    files: list[float] = []
    reports: list[float] = []
    for number in range(count):
        n = number % GPUS
        gpu, (booked,) = list(wanted.items())[n]
        far = int(time.time()) + HOUR
        at = site.publish({**wanted, gpu: [_paused(booked, f"p{number}", far)]})
        reported, _ = site.allocation(booked.id, noticed=None)
        path = site.state / "bookings" / f"biology.BK-{n}" / "notice.json"
        files.append(path.stat().st_mtime - at)
        reports.append(reported - at)
        site.publish(wanted)
        wait_until(functools.partial(_gone, path), seconds=PATIENCE_S)
    return {"published_to_file": spread(files), "published_to_report": spread(reports)}


def _gone(path: Path) -> bool:
    return not path.exists()


def grace(site: Site, rounds: int) -> dict[str, Any]:
    """Pauses every GPU's booking, each at a different second."""
    asked: list[float] = []
    proven: list[float] = []
    for number in range(rounds):
        wanted = _bookings(site, f"r{number}")
        site.publish(wanted)
        site.allocation(f"r{number}-{GPUS - 1}", state="ready")
        first = int(time.time()) + SETTLE_S
        paused = {
            gpu: [_paused(booked, f"r{number}-{n}", first + n)]
            for n, (gpu, (booked,)) in enumerate(wanted.items())
        }
        site.publish(paused)
        for n in range(GPUS):
            reported, _ = site.allocation(f"r{number}-{n}", state="empty")
            # The simulated hardware's file is written when a program ends.
            ended = (site.state / "simulated.json").stat().st_mtime
            asked.append(ended - (first + n))
            proven.append(reported - (first + n))
    return {
        "deadline_to_ended": spread(asked),
        "deadline_to_proof_reported": spread(proven),
        "early_by_ms": round(1000 * max(0.0, -min(asked)), 1),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with launched() as site:
        return {
            "gpus": GPUS,
            "idle": idle(site, options.idle),
            "notice": notices(site, options.notices),
            "grace": grace(site, options.rounds),
            "machine": machine(),
        }


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--idle", type=int, default=60, help="seconds to watch a quiet agent")
    parser.add_argument("--notices", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3, help="of eight pauses each")
    parser.add_argument("--out", type=Path, default=None, help="folder for agent.json")
    return parser


if __name__ == "__main__":
    chosen = arguments().parse_args()
    report("agent", measure(chosen), chosen.out)
