"""One node floods the agents' server: `python -m tests.bench.live.flood --mb 500`.

The flood uses the credentials of an enrolled node, on several connections, as fast as the server
accepts it. Meanwhile the other nodes send heartbeats; the lag is the time from the first attempt to
write one until the lease that answers it is read. A refused write is retried after 100 ms, as
agents do.
"""

import argparse
import hashlib
import multiprocessing
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

import wire
from tests.bench.live.agents import SimulatedSender
from tests.bench.live.inside import nodes_add, program_pid, site_enter
from tests.bench.machine import machine, spread
from tests.bench.site import Site, bench_run, site_options
from tests.servers.waiting import wait_until

AGAIN_S = 0.1
PAUSE_S = 0.2
LINES = 4
ENTRY = 1 << 20
PATIENCE_S = 60


@dataclass
class ReportSenders:
    """Nodes that send heartbeats in a loop; `lags` are those of heartbeats since `measured`."""

    talkers: Sequence[SimulatedSender]
    url: str
    lags: list[float] = field(default_factory=list)
    measured: float = float("inf")
    over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Makes all nodes send inside the block, which starts after each got an answer."""
        threads = [threading.Thread(target=self._speak, args=(one,)) for one in self.talkers]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: all(one.is_heard for one in self.talkers), seconds=PATIENCE_S)
            self.measured = time.monotonic()
            yield
        finally:
            self.over.set()
            for thread in threads:
                thread.join()

    def _speak(self, talker: SimulatedSender) -> None:
        with redis.Redis.from_url(self.url) as line:
            while not self.over.wait(PAUSE_S):
                envelope, began = talker.say("heartbeat"), time.monotonic()
                said = False
                while talker.seq in talker.sent and not self.over.wait(0.01):
                    said = said or self._said(line, talker.member.name, envelope)
                    self._answer(line, talker)
                if began >= self.measured and not self.over.is_set():
                    self.lags.append(time.monotonic() - began)

    def _said(self, line: Any, name: str, envelope: wire.Envelope) -> bool:  # noqa: ANN401
        try:
            line.xadd(wire.report_stream(name), envelope.to_fields(), maxlen=1000)
        except redis.RedisError:
            self.over.wait(AGAIN_S)
            return False
        return True

    def _answer(self, line: Any, talker: SimulatedSender) -> None:  # noqa: ANN401
        raw = line.get(wire.lease_key(talker.member.name))
        if raw is not None:
            talker.answered(raw)


def flood(url: str, node: str, megabytes: int) -> float:
    """Writes until the server has so much or the node is locked out; returns the accepted MB."""
    with multiprocessing.get_context("spawn").Pool(LINES) as lines:
        share = megabytes * (1 << 20) // LINES
        return sum(lines.starmap(_pour, [(url, node, share)] * LINES)) / (1 << 20)


def _pour(url: str, node: str, most: int) -> int:
    taken, body = 0, b"x" * ENTRY
    try:
        with redis.Redis.from_url(url, protocol=2, retry=None) as line:
            while taken < most:
                line.xadd(wire.report_stream(node), {"body": body, "key": "1", "mac": "y"})
                taken += ENTRY
    except redis.RedisError:
        pass
    return taken


def account(node: str) -> str:
    """Gives an enrolled node a password that is known here; returns its address."""
    from allocation.models import Node  # noqa: PLC0415 (Django is there only now)
    from allocation.services.nodes.redis_accounts import account_url, agent_account_open  # noqa: PLC0415

    password = secrets.token_hex(16)
    digest = hashlib.sha256(password.encode()).digest()
    Node.objects.filter(name=node).update(link_digest=digest)
    agent_account_open(node, digest)
    return account_url(node, password)


def peak_mb(pid: int) -> float:
    """The peak memory of a process in MB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    (found,) = [line for line in lines if line.startswith("VmHWM")]
    return round(int(found.split()[1]) / 1024, 1)


def measure(site: Site, options: argparse.Namespace) -> dict[str, Any]:
    """The lags before and during the flood, the accepted MB, and the reader's memory."""
    site_enter(site)
    from django.conf import settings  # noqa: PLC0415 (Django is there only now)

    from allocation.models import Node, SolverState  # noqa: PLC0415

    epoch = SolverState.objects.get(id=1).epoch
    members = nodes_add("flood", options.agents + 1, 8)
    bad, good = members[0].name, members[1:]
    url, reader = account(bad), program_pid(site, "reader")
    voices = ReportSenders([SimulatedSender(member, epoch) for member in good], settings.AGENTS_REDIS_URL)
    with voices.speaking():
        time.sleep(options.calm)
        calm, before = list(voices.lags), peak_mb(reader)
        voices.lags.clear()
        voices.measured = began = time.monotonic()
        taken = flood(url, bad, options.mb)
        poured = time.monotonic() - began
        locked_out = not Node.objects.filter(name=bad, link_digest__isnull=False).exists()
        time.sleep(options.calm)
    return {
        "bench": "flood",
        "agents": options.agents,
        "asked_mb": options.mb,
        "taken_mb": round(taken),
        "poured_s": round(poured, 2),
        "locked_out": locked_out,
        "heartbeat_to_lease_calm": spread(calm),
        "heartbeat_to_lease": spread(voices.lags),
        "answered": len(voices.lags),
        "reader_peak_mb": {"before": before, "after": peak_mb(reader)},
        "machine": machine(),
    }


def arguments() -> argparse.ArgumentParser:
    """The options, with the figures of the goal as defaults."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.flood", description=__doc__)
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--mb", type=int, default=500)
    parser.add_argument("--calm", type=float, default=10, help="seconds before and after")
    site_options(parser)
    return parser


def main() -> None:
    """Measures and prints."""
    bench_run(arguments().parse_args(), measure)


if __name__ == "__main__":
    main()
