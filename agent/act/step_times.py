"""When the steps were done that make allocations ready, for the portal's traces.

They are kept in memory: they serve nothing but traces, and a restart may forget them.
"""

import dataclasses
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import wire
from agent.plan import steps
from agent.plan.targets import GpuTarget
from agent.ports.clock import Clock


class StepTimes:
    """The times of each allocation's steps until a report with them was delivered."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._times: dict[str, dict[wire.StepName, tuple[int, int]]] = {}
        self._sent: dict[int, set[str]] = {}

    @contextmanager
    def measured(self, target: GpuTarget, step: steps.Step) -> Iterator[None]:
        """Measures a step on the target's GPU; a repeated one lasts from its first try on."""
        began, steady = round(self.clock.wall() * 1000), self.clock.steady()
        try:
            yield
        finally:
            took = max(0, round((self.clock.steady() - steady) * 1000))
            name, allocations = _about(target, step)
            if name is not None:
                for allocation in allocations:
                    self._note(allocation, name, began, took)

    def staged(self, allocation: str, began: int, took: int) -> None:
        """Notes that the data of an allocation was fetched."""
        self._note(allocation, "stage", began, took)

    def added(self, report: wire.Report) -> wire.Report:
        """Returns the report with the steps of the allocations that are ready in it."""
        ready = {each.id for each in report.allocations if each.state == "ready"}
        if not (sent := ready & self._times.keys()):
            return report
        self._sent[report.seq] = sent
        allocations = (
            dataclasses.replace(each, steps=self._steps(each.id)) if each.id in sent else each
            for each in report.allocations
        )
        return dataclasses.replace(report, allocations=tuple(allocations))

    def delivered(self, seq: int) -> None:
        """Forgets what was sent with this report or an earlier one."""
        for number in [each for each in self._sent if each <= seq]:
            self.forget(self._sent.pop(number))

    def forget(self, allocations: Collection[str]) -> None:
        """Forgets the steps of allocations."""
        for each in allocations:
            self._times.pop(each, None)

    def retain(self, allocations: Collection[str]) -> None:
        """Forgets all other allocations."""
        self.forget(self._times.keys() - set(allocations))

    def _note(self, allocation: str, name: wire.StepName, began: int, took: int) -> None:
        times = self._times.setdefault(allocation, {})
        first, _ = times.get(name, (began, 0))
        times[name] = (first, max(0, began + took - first))

    def _steps(self, allocation: str) -> tuple[wire.PreparedStep, ...]:
        found = self._times[allocation].items()
        made = [wire.PreparedStep(name=n, began=began, took=took) for n, (began, took) in found]
        return tuple(sorted(made, key=lambda each: each.began))


def _about(target: GpuTarget, step: steps.Step) -> tuple[wire.StepName | None, Collection[str]]:
    """Returns the step's name and the allocations that it prepares."""
    match step:
        case steps.Destroy(_, allocation):
            return "clear", () if allocation is None else (allocation,)
        case steps.SetMode():
            wanting = (task for task in target.tasks if not (task.ending or task.given))
            return "mode", [task.allocation.id for task in wanting]
        case steps.Create(allocation, _):
            return "slice", () if allocation is None else (allocation,)
        case steps.HandOver(allocation, _):
            return "hand_over", (allocation.id,)
    return None, ()
