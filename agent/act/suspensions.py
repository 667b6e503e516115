"""Suspends the programs of a booking at its pause, and resumes them when it returns.

The state of a program (running, locked or checkpointed) is read for each job, so a crash of the
agent changes nothing. Drivers without such a state have one toggle for both directions: there a
program on a device runs. That holds only if no job was in progress when the device was read.

A program with locked CUDA calls can't end in order, so it is resumed before TERM.
"""

import logging
from collections.abc import Callable, Collection, Iterable

import wire
from agent.owner.shares import ActiveBooking, ResumedAllocation
from agent.plan.targets import Record
from agent.ports.gpu import GpuPort
from agent.ports.handover import booking_full_name
from agent.ports.programs import Programs
from agent.ports.suspender import Program, Suspended, Suspender, living
from agent.state.records import Records

log = logging.getLogger(__name__)

NO_PROGRAM = "this node has no cuda-checkpoint"
SEVERAL_GPUS = "it has several GPUs, and programs that work together on them can't be suspended"


class SuspensionLimits:
    """Says what keeps a booking on this node from being suspended."""

    def __init__(
        self,
        *,
        port: GpuPort,
        records: Records,
        suspender: Suspender | None,
        limit_mb: Callable[[str], int | None] = lambda booking: None,
    ) -> None:
        """`suspender` is None on a node where nothing can be suspended. `limit_mb` returns the memory
        that a booking's own limit leaves, None without a limit. A suspended program counts against it:
        the driver copies device memory into the program's."""
        self._port = port
        self._records = records
        self._suspender = suspender
        self._limit_mb = limit_mb

    def refusal(self, allocation: str) -> str | None:
        """Returns why its booking can't be suspended here. Raises GpuError."""
        if self._suspender is None:
            return NO_PROGRAM
        if allocation in self._records.suspended:
            # An earlier process began it.
            return None
        if self._suspender.refusal is not None:
            return self._suspender.refusal
        if self._has_several(allocation):
            return SEVERAL_GPUS
        booking = booking_full_name(self._records.held[allocation].allocation)
        return self._memory_refusal(booking, self._suspender)

    def _memory_refusal(self, booking: str, suspender: Suspender) -> str | None:
        """Returns why the host's memory is too small for the device memory. Raises GpuError."""
        room = suspender.available_mb()
        members = members_of(booking, self._records)
        used = sum(self._port.readings(m.gpu)[0].memory_used_mb or 0 for m in members)
        if room is not None and room < used:
            return f"the host has {room} MiB of memory left, and the devices use {used} MiB"
        limit = self._limit_mb(booking)
        if limit is not None and limit < used:
            return f"the booking's memory limit leaves {limit} MiB, and the devices use {used} MiB"
        return None

    def _has_several(self, allocation: str) -> bool:
        mine = self._records.held[allocation].allocation
        same = (
            held
            for held in self._records.held.values()
            if booking_full_name(held.allocation) == booking_full_name(mine)
            and held.allocation.starts == mine.starts
            and held.given
        )
        return sum(1 for _ in same) > 1


def members_of(booking: str, records: Records) -> list[Record]:
    """Returns the booking's GPUs that are not yet empty: they are suspended together."""
    return [
        held
        for held in records.held.values()
        if booking_full_name(held.allocation) == booking and held.given and not held.emptied
    ]


