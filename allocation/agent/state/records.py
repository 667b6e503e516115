"""Notes that outlive the agent: what it may rely on after a crash is written here first."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from allocation.agent.plan.reconcile import Record
from allocation.agent.ports.suspender import Suspended
from allocation.agent.state.store import Store


class Records:
    """Where nothing else is said, a note is on disk when its call returns, or StoreError raised."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def held(self) -> Mapping[str, Record]:
        return self._store.held

    @property
    def suspended(self) -> Mapping[str, Suspended]:
        return self._store.suspended

    def given(self, allocations: Iterable[str]) -> None:
        """Their owners are about to get devices, so that whatever runs there is the owners'."""
        self._change(allocations, lambda held: replace(held, given=True))
        self._store.save()

    def emptied(self, allocations: Iterable[str]) -> None:
        """Nothing of them is left, so that whatever comes to their place is not theirs."""
        self._change(allocations, lambda held: replace(held, emptied=True))
        self._store.save()

    def noted(self, allocations: Iterable[str], text: str) -> None:
        """Something for people; it waits for the next note that matters."""
        self._change(allocations, lambda held: replace(held, note=text))

    def saved(self, times: Mapping[str, int]) -> None:
        """When owners said that all is saved, by allocation; as `noted`: their files say it too."""
        self._change(times, lambda held: replace(held, saved=times[held.allocation.id]))

    def freezing(self, each: Suspended) -> None:
        """Its programs are about to be frozen, or woken, so that they can be found again."""
        self._store.suspended[each.allocation] = each
        self._store.save()

    def forgotten(self, suspended: Iterable[str]) -> None:
        """As `noted`: a record of programs that are gone is known by their births."""
        for name in list(suspended):
            self._store.suspended.pop(name, None)

    def resumed(self, allocations: Iterable[str], suspended: Iterable[str]) -> None:
        """What they resume goes on, or never will. As `noted`: another look would tell the same."""
        self._change(allocations, lambda held: replace(held, resumed=True))
        self.forgotten(suspended)

    def _change(self, allocations: Iterable[str], change: Callable[[Record], Record]) -> None:
        held = self._store.held
        for name in allocations:
            held[name] = change(held[name])
