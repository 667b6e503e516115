"""What stands where the portal would be: it writes documents for a node, and reads reports."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import wire
from tests.agent.builders import HOUR, a_document, a_whole
from tests.agent.processes import Portal
from tests.servers.waiting import wait_until


def seen(check: Callable[[], bool], seconds: float = 60) -> None:
    wait_until(check, seconds=seconds, every=0.05)


def now() -> int:
    return int(time.time())


@dataclasses.dataclass
class Desk:
    """Writes documents for a node, as the portal does: the newest says all."""

    portal: Portal
    bookings: dict[str, list[tuple[int, wire.DesiredAllocation]]] = dataclasses.field(default_factory=dict)
    generation: int = 0
    scripts: tuple[wire.DesiredScript, ...] = ()

    def book(self, name: str, *gpus: int, seconds: int = HOUR, data: tuple[str, ...] = ()) -> None:
        """Starts a booking now; its allocations are `name-0`, `name-1`, …"""
        starts = now()
        parts = [
            (gpu, a_whole(f"{name}-{gpu}", booking=name, starts=starts, ends=starts + seconds))
            for gpu in gpus
        ]
        self.bookings[name] = [(gpu, dataclasses.replace(each, data=data)) for gpu, each in parts]
        self.publish()

    def change(self, name: str, **fields: Any) -> None:  # noqa: ANN401 (fields of any kind)
        """Changes fields of all allocations of a booking."""
        parts = self.bookings[name]
        self.bookings[name] = [(gpu, dataclasses.replace(each, **fields)) for gpu, each in parts]
        self.publish()

    def release(self, name: str) -> None:
        """Asks for its devices, waits for the proof, and forgets it."""
        self.change(name, state="release")
        seen(lambda: self.states(name) == {"empty"})
        del self.bookings[name]
        self.publish()

    def publish(self) -> None:
        self.generation += 1
        gpus: dict[str, list[wire.DesiredAllocation]] = {}
        for parts in self.bookings.values():
            for gpu, each in parts:
                gpus.setdefault(self.portal.gpus()[gpu], []).append(each)
        document = a_document(gpus, generation=self.generation, node=self.portal.node)
        self.portal.publish(dataclasses.replace(document, scripts=self.scripts))

    def states(self, name: str) -> set[str]:
        """Returns the states of a booking's allocations in the newest report."""
        said = self.portal.states()
        return {said.get(each.id, "unknown") for _, each in self.bookings[name]}

    def await_ready(self, name: str) -> None:
        """Waits until the booking is ready."""
        seen(lambda: self.states(name) == {"ready"})
