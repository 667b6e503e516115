"""What to do next on one GPU: the difference between what is desired and what is there.

Pure. The caller reads the truth, carries the steps out in their order, reads again and plans again
until nothing is left to do, so a step may rely only on what was true before the first of them.
"""

import dataclasses
from collections.abc import Mapping

from allocation.agent.gpu import FoundInstance, Place, Truth
from allocation.wire import AllocationState, Desired, DesiredAllocation, Mode


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """Our own record of an allocation we began with; written before anything is done for it.

    `given` is set before its owner gets the device, `emptied` once nothing of it is left.
    """

    allocation: DesiredAllocation
    gpu: str
    given: bool = False
    emptied: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """One allocation's claim on a GPU now: to be there, or (`ending`) to be gone."""

    allocation: DesiredAllocation
    ending: bool
    given: bool
    emptied: bool

    @property
    def place(self) -> Place | None:
        return place_of(self.allocation)

    @property
    def mode(self) -> Mode:
        return "whole" if self.place is None else "sliced"


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """What one GPU should be. `mode` is None for a GPU the document does not name."""

    gpu: str
    mode: Mode | None
    tasks: tuple[Task, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """Why the last try for an allocation or a GPU failed; `lasting` ones are not tried again."""

    text: str
    lasting: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class TakeBack:
    allocation: str


@dataclasses.dataclass(frozen=True, slots=True)
class EndProcesses:
    allocation: str
    instance: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Destroy:
    """`allocation` is the one it is done for, if any."""

    instance: int
    allocation: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class SetMode:
    mode: Mode


@dataclasses.dataclass(frozen=True, slots=True)
class Create:
    allocation: str
    place: Place


@dataclasses.dataclass(frozen=True, slots=True)
class HandOver:
    allocation: DesiredAllocation
    device: str


Step = TakeBack | EndProcesses | Destroy | SetMode | Create | HandOver


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
    """None for a whole GPU."""
    if allocation.profile_id is None:
        return None
    return Place(allocation.profile_id, allocation.slot, allocation.size)


def remember(desired: Desired, held: Mapping[str, Held], now: float) -> dict[str, Held]:
    """The records to keep: one for each allocation that has begun or must be seen to its end."""
    kept = dict(held)
    for gpu in desired.gpus:
        for wanted in gpu.allocations:
            old = kept.get(wanted.id)
            moved = old is not None and not _same_spot(old, wanted, gpu.uuid)
            if old is None or (moved and (old.emptied or not old.given)):
                if wanted.state == "release" or wanted.starts <= now:
                    kept[wanted.id] = _first_record(wanted, gpu.uuid, kept, now)
            elif not moved:
                # What was told to be empty comes back only by another word of the document, never
                # by a clock that was set back.
                changed = wanted != old.allocation
                again = changed and wanted.state == "run" and now < wanted.ends
                kept[wanted.id] = dataclasses.replace(
                    old, allocation=wanted, emptied=old.emptied and not again
                )
    return kept


def _first_record(
    wanted: DesiredAllocation, gpu: str, held: Mapping[str, Held], now: float
) -> Held:
    """A release we hold nothing of was either given by a life of ours that lost its records, or
    never began; another's record on the same spot tells that it never did."""
    if wanted.state == "run" and now < wanted.ends:
        return Held(wanted, gpu)
    others = [h.allocation for h in held.values() if h.gpu == gpu and not h.emptied]
    taken = any(_collide(place_of(wanted), place_of(other)) for other in others)
    began = wanted.starts <= now and not taken
    return Held(wanted, gpu, given=began, emptied=not began)


def wishes(desired: Desired, held: Mapping[str, Held], now: float) -> list[Wish]:
    """One wish per GPU that is named or held, by UUID."""
    modes: dict[str, Mode] = {gpu.uuid: gpu.mode for gpu in desired.gpus}
    named = {(a.id, g.uuid, place_of(a)): a for g in desired.gpus for a in g.allocations}
    tasks: dict[str, list[Task]] = {uuid: [] for uuid in modes}
    for key in sorted(held):
        record = held[key]
        wanted = named.get((key, record.gpu, place_of(record.allocation)))
        over = wanted is None or wanted.state == "release" or wanted.ends <= now
        ending = over or record.emptied
        task = Task(wanted or record.allocation, ending, record.given, record.emptied)
        tasks.setdefault(record.gpu, []).append(task)
    return [Wish(uuid, modes.get(uuid), tuple(tasks[uuid])) for uuid in sorted(tasks)]


def plan(
    wish: Wish, truth: Truth, given: Mapping[str, str], problems: Mapping[str, Problem]
) -> Plan:
    """`given` maps allocations to the device their owner was handed; `problems` what failed."""
    found = Plan()
    # 1. What must go, goes first.
    for task in wish.tasks:
        if task.ending:
            _end(found, task, truth, given)
    going = [t for t in wish.tasks if t.ending and found.states[t.allocation.id].state != "empty"]
    # 2. The mode changes on an empty GPU.
    if wish.mode not in (None, truth.mode):
        _switch(found, wish, truth, given, going=bool(going))
    # 3. What is wanted, is made and handed over.
    staying = sorted(
        (t for t in wish.tasks if not t.ending),
        key=lambda t: (t.allocation.id not in given, t.allocation.starts, t.allocation.id),
    )
    for i, task in enumerate(staying):
        ahead = next((t for t in (*going, *staying[:i]) if _overlap(t, task)), None)
        problem = problems.get(task.allocation.id)
        if problem is not None and problem.lasting:
            found.states[task.allocation.id] = State("failed", error=problem.text)
        elif ahead is not None:
            error = f"waits until {ahead.allocation.booking} has left"
            found.states[task.allocation.id] = State("preparing", error=error)
        else:
            _start(found, wish, task, truth, given)
    _tell_problems(found, problems)
    return found


def _tell_problems(found: Plan, problems: Mapping[str, Problem]) -> None:
    for key, problem in problems.items():
        state = found.states.get(key)
        if state is not None and state.state in ("preparing", "ending"):
            found.states[key] = dataclasses.replace(state, error=problem.text)


def _end(found: Plan, task: Task, truth: Truth, given: Mapping[str, str]) -> None:
    name = task.allocation.id
    error = None
    if task.emptied:
        found.states[name] = State("empty")
        return
    if name in given:
        found.steps.append(TakeBack(name))
    instance = None if task.place is None else _at(truth, task.place)
    if task.place is None:
        there = truth.mode == "whole" and task.given and truth.processes != 0
        count = truth.processes
    else:
        there = instance is not None
        count = None if instance is None else instance.processes
    if there and count is None and instance is None:
        error = "the driver does not tell whether a process holds the GPU"
    elif there and count and not task.given:
        error = "a process that is not of this booking holds the slice"
    elif there and count:
        found.steps.append(EndProcesses(name, None if instance is None else instance.id))
    elif instance is not None:
        found.steps.append(Destroy(instance.id, name))
    gone = not there and name not in given
    found.states[name] = State("empty") if gone else State("ending", error=error)


def _switch(
    found: Plan, wish: Wish, truth: Truth, given: Mapping[str, str], *, going: bool
) -> None:
    """Changes the mode of an empty GPU; idle slices that nobody here asked for are removed."""
    running = any(t.allocation.id in given and t.mode == truth.mode for t in wish.tasks)
    if wish.mode is None or going or running:
        return
    if any(i.processes != 0 for i in truth.instances) or truth.processes != 0:
        found.error = "a process that is of no booking keeps the GPU from changing its mode"
    elif truth.instances:
        found.steps += [Destroy(i.id, None) for i in truth.instances]
    else:
        found.steps.append(SetMode(wish.mode))


def _start(found: Plan, wish: Wish, task: Task, truth: Truth, given: Mapping[str, str]) -> None:
    if wish.mode != task.mode:
        error = f"a GPU that shall be {wish.mode} can't hold it"
        found.states[task.allocation.id] = State("failed", error=error)
    elif truth.mode != task.mode:
        found.states[task.allocation.id] = State("preparing", error=found.error)
    elif task.place is None:
        _whole(found, task, truth, given)
    else:
        _slice(found, task, task.place, truth, given)


def _whole(found: Plan, task: Task, truth: Truth, given: Mapping[str, str]) -> None:
    name = task.allocation.id
    if given.get(name) == truth.uuid:
        found.states[name] = State("ready", truth.uuid)
    elif truth.processes == 0 or task.given:
        # Given once and never proven empty since: what runs there is its own.
        found.steps.append(HandOver(task.allocation, truth.uuid))
        found.states[name] = State("preparing")
    else:
        error = "a process that is of no booking holds the GPU"
        found.states[name] = State("preparing", error=error)


def _slice(found: Plan, task: Task, place: Place, truth: Truth, given: Mapping[str, str]) -> None:
    name = task.allocation.id
    instance = _at(truth, place)
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


def _at(truth: Truth, place: Place) -> FoundInstance | None:
    return next((i for i in truth.instances if i.place == place), None)


def _same_spot(held: Held, wanted: DesiredAllocation, gpu: str) -> bool:
    return held.gpu == gpu and place_of(held.allocation) == place_of(wanted)


def _overlap(one: Task, other: Task) -> bool:
    """On the same GPU. A whole GPU overlaps everything."""
    return _collide(one.place, other.place)


def _collide(one: Place | None, other: Place | None) -> bool:
    return one is None or other is None or one.overlaps(other)
