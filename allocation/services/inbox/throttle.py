"""Rate limit for the messages of each node, so that one node can't delay the others."""

from collections import Counter, defaultdict

# A node sends a few messages every ten seconds, and a report after each change.
PER_SECOND = 100
BYTES_PER_SECOND = 4 << 20
FLOOD_SECONDS = 10
WATCHED_SECONDS = 60


class Throttle:
    """Counts messages and bytes per node in seconds of a steady clock, in one process."""

    def __init__(self) -> None:
        self._second = 0
        self._messages: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._full: defaultdict[str, set[int]] = defaultdict(set)

    def count(self, node: str, messages: int, size: int, steady_now: float) -> bool:
        """Counts messages and their bytes; returns whether they used up the node's share of this
        second."""
        could = self.may_send(node, steady_now)
        self._messages[node] += messages
        self._bytes[node] += size
        if could and not self.may_send(node, steady_now):
            self._full[node].add(self._second)
            return True
        return False

    def fill(self, node: str, steady_now: float) -> None:
        """Uses up the node's share of this second."""
        self.count(node, PER_SECOND, 0, steady_now)

    def may_send(self, node: str, steady_now: float) -> bool:
        """Whether the node has some of its share of this second left."""
        self._turn(steady_now)
        return self._messages[node] < PER_SECOND and self._bytes[node] < BYTES_PER_SECOND

    def floods(self, node: str) -> bool:
        """Whether the node has used up its share in too many seconds of the last minute."""
        return len(self._full[node]) >= FLOOD_SECONDS

    def _turn(self, steady_now: float) -> None:
        second = int(steady_now)
        if second == self._second:
            return
        self._second = second
        self._messages.clear()
        self._bytes.clear()
        for seconds in self._full.values():
            seconds -= {each for each in seconds if each < second - WATCHED_SECONDS}
