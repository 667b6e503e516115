"""Finds processes on devices that are not booked by their user, and enforces the site's policy.

Enforcement escalates: a report at once, a warning on the terminals of the user after a while, then
TERM, then KILL. The portal's document has the intervals; without them processes are only reported.
"""

import dataclasses
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

import wire
from agent.act.apply import Outcome
from agent.plan.targets import Record, place_of
from agent.ports.gpu import FoundInstance, GpuError, GpuPort, Place, Truth
from agent.ports.handover import booking_full_name
from agent.ports.programs import Programs
from agent.ports.suspender import Program
from wire import DesiredAllocation

log = logging.getLogger(__name__)

Step = Literal["warned", "asked", "killed"]
# Seconds from the warning to TERM, and from TERM to KILL.
WARNED_BEFORE_S = 60.0
KILL_AFTER_S = 30.0
ENFORCEMENTS_REPORTED = 32


@dataclasses.dataclass(frozen=True, slots=True)
class UnbookedProcess:
    """A program on a GPU (`slot` None) or slice; `booked`: another user has booked the device."""

    gpu: str
    slot: int | None
    program: Program
    user: str
    booked: bool


@dataclasses.dataclass(slots=True)
class _Seen:
    """The times of the first sight and of each action, on the steady clock."""

    since: float
    warned: float | None = None
    asked: float | None = None
    killed: bool = False


class UnbookedProcesses:
    """`account_of` returns the local account of a booking's owner, None when unknown. Unless
    `may_end` returns true, no program is ended, whatever the portal orders."""

    def __init__(
        self,
        port: GpuPort,
        programs: Programs,
        account_of: Callable[[str], str | None],
        steady: Callable[[], float],
        *,
        may_end: Callable[[], bool],
    ) -> None:
        self._port = port
        self._programs = programs
        self._account_of = account_of
        self._steady = steady
        self._may_end = may_end
        self._seen: dict[Program, _Seen] = {}
        self._enforcements: deque[wire.Enforcement] = deque(maxlen=ENFORCEMENTS_REPORTED)

    @property
    def actions(self) -> tuple[wire.Enforcement, ...]:
        """Returns the latest actions, the oldest first."""
        return tuple(self._enforcements)

    def look(
        self,
        outcomes: Iterable[Outcome],
        held: Mapping[str, Record],
        escalation: wire.Escalation | None,
        now: float,
    ) -> list[UnbookedProcess]:
        """Returns the unbooked processes, and takes the actions that are due. `now`: Unix
        seconds."""
        found = [
            process
            for outcome in outcomes
            if outcome.truth is not None
            for process in self._on(outcome.truth, held)
        ]
        there = {process.program for process in found}
        self._seen = {program: seen for program, seen in self._seen.items() if program in there}
        for process in found:
            seen = self._seen.setdefault(process.program, _Seen(self._steady()))
            step = None if escalation is None else self._due(seen, escalation)
            if step is not None:
                self._take(step, process, seen, now)
        return found

    def _on(self, truth: Truth, held: Mapping[str, Record]) -> Iterator[UnbookedProcess]:
        for instance, count in truth.spots():
            place = None if instance is None else instance.place
            given = [
                h.allocation
                for h in held.values()
                if (h.gpu, place_of(h.allocation)) == (truth.uuid, place) and h.given and not h.emptied
            ]
            if count:
                yield from self._unbooked_on(truth.uuid, instance, place, given)

    def _unbooked_on(
        self,
        gpu: str,
        instance: FoundInstance | None,
        place: Place | None,
        given: list[DesiredAllocation],
    ) -> Iterator[UnbookedProcess]:
        try:
            pids = self._port.pids(gpu, None if instance is None else instance.id)
        except GpuError as error:
            log.warning("the processes on %s are not known: %s", gpu, error)
            return
        for pid in sorted(set(pids) - self._permitted(pids, given)):
            birth, owner_of = self._programs.birth(pid), self._programs.owner_of(pid)
            if birth is not None:
                slot = None if place is None else place.slot
                user = owner_of.account or ""
                yield UnbookedProcess(gpu, slot, (pid, birth), user, booked=bool(given))

    def _permitted(self, pids: Iterable[int], given: list[DesiredAllocation]) -> set[int]:
        """Returns the processes that may be there: they name a booking of the device, or run as its
        owner's account. All may if an owner's account is not known."""
        accounts = {self._account_of(each.owner) for each in given}
        if None in accounts:
            return set(pids)
        names = {name for each in given for name in (each.id, booking_full_name(each))}
        found: set[int] = set()
        for pid in pids:
            owner_of = self._programs.owner_of(pid)
            is_unknown = owner_of.account is None
            if is_unknown or owner_of.names & names or owner_of.account in accounts:
                found.add(pid)
        return found

    def _due(self, seen: _Seen, escalation: wire.Escalation) -> Step | None:
        now = self._steady()
        if seen.warned is None:
            return "warned" if now - seen.since >= escalation.warn_after else None
        if escalation.end_after is None or seen.killed:
            return None
        step: Step = "asked" if seen.asked is None else "killed"
        if seen.asked is None:
            due = now - seen.warned >= WARNED_BEFORE_S and now - seen.since >= escalation.end_after
        else:
            due = now - seen.asked >= KILL_AFTER_S
        return step if due and self._may_end() else None

    def _take(self, step: Step, process: UnbookedProcess, seen: _Seen, now: float) -> None:
        pid, birth = process.program
        at = self._steady()
        try:
            if step == "warned":
                seen.warned = at
                self._programs.write(pid, _warning(process))
            elif step == "asked":
                seen.asked = at
                self._programs.ask(pid, birth)
            else:
                seen.killed = True
                self._programs.kill(pid, birth)
        except PermissionError as error:
            log.warning("process %d can't be %s: %s", pid, step, error)
            return
        log.warning("process %d of %s on %s was %s", pid, process.user, process.gpu, step)
        enforcement = wire.Enforcement(
            gpu=process.gpu,
            slot=process.slot,
            pid=pid,
            step=step,
            user=process.user,
            at=int(now),
        )
        self._enforcements.append(enforcement)


def _warning(process: UnbookedProcess) -> str:
    pid, _ = process.program
    where = process.gpu if process.slot is None else f"a slice of {process.gpu}"
    why = "is booked by somebody else" if process.booked else "is not booked"
    return (
        f"Your process {pid} uses {where}, which {why}. End it, and book a GPU in the portal;"
        " it may be ended otherwise."
    )
