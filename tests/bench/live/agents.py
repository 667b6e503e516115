"""Messages of hundreds of nodes: `python -m tests.bench.live.agents --agents 500 --seconds 30`.

Each node sends a heartbeat every 5 s, readings of eight GPUs every 10 s and a report every minute,
signed and numbered as by an agent, each at a different time. This program sends them for all nodes
in place of 500 processes; the portal is under test. The lag is the time from writing a heartbeat
to the node's stream until the lease that answers it is read.
"""

import argparse
import heapq
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import redis

import wire
from tests.bench.live.inside import (
    Member,
    nodes_add,
    processor_seconds,
    shares,
    site_enter,
    together,
)
from tests.bench.machine import cpu_seconds, machine, spread
from tests.bench.site import Site, bench_run, site_options
from tests.servers.waiting import wait_until

GPUS = 8
EVERY = {"heartbeat": 5.0, "telemetry": 10.0, "report": 60.0}
PATIENCE_S = 180
# Messages that are due within this time are sent in one write.
BEAT_S = 0.02
PORTAL = ("web", "worker", "solver", "beat", "reader")
STORES = ("postgres", "valkey", "valkey-agents")


@dataclass
class SimulatedSender:
    """One node: its last number, and the send times of unanswered heartbeats."""

    member: Member
    epoch: int
    seq: int = 0
    sent: dict[int, float] = field(default_factory=dict)
    is_heard: bool = False

    def say(self, kind: str) -> wire.Envelope:
        """The next message of a kind, signed."""
        self.seq += 1
        if kind == "heartbeat":
            self.sent[self.seq] = time.monotonic()
        says: dict[str, Callable[[], wire.FromAgent]] = {
            "heartbeat": self._beat,
            "telemetry": self._readings,
            "report": self._report,
        }
        return wire.seal(says[kind](), key=self.member.key, key_version=1)

    def answered(self, raw: bytes) -> float | None:
        """Seconds since the heartbeat that a lease answers; None for one that was read before."""
        lease = wire.open_lease(wire.Envelope.from_json(raw), {1: self.member.key})
        began = self.sent.pop(lease.seq, None)
        self.is_heard = True
        return None if began is None else time.monotonic() - began

    def _beat(self) -> wire.Heartbeat:
        return wire.Heartbeat(seq=self.seq, observed_generation=0, sent_at=int(time.time()))

    def _readings(self) -> wire.Telemetry:
        samples = tuple(_sample(gpu, self.seq) for gpu in self.member.gpus)
        return wire.Telemetry(sent_at=int(time.time()), samples=samples, seq=self.seq)

    def _report(self) -> wire.Report:
        gpus = tuple(wire.ReportedGpu(uuid=gpu, mode="whole") for gpu in self.member.gpus)
        return wire.Report(epoch=self.epoch, observed_generation=0, seq=self.seq, gpus=gpus)


def _sample(gpu: str, seq: int) -> wire.Sample:
    return wire.Sample(
        gpu=gpu,
        slot=None,
        size=None,
        allocation=None,
        utilisation=seq % 100,
        memory_used_mb=40_000,
        memory_total_mb=81_559,
        power_mw=400_000,
        temperature_c=55,
        processes=1,
        bandwidth=30,
        tensor=20,
        sm_mhz=1_755,
        throttle=0,
        pcie_rx_kb=900,
        pcie_tx_kb=800,
        nvlink_rx_kb=70_000,
        nvlink_tx_kb=70_000,
        energy_mj=seq * 1_000_000,
    )


