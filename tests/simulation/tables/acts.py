"""What people do between the look of a turn and what is written of it."""

from dataclasses import dataclass
from typing import Literal, Protocol

from tests.simulation.tables.people import UserRequest

Kind = Literal["request", "cancel", "release", "extend", "saved", "more_time"]
KINDS: tuple[Kind, ...] = ("cancel", "cancel", "release", "release", "extend", "saved", "more_time")


class Actable(Protocol):
    """What an act needs of a portal."""

    def request(self, identifier: str, requested: UserRequest, now: float) -> None: ...
    def cancel(self, identifier: str, now: float) -> None: ...
    def release(self, identifier: str, now: float) -> None: ...
    def extend(self, identifier: str, until: int, now: float) -> None: ...
    def saved(self, identifier: str, now: float) -> None: ...
    def more_time(self, identifier: str, now: float) -> None: ...


@dataclass(frozen=True)
class Act:
    """Of somebody, on one booking."""

    kind: Kind
    booking: str
    until: int = 0
    requested: UserRequest | None = None

    def on(self, portal: Actable, now: float) -> None:
        """Does it."""
        if self.kind == "request" and self.requested is not None:
            portal.request(self.booking, self.requested, now)
        elif self.kind == "cancel":
            portal.cancel(self.booking, now)
        elif self.kind == "release":
            portal.release(self.booking, now)
        elif self.kind == "extend":
            portal.extend(self.booking, self.until, now)
        elif self.kind == "saved":
            portal.saved(self.booking, now)
        elif self.kind == "more_time":
            portal.more_time(self.booking, now)


# Those between each look and its plan.
Acts = tuple[tuple[Act, ...], ...]