class Suspensions:
    """Suspends the programs of paused bookings, and resumes or discards them later.

    `suspender` is None on a node without `cuda-checkpoint`.
    """

    def __init__(
        self,
        *,
        port: GpuPort,
        records: Records,
        programs: Programs | None,
        suspender: Suspender | None,
        limits: SuspensionLimits,
    ) -> None:
        self.limits = limits
        self._port = port
        self._records = records
        self._programs = programs
        self._suspender = suspender
        # Programs for which this process began the operation, since their last opposite one.
        self._suspended: set[Program] = set()
        self._resumed: set[Program] = set()
        # An earlier process may have left these half suspended.
        every = records.suspended.values()
        self._earlier = frozenset(program for each in every for program in each.programs)

    def busy(self) -> frozenset[str]:
        """Returns the allocations with a program that is being suspended or resumed: whether it
        holds its device is unknown."""
        suspender = self._suspender
        if suspender is None:
            return frozenset()
        every = self._records.suspended.values()
        moving = [e for e in every if any(suspender.busy(pid) for pid, _ in e.programs)]
        return frozenset(name for e in moving for name in (e.allocation, e.resumed_by) if name)

    # Suspending.

    def suspend(self, allocation: str) -> bool:
        """Begins or continues to suspend all programs of a booking on this node: one of them may
        hold several devices. Returns whether any was begun. Raises GpuError, StoreError."""
        suspender = self._suspender
        if suspender is None:
            return False
        members = members_of(booking_full_name(self._records.held[allocation].allocation), self._records)
        before = {pid for pid in self._on(members) if not suspender.busy(pid)}
        there: set[Program] = set()
        for member in members:
            old = self._records.suspended.get(member.allocation.id)
            found = living(self._programs, self._port.pids(member.gpu, None))
            known = tuple(sorted({*found, *(old.programs if old else ())}))
            self._records.set_suspended(Suspended.of(member.allocation, member.gpu, known))
            there |= found
        begun = sorted(p for p in there - self._suspended if p[0] in before)
        for program in begun:
            self._suspended.add(program)
            self._resumed.discard(program)
            suspender.suspend(program[0])
        return bool(begun)

    def _on(self, members: Iterable[Record]) -> set[int]:
        return {pid for member in members for pid in self._port.pids(member.gpu, None)}

    def failure(self, allocation: str) -> str | None:
        """Returns why one of its programs could not be suspended."""
        each = self._records.suspended.get(allocation)
        if each is None or self._suspender is None:
            return None
        results = (self._suspender.result(p[0]) for p in each.programs if p in self._suspended)
        return next((text for text in results if text), None)

    def may_be_suspended(self, allocation: str) -> bool:
        """Returns whether one of its programs may be wholly or partly suspended."""
        every = self._records.suspended.values()
        mine = (each for each in every if allocation in (each.allocation, each.resumed_by))
        return any(self._alive(each) for each in mine)

    def undo(self, allocation: str) -> str | None:
        """Begins or continues to resume all suspended programs of its booking here.

        Returns None while that is in progress, else which programs could not be resumed and were
        killed, empty if there are none. Raises GpuError.
        """
        booking = booking_full_name(self._records.held[allocation].allocation)
        mine = [e for e in self._records.suspended.values() if e.booking == booking]
        programs = sorted({p for each in mine for p in each.programs if self._is(p)})
        suspender = self._suspender
        failed = {} if suspender is None else self._resume_all(suspender, mine, programs)
        if failed is None:
            return None
        stuck = [p for p in programs if suspender is None or p in failed]
        for pid, birth in stuck:
            self._kill(pid, birth)
        self._records.drop_suspended([each.allocation for each in mine])
        self._suspended -= set(programs)
        self._resumed -= set(programs)
        if not stuck:
            return ""
        why = next((failed[p] for p in stuck if failed.get(p)), "nothing here can unlock them")
        return f"its CUDA calls stayed locked and it was killed: {why}"

    def _resume_all(
        self, suspender: Suspender, mine: Iterable[Suspended], programs: Iterable[Program]
    ) -> dict[Program, str] | None:
        """Returns the reason for each that could not be resumed; None while some are in
        progress."""
        there = {pid for each in mine for pid in self._port.pids(each.gpu, None)}
        for program in programs:
            if program not in self._resumed and not suspender.busy(program[0]):
                self._resumed.add(program)
                suspender.resume(program[0], there=program[0] in there)
        if any(p not in self._resumed or suspender.busy(p[0]) for p in programs):
            return None
        failed = {}
        for program in programs:
            why = suspender.result(program[0]) or ""
            if suspender.may_be_locked(program[0]) or (why and program in self._earlier):
                failed[program] = why
        return failed

    def discard(self, suspended: Iterable[str]) -> None:
        """Ends suspended programs that will not be resumed."""
        names = [name for name in suspended if name in self._records.suspended]
        for name in names:
            for pid, birth in self._records.suspended[name].programs:
                self._kill(pid, birth)
        if names:
            self._records.drop_suspended(names)

    def abandon(self, allocation: str) -> None:
        """Ends the programs of a booking with empty devices that could not be resumed."""
        booking = booking_full_name(self._records.held[allocation].allocation)
        mine = [e for e in self._records.suspended.values() if e.booking == booking]
        for pid, birth in sorted({p for each in mine for p in each.programs}):
            if (pid, birth) not in self._resumed or self._result(pid) != "":
                self._kill(pid, birth)
        self._records.drop_suspended([each.allocation for each in mine])

    def emptied(self, allocations: Iterable[str]) -> None:
        """Forgets suspensions of allocations whose programs ended on their own."""
        mine = (self._records.suspended.get(name) for name in allocations)
        gone = [e.allocation for e in mine if e is not None and not self._alive(e)]
        if gone:
            self._records.drop_suspended(gone)

    # Resuming.

    def resume(self, parts: Iterable[ActiveBooking], given: Collection[str]) -> None:
        """Resumes the programs of bookings that have all their devices again, and those that were
        suspended too early: `given` has the allocations that have their devices now. Raises
        GpuError, StoreError."""
        for name in [n for n in self._records.suspended if n in given and n in self._records.held]:
            stuck = self.undo(name)
            if stuck:
                log.warning("%s: %s", name, stuck)
                self._records.set_note([name], stuck)
        for part in parts:
            held = self._records.held
            pending = [r for r in part.resumes if r.allocation in held]
            if any(not held[r.allocation].resumed for r in pending):
                self._resume(part.name, part.resumes)

    def _resume(self, booking: str, resumes: tuple[ResumedAllocation, ...]) -> None:
        why = self._resume_refusal(booking, resumes)
        if why is None:
            done, why = self._resume_programs(resumes)
            if not done and why is None:
                return
        here = [each.allocation for each in resumes]
        if why is not None:
            text = f"what was suspended could not be resumed: {why}"
            log.warning("%s: %s", booking, text)
            self._records.set_note(here, text)
            self.discard(each.suspended for each in resumes)
        self._records.mark_resumed(here, [each.suspended for each in resumes])

    def _resume_refusal(self, booking: str, resumes: tuple[ResumedAllocation, ...]) -> str | None:
        if self._suspender is None or self._programs is None:
            return NO_PROGRAM
        for each in resumes:
            found = self._records.suspended.get(each.suspended)
            if found is None or found.booking != booking or not self._alive(found):
                return "it is not there any more"
            if found.gpu != each.device:
                return "it was on another GPU"
        return None

    def _resume_programs(self, resumes: tuple[ResumedAllocation, ...]) -> tuple[bool, str | None]:
        """Begins or continues; returns whether all programs run, and the first failure."""
        suspender = self._suspender
        if suspender is None:
            return False, None
        suspended = [self._records.suspended[each.suspended] for each in resumes]
        every = sorted({p for each in suspended for p in each.programs})
        programs = [p for p in every if self._is(p)]
        idle = {p for p in programs if not suspender.busy(p[0])}
        there = {pid for each in resumes for pid in self._port.pids(each.device, None)}
        # Includes those on their device: an earlier process may have left one locked there.
        pending = {p for p in programs if p not in self._resumed}
        for each, found in zip(resumes, suspended, strict=True):
            if pending and found.resumed_by != each.allocation:
                self._records.set_suspended(found.with_resume(each.allocation))
        for program in sorted(pending & idle):
            self._resumed.add(program)
            self._suspended.discard(program)
            suspender.resume(program[0], there=program[0] in there)
        results = [suspender.result(p[0]) for p in programs if p in self._resumed]
        if pending - idle or None in results:
            return False, None
        failed = next((text for text in results if text), None)
        return failed is None, failed

    # Discarding.

    def discard_unwanted(self, desired: wire.Desired) -> None:
        """Discards suspensions that the document no longer names."""
        if desired.suspended is None or not self._records.suspended:
            return
        wanted = set(desired.suspended)
        for gpu in desired.gpus:
            for allocation in gpu.allocations:
                wanted |= {allocation.id, allocation.resumes or allocation.id}
        self.discard(self._records.suspended.keys() - wanted)

    def _kill(self, pid: int, birth: str) -> None:
        if self._programs is not None:
            self._programs.kill(pid, birth)

    def _result(self, pid: int) -> str | None:
        return None if self._suspender is None else self._suspender.result(pid)

    def _alive(self, each: Suspended) -> bool:
        return any(self._is(program) for program in each.programs)

    def _is(self, program: Program) -> bool:
        return self._birth(program[0]) == program[1]

    def _birth(self, pid: int) -> str | None:
        return None if self._programs is None else self._programs.birth(pid)
