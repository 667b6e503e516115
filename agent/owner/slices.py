"""Keeps each booking's programs in a systemd slice that may open the booking's devices only.

A slice is closed before anything of its booking is handed over, and closed again before the proof
that a device is empty: from then on nothing in it opens the device, and what has it open is found
by its descriptor. When a booking has nothing left to run here, everything in its slice is ended.
"""

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from agent.owner.cdi import DeviceNodes
from agent.ports.gpu import GpuError
from agent.ports.group_use import GroupUse
from agent.ports.handover import booking_full_name, write_atomic
from agent.ports.host_cores import cores_text
from agent.ports.programs import Programs
from agent.ports.systemd import Units, booking_of, unit_of
from wire import DesiredAllocation

log = logging.getLogger(__name__)

LOGINS_FOLDER = Path("/run/gpu-agent/logins")
KILL_AFTER_S = 10.0
JOIN_AGAIN_S = 2.0
Account = tuple[str, int]
"""The name and the number of an account of this node."""


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """An allocation that is handed over, or is about to be; `cores` of the host go with it."""

    allocation: DesiredAllocation
    device: str
    cores: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class _Rules:
    """What was applied to a slice. `numbers` are those of the device files: a file of the same name
    may be another device after the driver was loaded anew."""

    properties: tuple[str, ...]
    numbers: tuple[int, ...]


def device_number(path: str) -> int:
    """Returns the number that the kernel knows a device file by. Raises OSError."""
    return os.stat(path).st_rdev


@dataclasses.dataclass(frozen=True, slots=True)
class SliceSettings:
    """What slices are made from: device files, and the account of each member of the portal, None
    where there is none or that is not known. `more` are further devices for every booking, as
    systemd names them. `logins` is the folder from which logins read their slices."""

    nodes: DeviceNodes
    account_of: Callable[[str], Account | None]
    more: tuple[str, ...] = ()
    logins: Path = LOGINS_FOLDER
    number_of: Callable[[str], int] = device_number


