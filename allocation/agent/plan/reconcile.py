"""What to do next on one GPU: the difference between what is desired and what is there.

Pure. The caller reads the truth, carries the steps out in their order, reads again and plans again
until nothing is left to do, so a step may rely only on what was true before the first of them.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from allocation.agent.plan.pauses import ProgramsSeen, pause_method
from allocation.agent.plan.steps import (
    Create,
    Destroy,
    EndProcesses,
    HandOver,
    SetMode,
    Step,
    TakeBack,
)
from allocation.agent.ports.gpu import FoundInstance, Place, Truth
from allocation.wire import AllocationState, Desired, DesiredAllocation, Mode


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """Our own record of an allocation we began with; written before anything is done for it.

    `given` is set before its owner gets the device, `emptied` once nothing of it is left. `notice`
    is the notice that its owner was told of, at `noticed`; `saved` is when its owner last said that
    everything is saved (Unix seconds). `resumed` is set when what it resumes goes on or never will.
    `note` is for people. `fenced` is set when its lease ran out: it never runs here again, whatever
    the document says.
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
    """One allocation's claim on a GPU now: to be there, or (`ending`) to be gone."""

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
    only one account's shares may be there at a time."""

    gpu: str
    mode: Mode | None
    tasks: tuple[Task, ...]
    one_account: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """Why the last try for an allocation or a GPU failed; `lasting` ones are not tried again."""

    text: str
    lasting: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    state: AllocationState
    device: str | None = None
    error: str | None = None


@dataclasses.dataclass(slots=True)
class Plan:
    """Steps in order; the state of each allocation if no step were done; why the mode is wrong."""

    steps: list[Step] = dataclasses.field(default_factory=list)
    states: dict[str, State] = dataclasses.field(default_factory=dict)
    error: str | None = None


def place_of(allocation: DesiredAllocation) -> Place | None:
    """None for a whole GPU and for a share of one."""
    if allocation.profile_id is None:
        return None
    return Place(allocation.profile_id, allocation.slot, allocation.size)


def records_of(
    desired: Desired, held: Mapping[str, Record], now: float, *, remembers: bool = False
) -> dict[str, Record]:
    """The records to keep: one for each allocation that has begun or must be seen to its end.

    `remembers`: there is a record of everything that was ever begun here and is not proven empty.
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
                # What was told to be empty comes back by another word, never by a clock set back.
                again = wanted.state == "run" and wanted != old.allocation and now < wanted.ends
                old = dataclasses.replace(old, emptied=old.emptied and not again)
                kept[wanted.id] = _notice(dataclasses.replace(old, allocation=wanted), now)
    return kept


def _notice(record: Record, now: float) -> Record:
    """Its owner is told of each notice once, so that is recorded before it is done."""
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
    """A release we hold nothing of never began where everything is remembered (`held` is None).
    Else it was given by a life of ours that lost its records, unless another's record on the same
    spot tells that it never began."""
    if wanted.state == "run" and now < wanted.ends:
        return Record(wanted, gpu)
    if held is None:
        return Record(wanted, gpu, emptied=True)
    others = [h.allocation for h in held.values() if h.gpu == gpu and not h.emptied]
    began = wanted.starts <= now and not any(_collide(wanted, other) for other in others)
    return Record(wanted, gpu, given=began, emptied=not began)


def gpu_targets(desired: Desired, held: Mapping[str, Record], now: float) -> list[GpuTarget]:
    """One wish per GPU that is named or held, by UUID."""
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
    return [GpuTarget(uuid, modes.get(uuid), tuple(tasks[uuid])) for uuid in sorted(tasks)]


def plan(
    target: GpuTarget,
    truth: Truth,
    given: Mapping[str, str],
    problems: Mapping[str, Problem],
    seen: ProgramsSeen | None = None,
) -> Plan:
    """`given` maps allocations to the device their owner was handed; `problems` what failed."""
    found, seen = Plan(), seen or ProgramsSeen()
    # 1. What must go, goes first.
    for task in target.tasks:
        if task.ending:
            _end(found, task, truth, given, seen)
    going = [t for t in target.tasks if t.ending and found.states[t.allocation.id].state != "empty"]
    # 2. The mode changes on an empty GPU; so does what its next reset would make of it.
    if target.mode is not None and hardware_mode(target.mode) != truth.mode:
        _switch(found, target, truth, given, going=bool(going))
    elif truth.pending is not None and not truth.instances and truth.processes == 0 and not given:
        found.steps.append(SetMode(truth.mode))
    # 3. What is wanted, is made and handed over.
    staying = sorted(
        (t for t in target.tasks if not t.ending),
        key=lambda t: (t.allocation.id not in given, t.allocation.starts, t.allocation.id),
    )
    for i, task in enumerate(staying):
        waits = _blocked_by(task, (*going, *staying[:i]), one_account=target.one_account)
        problem = problems.get(task.allocation.id)
        if problem is not None and problem.lasting:
            found.states[task.allocation.id] = State("failed", error=problem.text)
        elif waits is not None:
            found.states[task.allocation.id] = State("preparing", error=waits)
        else:
            _start(found, target, task, truth, given)
    _problems_note(found, problems)
    return found


def _blocked_by(task: Task, ahead: Iterable[Task], *, one_account: bool) -> str | None:
    """Why it can't begin beside those that are there or come first."""
    room = 1000
    for other in ahead:
        first, share = other.allocation, other.allocation.share
        if _collide(first, task.allocation):
            return f"waits until {first.booking} has left"
        if share is None or task.allocation.share is None:
            continue
        room -= share
        if room < task.allocation.share:
            return f"waits until {first.booking} has left: the shares are more than the GPU"
        if one_account and first.owner != task.allocation.owner:
            return f"waits until {first.booking} has left: a shared GPU is for one account here"
    return None


