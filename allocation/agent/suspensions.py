"""Freezes the programs of a booking at its pause, and wakes them when it comes back.

A toggle freezes what runs and wakes what is frozen, so the agent must never be wrong about which
of the two a program is, not even after a crash. It asks the driver: what is on a device runs. That
answer counts only if no toggle was under way when it was asked for.
"""

import logging
from collections.abc import Iterable

from allocation import wire
from allocation.agent.gpu import GpuPort
from allocation.agent.handover import full_name
from allocation.agent.parts import Part, Resume
from allocation.agent.programs import Programs
from allocation.agent.reconcile import Held
from allocation.agent.records import Records
from allocation.agent.suspender import Program, Suspended, Suspender

log = logging.getLogger(__name__)


class Suspensions:
    """`suspender` is None on a node that can't."""

    def __init__(
        self,
        *,
        port: GpuPort,
        records: Records,
        programs: Programs | None,
        suspender: Suspender | None,
    ) -> None:
        self._port = port
        self._records = records
        self._programs = programs
        self._suspender = suspender
        # Those whose toggle this life began, since their last one the other way.
        self._frozen: set[Program] = set()
        self._woken: set[Program] = set()

    def busy(self) -> frozenset[str]:
        """The allocations of which a program is just being frozen or woken: whether it holds its
        device can't be told."""
        suspender = self._suspender
        if suspender is None:
            return frozenset()
        every = self._records.suspended.values()
        moving = [e for e in every if any(suspender.busy(pid) for pid, _ in e.programs)]
        return frozenset(name for e in moving for name in (e.allocation, e.resumed_by) if name)

    # Freezing.

    def refusal(self, allocation: str) -> str | None:
        """Why its booking can't be frozen here. Raises GpuError."""
        if self._suspender is None or self._programs is None:
            return "this node has no cuda-checkpoint"
        if allocation in self._records.suspended:
            # Begun with another device of the booking, or by an earlier life.
            return None
        members = self._members(full_name(self._records.held[allocation].allocation))
        used = sum(self._port.readings(m.gpu)[0].memory_used_mb or 0 for m in members)
        room = self._suspender.room_mb()
        if room is not None and room < used:
            return f"the host has {room} MiB of memory left, and the devices use {used} MiB"
        return None

    def freeze(self, allocation: str) -> bool:
        """Begins, or goes on, with all of a booking's programs on this node: one of them may hold
        several devices. Returns whether any was begun. Raises GpuError, StoreError."""
        suspender = self._suspender
        if suspender is None:
            return False
        members = self._members(full_name(self._records.held[allocation].allocation))
        before = {pid for pid in self._on(members) if not suspender.busy(pid)}
        there: set[Program] = set()
        for member in members:
            old = self._records.suspended.get(member.allocation.id)
            found = self._living(self._port.pids(member.gpu, None))
            known = tuple(sorted({*found, *(old.programs if old else ())}))
            self._records.freezing(Suspended.of(member.allocation, member.gpu, known))
            there |= found
        begun = sorted(p for p in there - self._frozen if p[0] in before)
        for program in begun:
            self._frozen.add(program)
            self._woken.discard(program)
            suspender.toggle(program[0])
        return bool(begun)

    def _members(self, booking: str) -> list[Held]:
        """What is suspended with it: the booking's whole GPUs that are not yet empty."""
        return [
            held
            for held in self._records.held.values()
            if full_name(held.allocation) == booking and held.given and not held.emptied
        ]

    def _on(self, members: Iterable[Held]) -> set[int]:
        return {pid for member in members for pid in self._port.pids(member.gpu, None)}

    def failure(self, allocation: str) -> str | None:
        """Why one of its programs could not be frozen."""
        each = self._records.suspended.get(allocation)
        if each is None or self._suspender is None:
            return None
        results = (self._suspender.result(p[0]) for p in each.programs if p in self._frozen)
        return next((text for text in results if text), None)

    def give_up(self, allocation: str) -> None:
        """Ends what was frozen with it: a part of a booking can't go on."""
        booking = full_name(self._records.held[allocation].allocation)
        every = self._records.suspended.values()
        self.discard([each.allocation for each in every if each.booking == booking])

    def discard(self, suspended: Iterable[str]) -> None:
        """Ends what was frozen: it will not go on."""
        names = [name for name in suspended if name in self._records.suspended]
        for name in names:
            for pid, birth in self._records.suspended[name].programs:
                if self._programs is not None:
                    self._programs.kill(pid, birth)
        if names:
            self._records.forgotten(names)

    def emptied(self, allocations: Iterable[str]) -> None:
        """Their devices are empty: programs that ended on their own are not suspended."""
        mine = (self._records.suspended.get(name) for name in allocations)
        gone = [e.allocation for e in mine if e is not None and not self._alive(e)]
        if gone:
            self._records.forgotten(gone)

    # Waking.

    def resume(self, parts: Iterable[Part]) -> None:
        """Wakes what bookings that are whole here left behind. Raises GpuError, StoreError."""
        for part in parts:
            held = self._records.held
            pending = [r for r in part.resumes if r.allocation in held]
            if any(not held[r.allocation].resumed for r in pending):
                self._resume(part.name, part.resumes)

    def _resume(self, booking: str, resumes: tuple[Resume, ...]) -> None:
        why = self._hindrance(booking, resumes)
        if why is None:
            done, why = self._wake(resumes)
            if not done and why is None:
                return
        here = [each.allocation for each in resumes]
        if why is not None:
            text = f"what was suspended could not go on: {why}"
            log.warning("%s: %s", booking, text)
            self._records.noted(here, text)
            self.discard(each.suspended for each in resumes)
        self._records.resumed(here, [each.suspended for each in resumes])

    def _hindrance(self, booking: str, resumes: tuple[Resume, ...]) -> str | None:
        if self._suspender is None or self._programs is None:
            return "this node has no cuda-checkpoint"
        for each in resumes:
            found = self._records.suspended.get(each.suspended)
            if found is None or found.booking != booking or not self._alive(found):
                return "it is not there any more"
            if found.gpu != each.device:
                return "it was on another GPU"
        return None

    def _wake(self, resumes: tuple[Resume, ...]) -> tuple[bool, str | None]:
        """Begins, or goes on; returns whether everything is awake, and what failed."""
        suspender = self._suspender
        if suspender is None:
            return False, None
        suspended = [self._records.suspended[each.suspended] for each in resumes]
        every = sorted({p for each in suspended for p in each.programs})
        programs = [p for p in every if self._birth(p[0]) == p[1]]
        idle = {p for p in programs if not suspender.busy(p[0])}
        there = {pid for each in resumes for pid in self._port.pids(each.device, None)}
        asleep = {p for p in programs if p not in self._woken and p[0] not in there}
        for each, found in zip(resumes, suspended, strict=True):
            if asleep and found.resumed_by != each.allocation:
                self._records.freezing(found.woken_by(each.allocation))
        for program in sorted(asleep & idle):
            self._woken.add(program)
            self._frozen.discard(program)
            suspender.toggle(program[0])
        results = [suspender.result(p[0]) for p in programs if p in self._woken]
        if asleep - idle or None in results:
            return False, None
        failed = next((text for text in results if text), None)
        return failed is None, failed

    # Forgetting.

    def tidy(self, desired: wire.Desired) -> None:
        """Ends what no booking will come back for."""
        if desired.suspended is None or not self._records.suspended:
            return
        wanted = set(desired.suspended)
        for gpu in desired.gpus:
            for allocation in gpu.allocations:
                wanted |= {allocation.id, allocation.resumes or allocation.id}
        self.discard(self._records.suspended.keys() - wanted)

    def _living(self, pids: Iterable[int]) -> set[Program]:
        births = ((pid, self._birth(pid)) for pid in pids)
        return {(pid, birth) for pid, birth in births if birth is not None}

    def _alive(self, each: Suspended) -> bool:
        return any(self._birth(pid) == birth for pid, birth in each.programs)

    def _birth(self, pid: int) -> str | None:
        return None if self._programs is None else self._programs.birth(pid)
