"""What a notice of a pause means for a booking's programs. Pure."""

import dataclasses
from collections.abc import Mapping

from allocation.wire import Mode, Notice, PauseMethod


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramsSeen:
    """What is known of programs: the ids of those of each share (None: can't be told), and the
    allocations that are just being suspended or resumed."""

    shares: Mapping[str, tuple[int, ...] | None] = dataclasses.field(default_factory=dict)
    busy: frozenset[str] = frozenset()


def pause_method(
    notice: Notice | None, mode: Mode, *, gang: bool
) -> tuple[PauseMethod | None, str | None]:
    """How the programs end: by the notice's method where that can be, else why it can't be."""
    if notice is None:
        return None, None
    if notice.method == "suspend" and gang:
        return "stop", "it runs on several nodes"
    if notice.method == "suspend" and mode != "whole":
        return "stop", "only a whole GPU can be suspended"
    return notice.method, None
