"""What the agent says, signed and numbered; a report after each change, and now and then."""

import dataclasses
from collections.abc import Iterable
from typing import Protocol

from allocation import wire
from allocation.agent.act.apply import Outcome
from allocation.agent.ports import link as links
from allocation.agent.report import reports
from allocation.agent.report.watch import NO_OBSERVATIONS, Observations
from allocation.agent.state.documents import Keys
from allocation.agent.state.store import Store

REPORT_EVERY_S = 60.0


class Outbox(Protocol):
    """The part of Link the agent needs."""

    def send(self, outgoing: links.Outgoing) -> None: ...


class ReportSender:
    """Remembers what was said, and since when each allocation is in its state."""

    def __init__(self, keys: Keys, store: Store, steady_now: float) -> None:
        self._keys = keys
        self._store = store
        self._since: dict[str, tuple[str, int]] = {}
        self._last_report: wire.Report | None = None
        self._reported_empty: dict[int, set[str]] = {}
        self._repeat_at = steady_now

    def entered(self, name: str, state: wire.AllocationState, at: int) -> None:
        """An allocation is in a state; `at` (Unix seconds) counts if it was not before."""
        if self._since.get(name, ("", 0))[0] != state:
            self._since[name] = (state, at)

    def resend(self) -> None:
        """What was said may be lost: the next report is said whether anything changed or not."""
        self._last_report = None

    def report(
        self,
        sender: Outbox,
        outcomes: Iterable[Outcome],
        problems: Iterable[str | None],
        steady_now: float,
        seen: Observations = NO_OBSERVATIONS,
    ) -> None:
        """Says what is true, unless it was said less than a minute ago."""
        outcomes = tuple(outcomes)
        owners = reports.owners_of(self._store.held)
        wrong = [trouble for trouble in problems if trouble] + reports.problems(outcomes)
        report = wire.Report(
            epoch=self._store.epoch,
            observed_generation=self._store.generation,
            seq=0 if self._last_report is None else self._last_report.seq,
            gpus=reports.reported_gpus(outcomes, owners),
            allocations=reports.reported_allocations(
                outcomes,
                {name: at for name, (_, at) in self._since.items()},
                self._store.held,
                self._store.suspended,
            ),
            error="; ".join(wrong) or None,
            errors=seen.errors,
            foreign=seen.foreign,
            hanging=seen.hanging,
            deeds=seen.deeds,
        )
        if report == self._last_report and steady_now < self._repeat_at:
            return
        self._last_report = dataclasses.replace(report, seq=self._store.next_seq())
        self._repeat_at = steady_now + REPORT_EVERY_S
        self._reported_empty[self._last_report.seq] = {
            a.id for a in report.allocations if a.state == "empty"
        }
        self.send(sender, "report", self._last_report, seq=self._last_report.seq)

    def delivered(self, seq: int) -> None:
        """What was told to be empty, and is in no document any more, is forgotten."""
        told = self._reported_empty.get(seq, set())
        self._reported_empty = {n: names for n, names in self._reported_empty.items() if n > seq}
        desired = self._store.desired
        named = {a.id for g in desired.gpus for a in g.allocations} if desired else set()
        for name in told - named:
            held = self._store.held.get(name)
            if held is not None and held.emptied:
                del self._store.held[name]
                del self._since[name]

    def heartbeat(self, sender: Outbox, wall_now: float, lease: int = 0) -> int:
        """Says that we are there, and how many seconds our lease lasts; returns the number under
        which it was said."""
        heartbeat = wire.Heartbeat(
            seq=self._store.next_seq(),
            observed_generation=self._store.generation,
            sent_at=int(wall_now),
            epoch=self._store.epoch,
            lease=lease,
        )
        self.send(sender, "heartbeat", heartbeat)
        return heartbeat.seq

    def inventory(self, sender: Outbox, inventory: wire.Inventory) -> None:
        """Says what the node is made of."""
        numbered = dataclasses.replace(inventory, seq=self._store.next_seq())
        self.send(sender, "inventory", numbered)

    def examination(self, sender: Outbox, checks: tuple[wire.CheckResult, ...], at: int) -> None:
        """Says what `doctor` found on the node."""
        said = wire.Examination(at=at, checks=checks, seq=self._store.next_seq())
        self.send(sender, "examination", said)

    def telemetry(self, sender: Outbox, samples: tuple[wire.Sample, ...], wall_now: float) -> None:
        """Says what was measured."""
        said = wire.Telemetry(sent_at=int(wall_now), samples=samples, seq=self._store.next_seq())
        self.send(sender, "telemetry", said)

    def send(
        self, sender: Outbox, kind: links.Kind, message: wire.FromAgent, seq: int | None = None
    ) -> None:
        """Signs and sends; `seq` comes back in Delivered."""
        sender.send(links.Outgoing(kind, self._keys.seal(message), seq))
