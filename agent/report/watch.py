"""Hardware errors and unbooked use of GPUs, for the reports."""

import dataclasses
import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping

import wire
from agent.act.apply import Outcome
from agent.act.unbooked_processes import UnbookedProcess, UnbookedProcesses
from agent.plan.targets import Record, place_of
from agent.ports.gpu import FoundError, GpuError, GpuPort, Place, Truth, WatchPort

log = logging.getLogger(__name__)

# Each report repeats the latest errors, so a lost report loses nothing; the portal drops repeats.
ERRORS_SAID = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Observations:
    """Fields of a report. `staging` has the data that is fetched for allocations, `scripts` what runs or
    has run for them."""

    errors: tuple[wire.HardwareError, ...] = ()
    foreign: tuple[wire.UnbookedDevice, ...] = ()
    hanging: tuple[str, ...] = ()
    actions: tuple[wire.Enforcement, ...] = ()
    staging: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    scripts: Mapping[str, wire.ReportedScript] = dataclasses.field(default_factory=dict)
    hosts: Mapping[str, str] = dataclasses.field(default_factory=dict)


NO_OBSERVATIONS = Observations()


class Watch:
    """Keeps the latest errors. Without a `watch` nothing is observed; without `unbooked` the
    unbooked processes on booked devices are not found."""

    def __init__(
        self, port: GpuPort, watch: WatchPort | None, unbooked: UnbookedProcesses | None = None
    ) -> None:
        self._port = port
        self._watch = watch
        self._unbooked_processes = unbooked
        self._errors: deque[wire.HardwareError] = deque(maxlen=ERRORS_SAID)

    def look(
        self,
        outcomes: Iterable[Outcome],
        held: Mapping[str, Record],
        now: float,
        escalation: wire.Escalation | None = None,
    ) -> Observations:
        """Returns the observations after a turn. A driver that does not answer adds nothing."""
        outcomes = tuple(outcomes)
        if self._watch is None:
            return NO_OBSERVATIONS
        for error in _errors(self._watch):
            reported = self._reported(error, now)
            if reported not in self._errors:
                self._errors.append(reported)
                log.warning("%s reports %s %d", reported.gpu, reported.kind, reported.code)
        given = {(h.gpu, place_of(h.allocation)) for h in held.values() if h.given and not h.emptied}
        foreign = [
            item
            for outcome in outcomes
            if outcome.truth is not None
            for item in self._foreign(self._watch, outcome.truth, given)
        ]
        actions: tuple[wire.Enforcement, ...] = ()
        if self._unbooked_processes is not None:
            foreign += _on_booked(self._unbooked_processes.look(outcomes, held, escalation, now))
            actions = self._unbooked_processes.actions
        return Observations(tuple(self._errors), tuple(foreign), self._watch.hanging(), actions)

    def _reported(self, error: FoundError, now: float) -> wire.HardwareError:
        return wire.HardwareError(
            gpu=error.gpu,
            kind=error.kind,
            code=error.code,
            instance=None if error.instance is None else self._uuid(error.gpu, error.instance),
            recovery=error.recovery,
            at=int(now),
        )

    def _uuid(self, gpu: str, instance: int) -> str | None:
        """The slice's; None when it is gone, or the GPU is: then the error is the GPU's."""
        try:
            there = self._port.truth(gpu).instances
        except GpuError:
            return None
        return next((found.uuid for found in there if found.id == instance), None)

    def _pids(self, gpu: str, instance: int | None) -> tuple[int, ...]:
        try:
            return self._port.pids(gpu, instance)
        except GpuError as error:
            log.warning("whose processes are on %s is not known: %s", gpu, error)
            return ()

    def _foreign(
        self, watch: WatchPort, truth: Truth, given: set[tuple[str, Place | None]]
    ) -> Iterator[wire.UnbookedDevice]:
        """Yields devices without a booking that have processes. Unknown counts are left out."""
        for instance, processes in truth.spots():
            place = None if instance is None else instance.place
            if processes and (truth.uuid, place) not in given:
                yield wire.UnbookedDevice(
                    gpu=truth.uuid,
                    slot=None if place is None else place.slot,
                    processes=processes,
                    users=watch.users(self._pids(truth.uuid, None if instance is None else instance.id)),
                )


def _on_booked(unbooked: Iterable[UnbookedProcess]) -> list[wire.UnbookedDevice]:
    """Returns the devices of bookings that unbooked processes use."""
    found: dict[tuple[str, int | None], list[UnbookedProcess]] = defaultdict(list)
    for process in unbooked:
        if process.booked:
            found[process.gpu, process.slot].append(process)
    return [
        wire.UnbookedDevice(
            gpu=gpu,
            slot=slot,
            processes=len(there),
            users=tuple(sorted({each.user for each in there if each.user})),
            booked=True,
        )
        for (gpu, slot), there in found.items()
    ]


def _errors(watch: WatchPort) -> tuple[FoundError, ...]:
    try:
        return watch.errors()
    except GpuError as error:
        log.warning("errors of the driver can't be read: %s", error)
        return ()
