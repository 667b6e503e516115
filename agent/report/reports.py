"""Builds the agent's messages, numbers and signs them."""

import dataclasses
import logging
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

import wire
from agent.act.apply import Outcome
from agent.act.step_times import StepTimes
from agent.owner.notices import saved_at
from agent.plan.targets import Record, place_of
from agent.ports import link as links
from agent.ports.gpu import GpuError, GpuPort, Place, Reading, Truth
from agent.ports.handover import booking_full_name
from agent.report.watch import NO_OBSERVATIONS, Observations
from agent.state.documents import Keys
from agent.state.store import Store

log = logging.getLogger(__name__)


NO_JOBS: Mapping[str, int] = MappingProxyType({})
Owners = Mapping[tuple[str, Place | None], str]
"""The allocation on a GPU (by UUID) and place; a None place is the whole GPU."""


@dataclasses.dataclass(frozen=True, slots=True)
class Spoken:
    """What telemetry says besides samples: progress of programs, data sets (None: no folder), and use of
    the host."""

    progress: tuple[wire.ProgressLine, ...] = ()
    data: tuple[wire.CachedData, ...] | None = None
    host: tuple[wire.HostUse, ...] = ()


NOTHING_SPOKEN = Spoken()


def owners_of(held: Mapping[str, Record]) -> Owners:
    """Returns the allocation of each place. Shares are left out: readings of a GPU are not
    theirs."""
    return {
        (record.gpu, place_of(record.allocation)): name
        for name, record in held.items()
        if not record.emptied and record.allocation.share is None
    }


def reported_gpus(outcomes: Iterable[Outcome], owners: Owners) -> tuple[wire.ReportedGpu, ...]:
    """Returns the GPUs that answer."""
    return tuple(
        _reported_gpu(outcome, outcome.truth, owners) for outcome in outcomes if outcome.truth is not None
    )


def unreachable_gpus(outcomes: Iterable[Outcome]) -> list[str]:
    """Returns the errors of GPUs that do not answer."""
    return [f"{o.gpu}: {o.error}" for o in outcomes if o.truth is None]


def _reported_gpu(outcome: Outcome, truth: Truth, owners: Owners) -> wire.ReportedGpu:
    instances = [
        wire.Instance(
            profile=found.profile,
            profile_id=found.place.profile_id,
            slot=found.place.slot,
            size=found.place.size,
            uuid=found.uuid,
            allocation=owners.get((outcome.gpu, found.place)),
        )
        for found in sorted(truth.instances, key=lambda i: i.place)
    ]
    return wire.ReportedGpu(
        uuid=outcome.gpu,
        mode=truth.mode,
        instances=tuple(instances),
        error=outcome.error,
        pending=truth.pending,
        stuck=outcome.stuck,
        withheld=truth.withheld,
    )


def reported_allocations(
    outcomes: Iterable[Outcome],
    since: Mapping[str, int],
    held: Mapping[str, Record],
    suspended: Collection[str],
    jobs: Mapping[str, int],
    seen: Observations = NO_OBSERVATIONS,
) -> tuple[wire.ReportedAllocation, ...]:
    """Returns the allocations that still have a record in `held`; the portal has the others.
    `since` has the Unix seconds at which each allocation entered its state, `jobs` the numbers of
    their jobs, `seen` the data that is fetched for them and their scripts."""
    found = [
        wire.ReportedAllocation(
            id=name,
            state=state.state,
            devices=() if state.device is None else (state.device,),
            error=state.error or held[name].note,
            since=since[name],
            noticed=held[name].noticed,
            saved=saved_at(held[name]),
            suspended=state.state == "empty" and name in suspended,
            job=jobs.get(name),
            host=seen.hosts.get(name, ""),
            staging=seen.staging.get(name, ()) if state.state == "preparing" else (),
            script=seen.scripts.get(name),
        )
        for outcome in outcomes
        for name, state in outcome.states.items()
        if name in held
    ]
    return tuple(sorted(found, key=lambda allocation: allocation.id))


def progress_of(held: Mapping[str, Record], lines: Mapping[str, str]) -> tuple[wire.ProgressLine, ...]:
    """The lines by booking as lines by an allocation of it, the first by id."""
    first: dict[str, str] = {}
    for record in sorted(held.values(), key=lambda each: each.allocation.id):
        allocation = record.allocation
        first.setdefault(booking_full_name(allocation), allocation.id)
    found = [wire.ProgressLine(allocation=first[n], line=lines[n]) for n in sorted(lines) if n in first]
    return tuple(found[: wire.PROGRESS_MAX])


def samples_take(port: GpuPort, gpus: Iterable[str], owners: Owners) -> tuple[wire.Sample, ...]:
    """Returns the samples of GPUs that answer. Those of bookings take precedence when there are
    more than a message may have."""
    samples: list[wire.Sample] = []
    for gpu in gpus:
        try:
            samples += [_sample(reading, owners) for reading in port.readings(gpu)]
        except GpuError as error:
            log.warning("no telemetry of %s: %s", gpu, error)
    if len(samples) > wire.SAMPLES_MAX:
        log.warning("%d readings are not sent", len(samples) - wire.SAMPLES_MAX)
        samples.sort(key=lambda sample: sample.allocation is None)
    return tuple(samples[: wire.SAMPLES_MAX])


def _sample(reading: Reading, owners: Owners) -> wire.Sample:
    place = reading.place
    values = {field.name: getattr(reading, field.name) for field in dataclasses.fields(reading)}
    del values["place"]
    return wire.Sample(
        slot=None if place is None else place.slot,
        size=None if place is None else place.size,
        allocation=owners.get((reading.gpu, place)),
        **values,
    )


