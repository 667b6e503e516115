"""What a process that leads keeps between its cycles, and how it is proven.

Also which classes are quiet: nothing in them was given back since planned starts were searched. In
a quiet class nothing but time makes room for an earlier start: the end of a protection, use that a
cap counts no more. So a cycle keeps the planned starts of the class without a search. What time
brings is found when the class is searched again, after `EVERY` seconds at most.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from solver.model.inputs import Gpu, Held, Model, Request
from solver.model.rows import Delta, Key, Rows, difference
from solver.state.held_work import HeldWork

COMPARE_EVERY = 60
"""Seconds after which what is kept is compared with a fresh one."""
COMPARED_A_MINUTE = 2_500
"""What is kept of more bookings is compared less often, so that this takes the same part of the
time."""
EVERY = 60
"""Seconds after which the planned starts of a class are searched again, whatever has happened."""
LEAST = 300
"""Waiting bookings from which on classes are quiet; where fewer wait, each cycle searches all."""

# Changes of these sections take room, or only change the order of the queue.
_TAKING = frozenset(
    {"held", "requests", "running", "used", "extensions", "changes", "entries", "cooling"}
    | {"unneeded", "notices", "idle", "quiet", "caches"}
)


class Kept:
    """What is kept of held work, one for each shard. The plan is the same without it.

    It depends on nothing that a leader has to tell: it compares all rows with those that it has
    read. Once a minute, by the clock of the snapshots, or less often where many are held or its
    owner says so, a cycle compares what it begins with. What has drifted is thrown away, never repaired.
    """

    def __init__(self, compare_every: int = COMPARE_EVERY) -> None:
        """Nothing is kept. `compare_every`: seconds of the snapshots' clock between comparisons."""
        self._compare_every = compare_every
        self._work: HeldWork | None = None
        self._compared: int | None = None
        self._shards: dict[tuple[str, ...], Kept] = {}
        self._drifts = 0

    def forget(self) -> None:
        """Throw away what is kept."""
        self._work = self._compared = None
        self._shards.clear()

    def shard(self, gpu_classes: Iterable[str]) -> "Kept":
        """What is kept of the shard with these classes."""
        return self._shards.setdefault(tuple(sorted(set(gpu_classes))), Kept(self._compare_every))

    def held_work(self, gpus: tuple[Gpu, ...], models: tuple[Model, ...], held: Iterable[Held]) -> HeldWork:
        """The held work of a snapshot in canonical order. KeyError: unknown model."""
        # An error on the way leaves nothing behind.
        work, self._work = self._work, None
        if work is None or not work.is_of(gpus, models):
            work, self._compared = HeldWork(gpus, models), None
        else:
            work.is_kept = True
        work.update(held)
        self._work = work
        return work

    def is_to_compare(self, now: int) -> bool:
        """True when the next comparison is due; what is fresh needs none."""
        if self._compared is None or now < self._compared:
            self._compared = now
        held = 0 if self._work is None else len(self._work.uses)
        if now - self._compared < self._compare_every * max(1, held // COMPARED_A_MINUTE):
            return False
        self._compared = now
        return True

    def drifted(self) -> None:
        """Note that a cycle would have begun with something else, and throw it away."""
        self.forget()
        self._drifts += 1

    def drifts_take(self) -> int:
        """How often it has drifted since this was last asked."""
        found, self._drifts = self._drifts, 0
        return found + sum(shard.drifts_take() for shard in self._shards.values())


class QuietClasses:
    """Compares each snapshot of a process with the one before it."""

    def __init__(self, every: int = EVERY, least: int = LEAST) -> None:
        """Nothing is known: in the first snapshot no class is quiet."""
        self._every, self._least = every, least
        self._before: Rows | None = None
        self._searched: dict[str, int] = {}

    def forget(self) -> None:
        """Make the next cycle search all classes: the last plan was not written, or the policy is
        another one now."""
        self._before = None

    def of(self, rows: Rows) -> tuple[str, ...]:
        """The quiet classes of a snapshot; its cycle is expected to search the others."""
        before, self._before = self._before, rows
        if len(rows.tables["requests"]) < self._least:
            self._before = None
            return ()
        classes = {gpu.gpu_class for gpu in rows.tables["gpus"].values()}
        quiet = set() if before is None else self._quiet(before, rows, classes)
        self._searched.update(dict.fromkeys(classes - quiet, rows.head))
        return tuple(sorted(quiet))

    def _quiet(self, before: Rows, rows: Rows, classes: set[str]) -> set[str]:
        delta = difference(before, rows)
        if rows.head < before.head or _is_everywhere(before, delta):
            return set()
        since = rows.head - self._every
        recent = {name for name in classes if self._searched.get(name, since) > since}
        return recent - set(_given_back(before, delta))


def _is_everywhere(before: Rows, delta: Delta) -> bool:
    """True when something has changed that may make room in any class."""
    soft = {*delta.drop.get("pending", ()), *delta.put.get("pending", ())}
    others = {*delta.put, *delta.drop} - _TAKING - {"pending"}
    return bool(others) or not soft.isdisjoint(before.tables["pending"])


def _given_back(before: Rows, delta: Delta) -> Iterator[str]:
    """Classes in which held work or a request with a planned start has given back something."""
    yield from _given_back_by_held(before, delta)
    written: dict[str, list[Held]] = {}
    for row in delta.put.get("held", {}).values():
        written.setdefault(row.booking, []).append(row)
    requests: Mapping[Key, Request] = before.tables["requests"]
    for key in delta.drop.get("requests", ()):
        if not _is_written(requests[key], written.get(requests[key].booking, ())):
            yield from requests[key].ask.all_classes
    for key, after in delta.put.get("requests", {}).items():
        if key in requests and _asks_anew(requests[key], after):
            yield from requests[key].ask.all_classes


def _given_back_by_held(before: Rows, delta: Delta) -> Iterator[str]:
    """Classes in which held work has ended, moved, or has less time than before."""
    held: Mapping[Key, Held] = before.tables["held"]
    put: Mapping[Key, Held] = delta.put.get("held", {})
    for key in (*delta.drop.get("held", ()), *put):
        if key not in held:
            continue
        old, new = held[key], put.get(key)
        # What ends as planned makes room for near starts only, which are always searched.
        if old.ends > delta.head if new is None else _is_less(old, new):
            yield before.tables["gpus"][held[key].place.gpu].gpu_class


def _is_less(old: Held, new: Held) -> bool:
    return new.place != old.place or new.starts > old.starts or new.ends < old.ends


def _is_written(request: Request, rows: Sequence[Held]) -> bool:
    """True when the planned start of a request that waits no more is in the calendar as it was
    planned, or it had none."""
    planned = request.planned
    if planned is None:
        return True
    places = {row.place for row in rows if row.starts <= planned.starts and row.ends >= planned.ends}
    return places.issuperset(planned.places)


def _asks_anew(old: Request, new: Request) -> bool:
    """True when a request with a planned start asks for something else, or has none any more.

    A planned start that has moved leaves room, too: its cycle offers it to those behind, and the
    next search to those ahead.
    """
    if old.planned is None:
        return False
    asked = (old.ask, old.duration, old.revision, old.quota_tier, old.pinned)
    is_same = asked == (new.ask, new.duration, new.revision, new.quota_tier, new.pinned)
    return new.planned is None or not is_same