class SenderPool:
    """All nodes on one connection to Redis; `lags` and `said` count from `measured` on."""

    def __init__(self, talkers: list[SimulatedSender], url: str) -> None:
        self._talkers = {talker.member.name: talker for talker in talkers}
        self._line: Any = redis.Redis.from_url(url)
        self._over = threading.Event()
        self.measured = float("inf")
        self.lags: list[float] = []
        self.said = 0

    @property
    def is_heard(self) -> bool:
        """Whether the portal has answered every node once."""
        return all(talker.is_heard for talker in self._talkers.values())

    def talk(self) -> None:
        """Sends each message at its time, until stopped."""
        for moment, batch in self._batches(random.Random(1)):  # noqa: S311
            if self._over.is_set():
                return
            time.sleep(max(0.0, moment - time.monotonic()))
            with self._line.pipeline(transaction=False) as pipe:
                for name, kind in batch:
                    fields: dict[Any, Any] = {**self._talkers[name].say(kind).to_fields()}
                    stream = wire.report_stream(name)
                    pipe.xadd(stream, fields, maxlen=wire.REPORT_STREAM_LENGTH, approximate=True)
                pipe.execute()
            self.said += len(batch) * (moment >= self.measured)

    def _batches(self, chance: random.Random) -> Iterator[tuple[float, list[tuple[str, str]]]]:
        now = time.monotonic()
        due = [
            (now + chance.uniform(0, every), name, kind)
            for name in self._talkers
            for kind, every in EVERY.items()
        ]
        heapq.heapify(due)
        while True:
            moment = due[0][0] + BEAT_S
            batch = []
            while due[0][0] <= moment:
                at, name, kind = due[0]
                heapq.heapreplace(due, (at + EVERY[kind], name, kind))
                batch.append((name, kind))
            yield moment, batch

    def listen(self) -> None:
        """Reads every new lease, as agents do when they are woken."""
        with self._line.pubsub() as ear:
            ear.psubscribe(wire.wake_channel("*"))
            while not self._over.is_set():
                found = ear.get_message(ignore_subscribe_messages=True, timeout=0.2)
                if found is not None and found["data"] == wire.LEASE_WAKE:
                    self._lease(found["channel"].decode().split(":")[1])

    def _lease(self, name: str) -> None:
        talker = self._talkers.get(name)
        raw = self._line.get(wire.lease_key(name))
        lag = talker.answered(raw) if talker and raw else None
        if lag is not None and time.monotonic() - lag >= self.measured:
            self.lags.append(lag)

    def stop(self) -> None:
        """Stops `talk` and `listen`."""
        self._over.set()

    @property
    def unanswered(self) -> int:
        """Heartbeats that no lease has answered within two seconds."""
        old = time.monotonic() - 2
        return sum(
            self.measured <= at < old for talker in self._talkers.values() for at in talker.sent.values()
        )


def measure(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """The portal's processor use without and with the nodes; lags in milliseconds."""
    site_enter(site)
    from django.conf import settings  # noqa: PLC0415 (Django is there only now)

    from allocation.models import SolverState  # noqa: PLC0415

    idle, began = processor_seconds(site), time.monotonic()
    time.sleep(options.idle)
    quiet = shares(idle, processor_seconds(site), time.monotonic() - began)
    epoch = SolverState.objects.get(id=1).epoch
    came = time.monotonic()
    talkers = [SimulatedSender(member, epoch) for member in nodes_add("talk", options.agents, GPUS)]
    crowd = SenderPool(talkers, settings.AGENTS_REDIS_URL)
    threads = [threading.Thread(target=work) for work in (crowd.listen, crowd.talk)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: crowd.is_heard, seconds=PATIENCE_S)
        settled = time.monotonic() - came
        found = _watch(site, crowd, options.seconds)
    finally:
        crowd.stop()
        for thread in threads:
            thread.join()
    return {
        "bench": "agents",
        "agents": options.agents,
        "seconds": options.seconds,
        "all_heard_after_s": round(settled, 1),
        "messages_per_second": round(crowd.said / options.seconds, 1),
        "heartbeat_to_lease": spread(crowd.lags),
        "answered": len(crowd.lags),
        "unanswered_after_2s": crowd.unanswered,
        **found,
        "portal_idle_percent": together(quiet, PORTAL),
        "programs_idle": quiet,
        "machine": machine(),
    }


def _watch(site: Site, crowd: SenderPool, seconds: float) -> dict[str, Any]:
    crowd.measured = time.monotonic()
    before, own = processor_seconds(site), cpu_seconds()
    time.sleep(seconds)
    spent = time.monotonic() - crowd.measured
    used = shares(before, processor_seconds(site), spent)
    return {
        "reader_percent": used["reader"],
        "portal_percent": together(used, PORTAL),
        "stores_percent": together(used, STORES),
        "programs": used,
        "client_cpu_percent": round(100 * (cpu_seconds() - own) / spent, 1),
    }


def arguments() -> argparse.ArgumentParser:
    """The options, with the figures of the goal as defaults."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.agents", description=__doc__)
    parser.add_argument("--agents", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--idle", type=float, default=10, help="seconds to watch the quiet site")
    site_options(parser)
    return parser


def main() -> None:
    """Measures and prints."""
    bench_run(arguments().parse_args(), measure)


if __name__ == "__main__":
    main()
