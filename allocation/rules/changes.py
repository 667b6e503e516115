"""Changes of a booking: what differs, and how strong the change is."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from allocation.rules.ask import AskDocument

MOST_WAITING = 5
"""Changes of a person that wait for room, and their open entries of the waiting list."""


class Strength(StrEnum):
    """How a change is decided: a `word` and a `weaker` one at once, a `stronger` one by the next
    cycle."""

    WORD = "word"
    WEAKER = "weaker"
    STRONGER = "stronger"


@dataclass(frozen=True, slots=True)
class Target:
    """What a booking asks for."""

    ask: AskDocument
    tier: str
    name: str = ""

    def differences(self, other: "Target") -> dict[str, tuple[Any, Any]]:
        """The values that differ in another target, as JSON: before and after, by field."""
        before, after = self._plain(), other._plain()
        return {
            name: (before.get(name), after.get(name))
            for name in {**before, **after}
            if before.get(name) != after.get(name)
        }

    def _plain(self) -> dict[str, Any]:
        return {**self.ask.to_json(), "tier": self.tier, "name": self.name}


def strength_of(old: Target, new: Target) -> Strength:
    """How strong the change from one target to another is."""
    if (old.ask, old.tier) == (new.ask, new.tier):
        return Strength.WORD
    if old.tier != new.tier or not _is_weaker(old.ask, new.ask):
        return Strength.STRONGER
    return Strength.WEAKER


def _is_weaker(old: AskDocument, new: AskDocument) -> bool:
    """Whether whatever serves `old` serves `new`, or a part of it does."""
    same = ("profile", "share", "starts", "workload", "groups")
    if any(getattr(old, name) != getattr(new, name) for name in same):
        return False
    less = ("duration", "count", "cores", "memory")
    if any(getattr(new, name) > getattr(old, name) for name in less):
        return False
    return _is_window_weaker(old, new) and _is_place_weaker(old, new)


def _is_window_weaker(old: AskDocument, new: AskDocument) -> bool:
    first = datetime.min.replace(tzinfo=UTC)
    last = datetime.max.replace(tzinfo=UTC)
    is_later = (new.not_before or first) >= (old.not_before or first)
    return is_later and (new.deadline or last) >= (old.deadline or last)


def _is_place_weaker(old: AskDocument, new: AskDocument) -> bool:
    remaining = tuple(name for name in old.classes if name in new.classes)
    if new.classes != remaining or new.pin not in (old.pin, ()) or new.data not in (old.data, ()):
        return False
    if not _is_where_weaker(old, new):
        return False
    return not new.required or (old.required and old.together == new.together)


def _is_where_weaker(old: AskDocument, new: AskDocument) -> bool:
    """Whether every node that `old` allows is one that `new` allows."""
    has_zones = not new.zones or (bool(old.zones) and {*old.zones} <= {*new.zones})
    has_storage = new.storage in (old.storage, None) and new.scratch <= old.scratch
    return has_zones and {*new.not_zones} <= {*old.not_zones} and has_storage
