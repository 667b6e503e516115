"""Watches, in every test, that only its door writes what a booking's state says.

A statement that the product sends may write these columns of `allocation_booking` only from inside
`allocation/services/runs/transition.py`, whatever it calls the row and however it sets the field.
Tests themselves may write what they need.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOOR = str(ROOT / "allocation" / "services" / "runs" / "transition.py")
_PRODUCT = tuple(f"{ROOT / name}/" for name in ("portal", "tenants", "billing", "allocation"))
# What sends statements for all others.
_BELOW = f"{ROOT / 'tenants' / 'platform'}/"
_UPDATE = re.compile(
    r'\s*UPDATE\s+"?allocation_booking"?\s+(?:AS\s+\w+\s+)?SET\s+(.*)', re.DOTALL | re.IGNORECASE
)
_COLUMN = re.compile(r'"?(\w+)"?\s*=')


class OtherDoor(AssertionError):
    """Code other than the door has written a booking's state."""


def doors_watch() -> None:
    """Begins to watch all statements of this process."""
    from django.db.backends import utils  # noqa: PLC0415 (settings are not there on import)

    wrapper: Any = utils.CursorWrapper
    plain = wrapper._execute_with_wrappers

    def watched(self: Any, sql: Any, params: Any, many: Any, executor: Any) -> Any:  # noqa: ANN401
        statement_check(str(sql), sys._getframe(1))
        return plain(self, sql, params, many, executor)

    wrapper._execute_with_wrappers = watched


def statement_check(sql: str, frame: FrameType) -> None:
    """Raises OtherDoor if a statement that is sent from the frame writes what only the door may."""
    found = _UPDATE.match(sql) if "allocation_booking" in sql[:60] else None
    if found is None:
        return
    written = set(_COLUMN.findall(re.split(r"\bWHERE\b|\bFROM\b", found[1])[0])) & guarded()
    sender = next(_senders(frame), DOOR)
    if written and sender != DOOR:
        raise OtherDoor(f"{sender} writes {sorted(written)} of bookings: {sql[:200]}")


# Looks count these each minute, or mark what they pause, without a step; steps clear them.
COUNTED = ("absent_", "idle_", "awaits_check_in")


def cleared() -> set[str]:
    """The columns that some step clears."""
    from allocation.rules.states import CLEARED_BY, CLEARED_IN  # noqa: PLC0415 (see above)

    return {name for names in (*CLEARED_IN.values(), *CLEARED_BY.values()) for name in names}


def guarded() -> set[str]:
    """The columns that belong to a state, without what is counted in it."""
    return {"state", "version"} | {name for name in cleared() if not name.startswith(COUNTED)}


def _senders(frame: FrameType | None) -> Iterator[str]:
    """The files of the product from which a statement comes, innermost first."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(f"{ROOT / 'tests'}/"):
            return
        if name.startswith(_PRODUCT) and not name.startswith(_BELOW):
            yield name
        frame = frame.f_back
