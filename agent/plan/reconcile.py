"""Plans the steps from the current state of a GPU to its desired state. Pure.

The caller reads the GPU, executes the steps in order and plans again until no steps are left, so
a step may rely only on the state before the first of them.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from agent.plan.pauses import ProgramsSeen, pause_method
from agent.plan.steps import (
    Create,
    Destroy,
    EndProcesses,
    HandOver,
    SetMode,
    Step,
    TakeBack,
)
from agent.plan.targets import GpuTarget, Task, collide
from agent.ports.gpu import FoundInstance, Place, Truth
from wire import AllocationState, Mode


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


def plan(
    target: GpuTarget,
    truth: Truth,
    given: Mapping[str, str],
    problems: Mapping[str, Problem],
    seen: ProgramsSeen | None = None,
) -> Plan:
    """Returns the next steps and the state of each allocation. `given` maps allocations to handed
    devices, `problems` has the failures by allocation or GPU."""
    found, seen = Plan(), seen or ProgramsSeen()
    # 1. Endings.
    for task in target.tasks:
        if task.ending:
            _end(found, task, truth, given, seen)
    going = [t for t in target.tasks if t.ending and found.states[t.allocation.id].state != "empty"]
    # 2. The mode, and the mode after the next reset, on an empty GPU.
    if target.mode is not None and hardware_mode(target.mode) != truth.mode:
        _switch(found, target, truth, given, going=bool(going))
    elif truth.pending is not None and not truth.instances and truth.processes == 0 and not given:
        found.steps.append(SetMode(truth.mode))
    # 3. Starts.
    staying = sorted(
        (t for t in target.tasks if not t.ending),
        key=lambda t: (t.allocation.id not in given, t.allocation.starts, t.allocation.id),
    )
    for i, task in enumerate(staying):
        waits = _blocked_by(task, (*going, *staying[:i]), one_account=target.one_account)
        failure = _failure(task, problems, seen)
        if failure is not None:
            found.states[task.allocation.id] = State("failed", error=failure)
        elif waits is not None:
            found.states[task.allocation.id] = State("preparing", error=waits)
        else:
            _start(found, target, task, truth, given)
            _hold_back(found, task, seen)
    # 4. Slices that are expected to be needed, on a GPU that has nothing else to do.
    _prepare(found, target, truth, problems)
    _problems_note(found, problems)
    return found


def _prepare(found: Plan, target: GpuTarget, truth: Truth, problems: Mapping[str, Problem]) -> None:
    """Makes one more slice ahead: in no place that an allocation has or that is in use."""
    if found.steps or target.gpu in problems or not target.mode == truth.mode == "sliced":
        return
    taken = [task.place for task in target.tasks if not task.emptied]
    if None in taken:
        return
    places = [place for place in taken if place is not None]
    places += [instance.place for instance in truth.instances]
    missing = (each for each in target.prepared if not any(each.overlaps(other) for other in places))
    found.steps += [Create(None, place) for place in missing][:1]


def _blocked_by(task: Task, ahead: Iterable[Task], *, one_account: bool) -> str | None:
    """Returns the allocation that prevents the start, as a sentence."""
    room = 1000
    for other in ahead:
        first, share = other.allocation, other.allocation.share
        if collide(first, task.allocation):
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


def _end(found: Plan, task: Task, truth: Truth, given: Mapping[str, str], seen: ProgramsSeen) -> None:
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
    """Returns the programs on a whole GPU, to be appended to a sentence."""
    return f": {', '.join(truth.holders)}" if truth.holders else ""


def _clear(
    found: Plan,
    task: Task,
    instance: FoundInstance | None,
    count: int | None,
    only: tuple[int, ...] | None,
) -> str | None:
    """Ends its programs, then removes its slice; returns why that is impossible."""
    name = task.allocation.id
    if count is None and instance is None:
        return "the driver does not report whether a process holds the GPU"
    if count and not task.given:
        return "a process without this booking holds the slice"
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
    """Returns the number of programs and, for a share, their ids; None when unknown."""
    if task.allocation.share is not None:
        only = seen.shares.get(task.allocation.id)
        return None if only is None else len(only), only
    if task.place is None:
        return truth.processes, None
    return None if instance is None else instance.processes, None


def _switch(found: Plan, target: GpuTarget, truth: Truth, given: Mapping[str, str], *, going: bool) -> None:
    """Changes the mode of an empty GPU; removes idle slices that belong to no allocation."""
    running = any(t.allocation.id in given and hardware_mode(t.mode) == truth.mode for t in target.tasks)
    if target.mode is None or going or running:
        return
    if any(i.processes != 0 for i in truth.instances) or truth.processes != 0:
        text = "an unbooked process prevents the change of the GPU's mode"
        found.error = text + _holders_text(truth)
    elif truth.instances:
        found.steps += [Destroy(i.id, None) for i in truth.instances]
    else:
        found.steps.append(SetMode(hardware_mode(target.mode)))


def _start(found: Plan, target: GpuTarget, task: Task, truth: Truth, given: Mapping[str, str]) -> None:
    share = task.allocation.share
    if share is not None and not 1 <= share <= 1000:
        error = f"there is no share of {share} thousandths"
        found.states[task.allocation.id] = State("failed", error=error)
    elif target.mode is None or hardware_mode(target.mode) != hardware_mode(task.mode):
        error = f"the GPU is to be {target.mode}, which excludes it"
        found.states[task.allocation.id] = State("failed", error=error)
    elif truth.mode != hardware_mode(task.mode):
        found.states[task.allocation.id] = State("preparing", error=found.error)
    elif task.place is None:
        _whole(found, task, truth, given)
    else:
        _slice(found, task, task.place, truth, given)


def _failure(task: Task, problems: Mapping[str, Problem], seen: ProgramsSeen) -> str | None:
    """Returns why an allocation will not start here."""
    problem = problems.get(task.allocation.id)
    return problem.text if problem and problem.lasting else seen.unfetched.get(task.allocation.id)


def _hold_back(found: Plan, task: Task, seen: ProgramsSeen) -> None:
    """Hands nothing over before the data is there; a slice is made meanwhile."""
    last = found.steps[-1] if found.steps else None
    is_own = isinstance(last, HandOver) and last.allocation is task.allocation
    if is_own and task.allocation.id in seen.fetching:
        found.steps.pop()


def _whole(found: Plan, task: Task, truth: Truth, given: Mapping[str, str]) -> None:
    """Hands over a whole GPU or a share of one; a share may have other programs around it."""
    name = task.allocation.id
    if given.get(name) == truth.uuid:
        found.states[name] = State("ready", truth.uuid)
        return
    error = truth.unready or truth.withheld
    # Programs on a device that was given and not proven empty since are its own.
    if error is None and not task.given and task.allocation.share is None:
        if truth.processes != 0:
            error = f"an unbooked process holds the GPU{_holders_text(truth)}"
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
        error = "an unbooked slice with a process is in the way"
        found.states[name] = State("preparing", error=error)
        return
    found.steps += [Destroy(i.id, name) for i in in_the_way]
    if not in_the_way:
        found.steps.append(Create(name, place))
    found.states[name] = State("preparing")


def _instance_at(truth: Truth, place: Place) -> FoundInstance | None:
    return next((i for i in truth.instances if i.place == place), None)


def hardware_mode(mode: Mode) -> Mode:
    """Returns the mode in hardware: a shared GPU is whole."""
    return "whole" if mode == "shared" else mode
