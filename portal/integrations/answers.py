"""Outcomes of attempts to reach a receiver."""

from dataclasses import dataclass, replace
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of an attempt: a status, or why there is none. A final one is not repeated."""

    status: int | None
    error: str
    milliseconds: int = 0
    wait: timedelta = timedelta()
    is_final: bool = False

    @property
    def is_delivered(self) -> bool:
        """Returns whether the receiver took the message."""
        return self.status is not None and 200 <= self.status < 300 and not self.error

    def after(self, milliseconds: int) -> "Answer":
        """Returns the outcome with the time that it took."""
        return replace(self, milliseconds=milliseconds)