def _problems_note(found: Plan, problems: Mapping[str, Problem]) -> None:
    for key, problem in problems.items():
        state = found.states.get(key)
        if state is not None and state.state in ("preparing", "ending"):
            found.states[key] = dataclasses.replace(state, error=problem.text)


def _end(
    found: Plan, task: Task, truth: Truth, given: Mapping[str, str], seen: ProgramsSeen
) -> None:
    name = task.allocation.id
    if task.emptied:
        found.states[name] = State("empty")
        return
    if name in given:
        found.steps.append(TakeBack(name))
    if name in seen.busy:
        found.states[name] = State("ending")
        return
    instance = None if task.place is None else _instance_at(truth, task.place)
    count, only = _programs_of(task, truth, instance, seen)
    there = instance is not None
    left = task.allocation.share is None and truth.residue_mb > 0
    if task.place is None:
        there = truth.mode == "whole" and task.given and (count != 0 or left)
    error = _clear(found, task, instance, count, only) if there else None
    if there and task.place is None and count == 0:
        error = _residue_text(truth)
    gone = not there and name not in given
    found.states[name] = State("empty" if gone else "ending", error=error)


def _residue_text(truth: Truth) -> str:
    return f"no program is there, but {truth.residue_mb} MiB of the GPU's memory are still in use"


def _holders_text(truth: Truth) -> str:
    """Who is on a whole GPU, to be put behind a sentence."""
    return f": {', '.join(truth.holders)}" if truth.holders else ""


def _clear(
    found: Plan,
    task: Task,
    instance: FoundInstance | None,
    count: int | None,
    only: tuple[int, ...] | None,
) -> str | None:
    """Ends its programs, then removes its slice; returns why that can't be done."""
    name = task.allocation.id
    if count is None and instance is None:
        return "the driver does not tell whether a process holds the GPU"
    if count and not task.given:
        return "a process that is not of this booking holds the slice"
    if count:
        method, note = pause_method(task.allocation.notice, task.mode, gang=task.gang)
        number = None if instance is None else instance.id
        found.steps.append(EndProcesses(name, number, method, note, only))
    elif instance is not None:
        found.steps.append(Destroy(instance.id, name))
    return None


def _programs_of(
    task: Task, truth: Truth, instance: FoundInstance | None, seen: ProgramsSeen
) -> tuple[int | None, tuple[int, ...] | None]:
    """How many there are, and of a share which; None where that can't be told."""
    if task.allocation.share is not None:
        only = seen.shares.get(task.allocation.id)
        return None if only is None else len(only), only
    if task.place is None:
        return truth.processes, None
    return None if instance is None else instance.processes, None