class Slices:
    """Level-triggered: updates slices, their rules and members for what is handed over now.

    Slices of earlier processes are read from systemd and the kernel, so there is no state file.
    """

    def __init__(
        self,
        units: Units,
        site: SliceSettings,
        programs: Programs | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without `programs` none is moved into its slice. `steady` never jumps."""
        self._units = units
        self._site = site
        self._nodes = site.nodes
        self._account_of = site.account_of
        self._programs = programs
        self._steady = steady
        self._claims: dict[str, Claim] = {}
        self._applied: dict[str, _Rules] = {}
        self._asked: dict[str, float] = {}
        self._joins: dict[int, float] = {}
        self._paths: dict[str, tuple[str, ...]] = {}

    # Handing over.

    def allow(self, allocation: DesiredAllocation, device: str, cores: tuple[int, ...]) -> None:
        """Lets the slice of its booking open the device too. Raises OSError, GpuError; then nothing
        may be handed over."""
        before = self._claims
        self._claims = {**before, allocation.id: Claim(allocation, device, cores)}
        try:
            self._open(booking_full_name(allocation), sure=True)
        except (OSError, GpuError):
            self._claims = before
            raise

    def disallow(self, booking: str, allocation: str) -> None:
        """Closes the device of an allocation to its booking's slice. Raises OSError, GpuError: then
        what is in the slice may still open it."""
        self._claims.pop(allocation, None)
        self._close(booking)

    def _close(self, booking: str) -> None:
        if self._of(booking):
            self._open(booking)
            return
        for unit in self._named(booking):
            try:
                self._close_devices(unit)
            except OSError:
                # Where nothing is, nothing opens a device, and no login finds the way any more.
                if self._units.populated(unit):
                    raise

    def _of(self, booking: str) -> list[Claim]:
        return [each for each in self._claims.values() if booking_full_name(each.allocation) == booking]

    def _named(self, booking: str) -> list[str]:
        return sorted(unit for unit in self._units.existing() if booking_of(unit) == booking)

    def _open(self, booking: str, *, sure: bool = False) -> None:
        """`sure`: the driver must name every file now, and each must exist."""
        claims = self._of(booking)
        owner = claims[0].allocation.owner
        account = self._account_of(owner)
        if account is None:
            raise OSError(f"no local account is known for {owner}, the owner of the slice")
        files = {path for claim in claims for path in self._files(claim.device, sure=sure)}
        paths = (*self._nodes.common(), *sorted(files))
        cores = tuple(sorted(core for claim in claims for core in claim.cores))
        memory_mb = sum(claim.allocation.memory_mb for claim in claims)
        numbers = tuple(self._number(path) for path in paths)
        unit = unit_of(account[1], booking)
        limits = (
            f"AllowedCPUs={cores_text(cores)}",
            f"MemoryMax={memory_mb << 20 if memory_mb else 'infinity'}",
            # Without it the kernel does not say what its programs read and write.
            "IOAccounting=yes",
        )
        self._set(unit, _Rules((*self._devices(paths), *limits), numbers))
        self._asked.pop(unit, None)

    def _files(self, device: str, *, sure: bool) -> tuple[str, ...]:
        """Returns the known files if the driver is briefly late, so that a running booking keeps
        them."""
        try:
            self._paths[device] = self._nodes.of(device)
        except (OSError, GpuError):
            if sure or device not in self._paths:
                raise
        return self._paths[device]

    def _number(self, path: str) -> int:
        try:
            return self._site.number_of(path)
        except FileNotFoundError as error:
            raise OSError(f"there is no file {path}; see nvidia-modprobe") from error

    def _devices(self, paths: Iterable[str] = ()) -> tuple[str, ...]:
        """Returns the rules for devices; the empty one forgets those that were there before."""
        allowed = (f"DeviceAllow={path} rw" for path in (*self._site.more, *paths))
        return ("DevicePolicy=closed", "DeviceAllow=", *allowed)

    def _close_devices(self, unit: str) -> None:
        """Limits of cores and memory stay: what is frozen there is still in them."""
        self._set(unit, _Rules(self._devices(), ()))

    def _set(self, unit: str, rules: _Rules) -> None:
        if self._applied.get(unit) != rules:
            self._applied.pop(unit, None)
            self._units.apply(unit, rules.properties)
            self._applied[unit] = rules

    # Following.

    def sync(self, claims: Iterable[Claim], kept: Collection[str]) -> list[str]:
        """Makes slices be those of `claims`; returns what went wrong, to be tried again. Bookings
        that are `kept` are closed, and their programs stay: they are suspended, or are about to be.
        """
        self._claims = {claim.allocation.id: claim for claim in claims}
        held = {claim.device for claim in self._claims.values()}
        self._paths = {device: paths for device, paths in self._paths.items() if device in held}
        bookings = sorted({booking_full_name(claim.allocation) for claim in self._claims.values()})
        # No login may find the way to a slice that is about to be closed.
        problems = self._logins_write()
        for booking in bookings:
            try:
                self._open(booking)
                self._move_programs(booking)
            except (OSError, GpuError) as error:
                problems.append(f"the slice of {booking}: {error}")
        wanted = {unit for booking in bookings for unit in self._units_of(booking)}
        for unit in sorted(self._units.existing() - wanted):
            try:
                self._retire(unit, stays=booking_of(unit) in kept)
            except OSError as error:
                problems.append(f"{unit}: {error}")
        problems = list(dict.fromkeys(problems + self._logins_write()))
        for problem in problems:
            log.warning("%s", problem)
        return problems

    def _units_of(self, booking: str) -> set[str]:
        """Returns its slice; all of its name while its account is not known."""
        account = self._account_of(self._of(booking)[0].allocation.owner)
        return set(self._named(booking)) if account is None else {unit_of(account[1], booking)}

    def _retire(self, unit: str, *, stays: bool) -> None:
        """Closes what no booking has any more, ends what is in it, and removes it when empty."""
        try:
            self._close_devices(unit)
        finally:
            if not stays:
                self._end(unit)
        if not stays and not self._units.populated(unit):
            self._units.remove(unit)
            self._applied.pop(unit, None)
            self._asked.pop(unit, None)

    def _end(self, unit: str) -> None:
        if not self._units.populated(unit):
            return
        now = self._steady()
        asked = self._asked.setdefault(unit, now)
        if asked == now:
            self._units.signal(unit, force=False)
        elif now - asked >= KILL_AFTER_S:
            self._units.signal(unit, force=True)

    def _move_programs(self, booking: str) -> None:
        """Moves programs of its owner's account that name the booking into its slice."""
        if self._programs is None:
            return
        claims = self._of(booking)
        account = self._account_of(claims[0].allocation.owner)
        if account is None:
            return
        unit, now = unit_of(account[1], booking), self._steady()
        named = self._programs.named({booking, *(claim.allocation.id for claim in claims)})
        self._joins = {pid: at for pid, at in self._joins.items() if now - at < JOIN_AGAIN_S}
        for pid in named:
            if self._programs.owner_of(pid).account != account[0] or self._units.has(unit, pid):
                continue
            # systemd answers before it has moved a program, and refuses a second request.
            if pid not in self._joins:
                self._joins[pid] = now
                self._join(unit, pid)

    def _join(self, unit: str, pid: int) -> None:
        try:
            self._units.join(unit, pid)
        except OSError:
            if self._programs is not None and self._programs.birth(pid) is not None:
                raise

    def _logins_write(self) -> list[str]:
        """One file per account, with its slices that are there; the booking that ends last comes
        first."""
        wanted: dict[str, list[tuple[int, str]]] = {}
        there = self._units.existing()
        for claim in self._claims.values():
            account = self._account_of(claim.allocation.owner)
            if account is not None:
                unit = unit_of(account[1], booking_full_name(claim.allocation))
                if unit in there:
                    wanted.setdefault(str(account[1]), []).append((-claim.allocation.ends, unit))
        try:
            self._site.logins.mkdir(parents=True, exist_ok=True)
            for file in self._site.logins.iterdir():
                if file.name not in wanted:
                    file.unlink()
            for uid, units in wanted.items():
                names = dict.fromkeys(unit for _, unit in sorted(units))
                write_atomic(self._site.logins / uid, "".join(f"{name}\n" for name in names))
        except OSError as error:
            return [f"the slices of logins are not written: {error}"]
        return []

    def use(self, booking: str) -> GroupUse | None:
        """Returns what the programs of a booking have used; None while it has no slice."""
        found = (self._units.use(unit) for unit in self._named(booking))
        return next((use for use in found if use is not None), None)

    def available_mb(self, booking: str) -> int | None:
        """Returns the memory that its slices leave it, in MiB; None without a limit."""
        rooms = (self._units.available_mb(unit) for unit in self._named(booking))
        return min((room for room in rooms if room is not None), default=None)


def claims_of(
    allocations: Iterable[DesiredAllocation],
    given: Mapping[str, str],
    cores: Mapping[str, tuple[int, ...]],
) -> list[Claim]:
    """Returns those of them that are handed over; `given` has their devices."""
    return [Claim(each, given[each.id], cores.get(each.id, ())) for each in allocations if each.id in given]
