"""Notices of pauses to owners, and the owners' reports that all is saved."""

import logging
from collections.abc import Iterable, Mapping

from agent.owner.device_holders import AccountOf, device_holders, share_holders
from agent.plan.targets import Record
from agent.ports.gpu import GpuError, GpuPort
from agent.ports.handover import booking_full_name
from agent.ports.programs import Programs

log = logging.getLogger(__name__)

_APART_S = 10


def has_open_notice(held: Mapping[str, Record]) -> bool:
    """Returns whether an owner under a notice may report that all is saved."""
    return any(each.notice is not None and not each.emptied for each in held.values())


def newly_notified(before: Mapping[str, Record], held: Mapping[str, Record]) -> list[Record]:
    """Returns the records with a notice that is new since `before`."""
    return [
        each
        for name, each in held.items()
        if each.notice is not None and (name not in before or before[name].notice != each.notice)
    ]


def saved_updates(held: Mapping[str, Record], said: Mapping[str, int], now: float) -> dict[str, int]:
    """Returns the new times in `said`: when owners reported that all is saved, by booking, in Unix
    s.

    The time comes from the owner, so it counts only within the booking and up to now. Without a
    notice it marks a checkpoint, which is recorded every ten seconds at most.
    """
    found = {}
    for name, record in held.items():
        at = min(said.get(booking_full_name(record.allocation), 0), int(now))
        old = record.saved
        if not record.given or record.emptied or at < record.allocation.starts:
            continue
        if old is not None and (at <= old or (record.notice is None and now - old < _APART_S)):
            continue
        found[name] = at
    return found


def saved_at(record: Record) -> int | None:
    """Returns when all was saved, for the portal: on the same side of the notice as on this node,
    however much the two clocks differ."""
    notice, at = record.allocation.notice, record.saved
    if at is None or notice is None or record.noticed is None:
        return at
    return max(at, notice.told) if at >= record.noticed else min(at, notice.told - 1)


def programs_signal(
    port: GpuPort,
    programs: Programs,
    number: int,
    notified: Iterable[Record],
    held: Mapping[str, Record],
    account_of: AccountOf,
) -> None:
    """Sends the signal to each program on the devices of `notified` once."""
    pids: dict[int, None] = {}
    for record in notified:
        try:
            pids |= dict.fromkeys(_programs_of(port, programs, record, held, account_of))
        except GpuError as error:
            log.warning("programs of %s were not warned: %s", record.allocation.id, error)
    warned = [pid for pid in pids if programs.warn(pid, number)]
    if pids:
        log.info("signal %d went to %d of %d programs", number, len(warned), len(pids))


def _programs_of(
    port: GpuPort,
    programs: Programs,
    record: Record,
    held: Mapping[str, Record],
    account_of: AccountOf,
) -> tuple[int, ...]:
    if record.allocation.share is None:
        return device_holders(port, record.gpu, record.allocation)
    same_gpu = (h.allocation for h in held.values() if h.gpu == record.gpu and not h.emptied)
    shares = (each for each in same_gpu if each.share is not None)
    return share_holders(port, programs, record.gpu, shares, account_of)[record.allocation.id] or ()
