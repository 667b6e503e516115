"""The effect of a pause notice on a booking's programs. Pure."""

import dataclasses
from collections.abc import Collection, Mapping

from wire import Mode, Notice, PauseMethod


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramsSeen:
    """The process ids of each share (None: unknown), and the allocations whose programs are being
    suspended or resumed. `fetching` are those whose data is being fetched, `unfetched` says why that has
    failed."""

    shares: Mapping[str, tuple[int, ...] | None] = dataclasses.field(default_factory=dict)
    busy: frozenset[str] = frozenset()
    fetching: Collection[str] = frozenset()
    unfetched: Mapping[str, str] = dataclasses.field(default_factory=dict)


def pause_method(notice: Notice | None, mode: Mode, *, gang: bool) -> tuple[PauseMethod | None, str | None]:
    """Returns how the programs end, and why this is not the notice's method."""
    if notice is None:
        return None, None
    if notice.method == "suspend" and gang:
        return "stop", "it runs on several nodes"
    if notice.method == "suspend" and mode != "whole":
        return "stop", "only a whole GPU can be suspended"
    return notice.method, None
