"""Many nodes in one process, each with the real agent over its own simulated GPUs.

`python -m tests.bench.live.nodes FILE` serves the members that a JSON file names until its standard
input is closed. One loop replaces each agent's own: it waits for wake-ups of all nodes on one
connection to Redis, and runs those that were woken or are due. The rest is the agent's code: its
files, its fence, its reconciliation, its NVML calls, its signed messages.
"""

import dataclasses
import heapq
import json
import select
import sys
import time
from pathlib import Path
from typing import Any

import pynvml
import redis

import wire
from agent.host.machine import inventory_take
from agent.node import Node
from agent.owner.booking_files import BookingFiles
from agent.ports.handover import Handover
from agent.ports.link import Connected, Delivered, DocumentRead, LeaseRead, Outgoing
from agent.ports.programs import Programs
from agent.process import Agent
from agent.state.documents import Keys
from agent.state.enrol import Identity
from agent.state.store import Store
from devtools.simulated.hardware import Hardware
from devtools.simulated.host import host_simulated
from devtools.simulated.models import fleet_parse
from devtools.simulated.nvml import SimulatedNvml
from devtools.simulated.programs import SimulatedPrograms, SimulatedUsers, simulated_port

IDLE_S = 0.5


@dataclasses.dataclass(frozen=True)
class Served:
    """One node of many: its messages are queued in `said` until the loop writes them."""

    name: str
    agent: Agent
    driver: SimulatedNvml
    symbols: dict[str, Any]
    said: list[Outgoing]

    def send(self, outgoing: Outgoing) -> None:
        """As a Link's."""
        self.said.append(outgoing)

    def at_driver(self) -> None:
        """From now on NVML is this node's."""
        _driver_set(self.driver, self.symbols)


def _driver_set(driver: SimulatedNvml, symbols: dict[str, Any]) -> None:
    pynvml.nvmlLib = driver
    pynvml._nvmlGetFunctionPointer_cache = symbols


def node_serve(name: str, key: bytes, gpus: int, folder: Path) -> Served:
    """The agent of a node that has enrolled, with its first look at its GPUs behind it."""
    folder.mkdir(parents=True)
    hardware = Hardware(name, fleet_parse(f"h100:{gpus}"), state=None, clock=time.time)
    driver = SimulatedNvml(hardware)
    symbols: dict[str, Any] = {}
    _driver_set(driver, symbols)
    identity = Identity(name, {1: key}, 1, "")
    host, port = host_simulated(name, gpus), simulated_port(hardware)
    programs: Programs = SimulatedPrograms(hardware)
    node = Node(
        keys=Keys(identity, folder / "identity.json"),
        port=port,
        store=Store(folder / "state.json", keys=identity.keys, epoch=identity.epoch, now=time.time()),
        handover=Handover(folder / "bookings", (SimulatedUsers(hardware),)),
        bookings=BookingFiles(folder / "bookings"),
        inventory=lambda: inventory_take(host, port),
        programs=programs,
    )
    return Served(name, Agent(node), driver, symbols, [])


class Loop:
    """All nodes on one connection."""

    def __init__(self, url: str, nodes: list[Served]) -> None:
        self._line: Any = redis.Redis.from_url(url)
        self._ear: Any = self._line.pubsub()  # type: ignore[no-untyped-call]
        self._nodes = {node.name: node for node in nodes}
        self._due: list[tuple[float, str]] = []

    def run(self) -> None:
        """Until standard input is closed."""
        self._ear.subscribe(*map(wire.wake_channel, self._nodes))
        for node in self._nodes.values():
            node.at_driver()
            node.agent.handle(Connected(), node)
        self._serve(dict.fromkeys(self._nodes, True))
        while not select.select([sys.stdin], [], [], 0)[0]:
            self._serve(self._woken())

    def _woken(self) -> dict[str, bool]:
        """The nodes by name that got a message or are due, and whether to read their documents."""
        found: dict[str, bool] = {}
        patience = max(0.0, min(IDLE_S, self._due[0][0] - time.monotonic()))
        message = self._ear.get_message(timeout=patience)
        while message is not None:
            if message["type"] == "message":
                name = message["channel"].decode().split(":")[1]
                found[name] = found.get(name, False) or message["data"] != wire.LEASE_WAKE
            message = self._ear.get_message(timeout=0)
        while self._due and self._due[0][0] <= time.monotonic():
            found.setdefault(heapq.heappop(self._due)[1], False)
        return found

    def _serve(self, woken: dict[str, bool]) -> None:
        if not woken:
            return
        documents = self._line.mget([wire.desired_key(name) for name in woken])
        leases = self._line.mget([wire.lease_key(name) for name in woken])
        for (name, is_told), document, lease in zip(woken.items(), documents, leases, strict=True):
            node = self._nodes[name]
            node.at_driver()
            if is_told and document is not None:
                node.agent.handle(DocumentRead(document), node)
            if lease is not None:
                node.agent.handle(LeaseRead(lease), node)
            node.agent.turn(node)
            self._write(node)
            heapq.heappush(self._due, (time.monotonic() + node.agent.wait_s(), name))

    def _write(self, node: Served) -> None:
        """At once: no node waits with its words for another."""
        if not node.said:
            return
        with self._line.pipeline(transaction=False) as pipe:
            for outgoing in node.said:
                fields: dict[Any, Any] = {**outgoing.envelope.to_fields()}
                stream = wire.report_stream(node.name)
                pipe.xadd(stream, fields, maxlen=wire.REPORT_STREAM_LENGTH)
            pipe.execute()
        seqs = [outgoing.seq for outgoing in node.said if outgoing.seq is not None]
        node.said.clear()
        for seq in seqs:
            node.agent.handle(Delivered(seq), node)


def main(path: Path) -> None:
    """Serves the members of the file, and says so once all of them are."""
    site = json.loads(path.read_text(encoding="utf-8"))
    nodes = [
        node_serve(name, bytes.fromhex(key), site["gpus"], path.parent / name)
        for name, key in site["members"].items()
    ]
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    Loop(site["redis"], nodes).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