REPORT_EVERY_S = 60.0
DATA_EVERY_S = 300.0


class Outbox(Protocol):
    """The part of Link the agent needs."""

    def send(self, outgoing: links.Outgoing) -> None: ...


class ReportSender:
    """Sends the messages. Remembers the last report, and when each allocation entered its state."""

    def __init__(self, keys: Keys, store: Store, steady_now: float, times: StepTimes) -> None:
        self._keys = keys
        self._times = times
        self._store = store
        self._since: dict[str, tuple[str, int]] = {}
        self._last_report: wire.Report | None = None
        self._reported_empty: dict[int, set[str]] = {}
        self._repeat_at = steady_now
        self._last_notebooks: wire.Notebooks | None = None
        self._notebooks_repeat_at = steady_now
        self._last_data: tuple[wire.CachedData, ...] | None = None
        self._data_at = 0.0

    def entered(self, name: str, state: wire.AllocationState, at: int) -> None:
        """Records a state; `at` (Unix seconds) is its start if the state is new."""
        if self._since.get(name, ("", 0))[0] != state:
            self._since[name] = (state, at)

    def resend(self) -> None:
        """Sends the next report even if nothing changed: the last one may be lost."""
        self._last_report = self._last_notebooks = self._last_data = None

    def report(
        self,
        sender: Outbox,
        outcomes: Iterable[Outcome],
        problems: Iterable[str | None],
        steady_now: float,
        seen: Observations = NO_OBSERVATIONS,
        jobs: Mapping[str, int] = NO_JOBS,
    ) -> None:
        """Sends a report when it differs from the last one, and once a minute."""
        outcomes = tuple(outcomes)
        owners = owners_of(self._store.held)
        found = [problem for problem in problems if problem] + unreachable_gpus(outcomes)
        report = wire.Report(
            epoch=self._store.epoch,
            observed_generation=self._store.generation,
            seq=0 if self._last_report is None else self._last_report.seq,
            gpus=reported_gpus(outcomes, owners),
            allocations=reported_allocations(
                outcomes,
                {name: at for name, (_, at) in self._since.items()},
                self._store.held,
                self._store.suspended,
                jobs,
                seen,
            ),
            error="; ".join(found) or None,
            errors=seen.errors,
            foreign=seen.foreign,
            hanging=seen.hanging,
            deeds=seen.actions,
        )
        if report == self._last_report and steady_now < self._repeat_at:
            return
        self._last_report = dataclasses.replace(report, seq=self._store.next_seq())
        self._repeat_at = steady_now + REPORT_EVERY_S
        self._reported_empty[self._last_report.seq] = {a.id for a in report.allocations if a.state == "empty"}
        # They say nothing about the node's state, so they cause no report of their own.
        sent = self._times.added(self._last_report)
        self.send(sender, "report", sent, seq=sent.seq)

    def delivered(self, seq: int) -> None:
        """Drops records of allocations that were reported empty and are in no document."""
        self._times.delivered(seq)
        empty = self._reported_empty.get(seq, set())
        self._reported_empty = {n: names for n, names in self._reported_empty.items() if n > seq}
        desired = self._store.desired
        named = {a.id for g in desired.gpus for a in g.allocations} if desired else set()
        for name in empty - named:
            held = self._store.held.get(name)
            if held is not None and held.emptied:
                del self._store.held[name]
                del self._since[name]

    def heartbeat(self, sender: Outbox, wall_now: float, lease: int = 0) -> int:
        """Sends a heartbeat with the remaining seconds of the lease; returns its number."""
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
        """Sends the inventory."""
        numbered = dataclasses.replace(inventory, seq=self._store.next_seq())
        self.send(sender, "inventory", numbered)

    def notebooks(
        self,
        sender: Outbox,
        programs: tuple[str, ...],
        found: tuple[wire.ReportedNotebook, ...],
        steady_now: float,
    ) -> None:
        """Sends how notebooks are when that differs from the last message, and once a minute."""
        seq = 0 if self._last_notebooks is None else self._last_notebooks.seq
        message = wire.Notebooks(seq=seq, programs=programs, notebooks=found)
        if message == self._last_notebooks and steady_now < self._notebooks_repeat_at:
            return
        self._last_notebooks = dataclasses.replace(message, seq=self._store.next_seq())
        self._notebooks_repeat_at = steady_now + REPORT_EVERY_S
        self.send(sender, "notebooks", self._last_notebooks)

    def examination(self, sender: Outbox, checks: tuple[wire.CheckResult, ...], at: int) -> None:
        """Sends the results of `doctor`."""
        message = wire.Examination(at=at, checks=checks, seq=self._store.next_seq())
        self.send(sender, "examination", message)

    def telemetry(
        self,
        sender: Outbox,
        samples: tuple[wire.Sample, ...],
        wall_now: float,
        spoken: Spoken = NOTHING_SPOKEN,
    ) -> None:
        """Sends the samples and what else there is to say; data sets if they are others than in the last
        message with some, or that was five minutes ago."""
        data = spoken.data
        if data == self._last_data and abs(wall_now - self._data_at) < DATA_EVERY_S:
            data = None
        elif data is not None:
            self._last_data, self._data_at = data, wall_now
        seq = self._store.next_seq()
        message = wire.Telemetry(
            sent_at=int(wall_now),
            samples=samples,
            seq=seq,
            progress=spoken.progress,
            data=data,
            host=spoken.host,
        )
        self.send(sender, "telemetry", message)

    def send(self, sender: Outbox, kind: links.Kind, message: wire.FromAgent, seq: int | None = None) -> None:
        """Signs and sends; `seq` comes back in Delivered."""
        sender.send(links.Outgoing(kind, self._keys.seal(message), seq))
