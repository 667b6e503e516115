"""Records that survive a crash: each is written before the action that relies on it."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from agent.plan.targets import Record
from agent.ports.suspender import Suspended
from agent.state.store import Store


class Records:
    """Unless noted, a change is on disk when the call returns, or StoreError is raised."""

    def __init__(
        self, store: Store, together: Callable[[Iterable[str]], Collection[str]] = frozenset
    ) -> None:
        """`together` adds to allocations those that get their devices with them."""
        self._store = store
        self._together = together

    @property
    def held(self) -> Mapping[str, Record]:
        return self._store.held

    @property
    def suspended(self) -> Mapping[str, Suspended]:
        return self._store.suspended

    def mark_given(self, allocations: Iterable[str]) -> None:
        """Marks allocations whose owners are about to get their devices."""
        self._change(self._together(allocations), lambda held: replace(held, given=True))
        self._store.save()

    def mark_emptied(self, allocations: Iterable[str]) -> None:
        """Marks allocations whose devices are proven empty."""
        self._change(allocations, lambda held: replace(held, emptied=True))
        self._store.save()

    def set_note(self, allocations: Iterable[str], text: str) -> None:
        """Sets a text for people; it is on disk with the next change."""
        self._change(allocations, lambda held: replace(held, note=text))

    def set_saved(self, times: Mapping[str, int]) -> None:
        """Sets when owners reported that all is saved, by allocation; on disk with the next
        change."""
        self._change(times, lambda held: replace(held, saved=times[held.allocation.id]))

    def set_suspended(self, each: Suspended) -> None:
        """Records programs that are about to be suspended or resumed."""
        self._store.suspended[each.allocation] = each
        self._store.save()

    def drop_suspended(self, suspended: Iterable[str]) -> None:
        """Drops suspensions; on disk with the next change. Start times identify ended programs."""
        for name in list(suspended):
            self._store.suspended.pop(name, None)

    def mark_resumed(self, allocations: Iterable[str], suspended: Iterable[str]) -> None:
        """Marks suspensions as resumed or discarded; on disk with the next change."""
        self._change(allocations, lambda held: replace(held, resumed=True))
        self.drop_suspended(suspended)

    def _change(self, allocations: Iterable[str], change: Callable[[Record], Record]) -> None:
        held = self._store.held
        for name in allocations:
            held[name] = change(held[name])
