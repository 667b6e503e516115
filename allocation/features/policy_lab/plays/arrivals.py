"""Which bookings of the past come next: when they came, and elements of arrays when these have room."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from allocation.features.policy_lab.plays.past import Past


@dataclass(slots=True)
class _Array:
    """Elements that have not come, in order, and how many more may be open."""

    left: deque[Past]
    room: int

    @property
    def next_at(self) -> int | None:
        """When its next element comes at the earliest; None: it has none, or its array is full."""
        is_open = bool(self.left) and (self.room > 0 or self.left[0].is_first)
        return self.left[0].request.submitted if is_open else None


class Arrivals:
    """The bookings of a past, in the order in which they come."""

    def __init__(self, past: Iterable[Past]) -> None:
        self._singles: deque[Past] = deque()
        self._arrays: dict[str, _Array] = {}
        self._array_of: dict[str, str] = {}
        for each in sorted(past, key=_order):
            if each.array:
                array = self._arrays.setdefault(each.array, _Array(deque(), each.parallel))
                array.left.append(each)
                self._array_of[each.request.booking] = each.array
            else:
                self._singles.append(each)

    def next_at(self) -> int | None:
        """When the next booking comes; None: none does before another one is over."""
        times = [array.next_at for array in self._arrays.values()]
        times += [self._singles[0].request.submitted] if self._singles else []
        return min((at for at in times if at is not None), default=None)

    def take(self, now: int) -> Iterator[Past]:
        """Yields all that have come by now."""
        while self._singles and self._singles[0].request.submitted <= now:
            yield self._singles.popleft()
        for name, array in tuple(self._arrays.items()):
            while (at := array.next_at) is not None and at <= now:
                array.room -= 1
                yield array.left.popleft()
            if not array.left:
                del self._arrays[name]

    def over(self, booking: str) -> None:
        """Notes that a booking is over: another element of its array may come."""
        array = self._arrays.get(self._array_of.get(booking, ""))
        if array is not None:
            array.room += 1

    def array_of(self, booking: str) -> str:
        """Returns the array of a booking; empty: it is none of an array."""
        return self._array_of.get(booking, "")


def _order(past: Past) -> tuple[bool, int, str]:
    """Who ran at the begin comes first; elements of an array have ids in the order of their indexes."""
    return (not past.is_first, past.request.submitted, past.request.booking)