def _switch(
    found: Plan, target: GpuTarget, truth: Truth, given: Mapping[str, str], *, going: bool
) -> None:
    """Changes the mode of an empty GPU; idle slices that nobody here asked for are removed."""
    running = any(
        t.allocation.id in given and hardware_mode(t.mode) == truth.mode for t in target.tasks
    )
    if target.mode is None or going or running:
        return
    if any(i.processes != 0 for i in truth.instances) or truth.processes != 0:
        text = "a process that is of no booking keeps the GPU from changing its mode"
        found.error = text + _holders_text(truth)
    elif truth.instances:
        found.steps += [Destroy(i.id, None) for i in truth.instances]
    else:
        found.steps.append(SetMode(hardware_mode(target.mode)))


def _start(
    found: Plan, target: GpuTarget, task: Task, truth: Truth, given: Mapping[str, str]
) -> None:
    share = task.allocation.share
    if share is not None and not 1 <= share <= 1000:
        error = f"there is no share of {share} thousandths"
        found.states[task.allocation.id] = State("failed", error=error)
    elif target.mode is None or hardware_mode(target.mode) != hardware_mode(task.mode):
        error = f"a GPU that shall be {target.mode} can't hold it"
        found.states[task.allocation.id] = State("failed", error=error)
    elif truth.mode != hardware_mode(task.mode):
        found.states[task.allocation.id] = State("preparing", error=found.error)
    elif task.place is None:
        _whole(found, task, truth, given)
    else:
        _slice(found, task, task.place, truth, given)


def _whole(found: Plan, task: Task, truth: Truth, given: Mapping[str, str]) -> None:
    """Of a share too, but there the programs of others are nothing strange."""
    name = task.allocation.id
    if given.get(name) == truth.uuid:
        found.states[name] = State("ready", truth.uuid)
        return
    error = truth.unready
    # What runs on what was given, and never proven empty since, is its own.
    if error is None and not task.given and task.allocation.share is None:
        if truth.processes != 0:
            error = f"a process that is of no booking holds the GPU{_holders_text(truth)}"
        elif truth.residue_mb:
            error = _residue_text(truth)
    if error is None:
        found.steps.append(HandOver(task.allocation, truth.uuid))
    found.states[name] = State("preparing", error=error)


def _slice(found: Plan, task: Task, place: Place, truth: Truth, given: Mapping[str, str]) -> None:
    name = task.allocation.id
    instance = _instance_at(truth, place)
    if instance is not None and instance.uuid is not None:
        if given.get(name) == instance.uuid:
            found.states[name] = State("ready", instance.uuid)
            return
        if instance.processes == 0 or task.given:
            found.steps.append(HandOver(task.allocation, instance.uuid))
            found.states[name] = State("preparing")
            return
    in_the_way = [i for i in truth.instances if i.place.overlaps(place)]
    if any(i.processes != 0 for i in in_the_way):
        error = "a slice of no booking, with a process on it, is in the way"
        found.states[name] = State("preparing", error=error)
        return
    found.steps += [Destroy(i.id, name) for i in in_the_way]
    if not in_the_way:
        found.steps.append(Create(name, place))
    found.states[name] = State("preparing")


def _instance_at(truth: Truth, place: Place) -> FoundInstance | None:
    return next((i for i in truth.instances if i.place == place), None)


def _same_place(held: Record, wanted: DesiredAllocation, gpu: str) -> bool:
    return held.gpu == gpu and place_of(held.allocation) == place_of(wanted)


def hardware_mode(mode: Mode) -> Mode:
    """Return the mode as the hardware knows it: a GPU that is shared is not cut."""
    return "whole" if mode == "shared" else mode


def _collide(one: DesiredAllocation, other: DesiredAllocation) -> bool:
    """On the same GPU. A whole GPU meets everything, shares don't meet each other."""
    if one.share is not None and other.share is not None:
        return False
    places = place_of(one), place_of(other)
    return places[0] is None or places[1] is None or places[0].overlaps(places[1])
