"""The agent's records of allocations, and the target of each GPU that follows from them. Pure."""

import dataclasses
from collections.abc import Mapping

from agent.ports.gpu import Place
from wire import Desired, DesiredAllocation, Mode


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """The agent's record of an allocation, on disk before any action for it.

    `given` is set before its owner gets the device, `emptied` once the device is proven empty.
    `notice` was delivered at `noticed`; `saved` is the owner's last report that all is saved (Unix
    seconds). `resumed` is set once its suspended programs run again or were discarded. `note` is
    for people. `fenced`: its lease expired, so it never runs here again.
    """

    allocation: DesiredAllocation
    gpu: str
    given: bool = False
    emptied: bool = False
    notice: str | None = None
    noticed: int | None = None
    saved: int | None = None
    resumed: bool = False
    note: str | None = None
    fenced: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """An allocation that is to have its device, or (`ending`) to lose it."""

    allocation: DesiredAllocation
    ending: bool
    given: bool
    emptied: bool
    gang: bool = False

    @property
    def place(self) -> Place | None:
        return place_of(self.allocation)

    @property
    def mode(self) -> Mode:
        if self.allocation.share is not None:
            return "shared"
        return "whole" if self.place is None else "sliced"


@dataclasses.dataclass(frozen=True, slots=True)
class GpuTarget:
    """What one GPU should be. `mode` is None for a GPU the document does not name. `one_account`:
    only one account's shares may be there at a time. `prepared` are slices to make ahead."""

    gpu: str
    mode: Mode | None
    tasks: tuple[Task, ...]
    one_account: bool = True
    prepared: tuple[Place, ...] = ()


def place_of(allocation: DesiredAllocation) -> Place | None:
    """None for a whole GPU and for a share of one."""
    if allocation.profile_id is None:
        return None
    return Place(allocation.profile_id, allocation.slot, allocation.size)


def records_of(
    desired: Desired, held: Mapping[str, Record], now: float, *, remembers: bool = False
) -> dict[str, Record]:
    """Returns the records of all allocations that have begun, or are to be released.

    `remembers`: every allocation that began here and is not proven empty has a record.
    """
    kept = dict(held)
    for gpu in desired.gpus:
        for wanted in gpu.allocations:
            old = kept.get(wanted.id)
            if old is not None and old.fenced:
                kept[wanted.id] = dataclasses.replace(old, allocation=wanted)
                continue
            moved = old is not None and not _same_place(old, wanted, gpu.uuid)
            if old is None or (moved and (old.emptied or not old.given)):
                if wanted.state == "release" or wanted.starts <= now:
                    others = None if remembers else kept
                    kept[wanted.id] = _first_record(wanted, gpu.uuid, others, now)
            elif not moved:
                # An allocation that was reported empty restarts by a new document only, never
                # because the clock was set back.
                again = wanted.state == "run" and wanted != old.allocation and now < wanted.ends
                old = dataclasses.replace(old, emptied=old.emptied and not again)
                kept[wanted.id] = _notice(dataclasses.replace(old, allocation=wanted), now)
    return kept


def _notice(record: Record, now: float) -> Record:
    """Marks a new notice as delivered: the record comes first, so it is delivered once."""
    notice = record.allocation.notice
    if notice is None:
        return dataclasses.replace(record, notice=None, noticed=None)
    active = record.given and not record.emptied and now < record.allocation.ends
    if not active or record.notice == notice.id:
        return record
    return dataclasses.replace(record, notice=notice.id, noticed=int(now))


def _first_record(
    wanted: DesiredAllocation, gpu: str, held: Mapping[str, Record] | None, now: float
) -> Record:
    """Returns the record of an allocation without one. A release never began here if all records
    are kept (`held` is None). Otherwise an agent that lost its records began it, unless another
    allocation has a record of the same place."""
    if wanted.state == "run" and now < wanted.ends:
        return Record(wanted, gpu)
    if held is None:
        return Record(wanted, gpu, emptied=True)
    others = [h.allocation for h in held.values() if h.gpu == gpu and not h.emptied]
    began = wanted.starts <= now and not any(collide(wanted, other) for other in others)
    return Record(wanted, gpu, given=began, emptied=not began)


def next_boundary(desired: Desired | None, now: float) -> int | None:
    """Returns the next start or end of an allocation of the document."""
    if desired is None:
        return None
    edges = (e for g in desired.gpus for a in g.allocations for e in (a.starts, a.ends))
    return min((edge for edge in edges if edge > now), default=None)


def gpu_targets(desired: Desired, held: Mapping[str, Record], now: float) -> list[GpuTarget]:
    """Returns a target for each GPU that is in the document or has records, by UUID."""
    modes: dict[str, Mode] = {gpu.uuid: gpu.mode for gpu in desired.gpus}
    named = {(a.id, g.uuid, place_of(a)): a for g in desired.gpus for a in g.allocations}
    gangs = {(gang.tenant, gang.booking) for gang in desired.gangs if len(gang.members) > 1}
    tasks: dict[str, list[Task]] = {uuid: [] for uuid in modes}
    for key in sorted(held):
        record = held[key]
        wanted = named.get((key, record.gpu, place_of(record.allocation)))
        over = wanted is None or wanted.state == "release" or wanted.ends <= now
        over = over or record.emptied or record.fenced
        allocation = wanted or record.allocation
        if record.fenced:
            # There is no time to freeze what may begin elsewhere.
            allocation = dataclasses.replace(allocation, notice=None)
        gang = (allocation.tenant, allocation.booking) in gangs
        task = Task(allocation, over, record.given, record.emptied, gang)
        tasks.setdefault(record.gpu, []).append(task)
    prepared = {
        gpu.uuid: tuple(Place(each.profile_id, each.slot, each.size) for each in gpu.prepared)
        for gpu in desired.gpus
    }
    return [
        GpuTarget(uuid, modes.get(uuid), tuple(tasks[uuid]), prepared=prepared.get(uuid, ()))
        for uuid in sorted(tasks)
    ]


def _same_place(held: Record, wanted: DesiredAllocation, gpu: str) -> bool:
    return held.gpu == gpu and place_of(held.allocation) == place_of(wanted)


def collide(one: DesiredAllocation, other: DesiredAllocation) -> bool:
    """Returns whether two allocations of one GPU exclude each other. Shares do not."""
    if one.share is not None and other.share is not None:
        return False
    places = place_of(one), place_of(other)
    return places[0] is None or places[1] is None or places[0].overlaps(places[1])
