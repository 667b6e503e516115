"""The six checks of a start, by the reasons of a booking's latest decision, for REST and pages."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from allocation.models import Booking
from allocation.rules.states import ON_HARDWARE, TERMINAL, State
from solver.reasons.catalogue import BY_CODE, BY_ID

CHECKS = {
    "together": "GPUs free together",
    "line": "Queue",
    "quota": "Quota",
    "budget": "Budget",
    "policy": "Policy",
    "hardware": "Hardware",
}
"""The checks in the order in which they are shown, with their names."""
# Nobody knows these of a booking that was not placed.
_OF_A_PLACE = ("together", "line")


@dataclass(frozen=True, slots=True)
class StartCheck:
    """A check with its reasons. `passed` is None where the decision did not look at it."""

    check: str
    passed: bool | None
    reasons: tuple[Mapping[str, Any], ...]


def start_checks(booking: Booking, more: Iterable[Mapping[str, Any]] = ()) -> tuple[StartCheck, ...]:
    """Returns the checks of a booking; `more` are reasons that hold in addition to its own."""
    reasons = [*more, *booking.reasons]
    if booking.state in ON_HARDWARE:
        # What had to make room for it has made it.
        reasons = [each for each in reasons if each.get("code") != "makes_room"]
    return tuple(
        _check(booking, name, tuple(each for each in reasons if each.get("check", "policy") == name))
        for name in CHECKS
    )


def _check(booking: Booking, name: str, reasons: tuple[Mapping[str, Any], ...]) -> StartCheck:
    if any(map(is_delay, reasons)):
        return StartCheck(name, passed=False, reasons=reasons)
    is_known = name not in _OF_A_PLACE or _is_placed(booking)
    return StartCheck(name, passed=True if is_known else None, reasons=reasons)


def is_delay(reason: Mapping[str, Any]) -> bool:
    """Returns whether a reason keeps the booking from its start; others explain its place."""
    if reason.get("code") == "makes_room":
        # It explains why the start is not later, and others still have its GPUs.
        return True
    rule = BY_ID.get(reason.get("rule", ""), BY_CODE.get(reason.get("code", "")))
    return rule is None or rule.effect != "explains"


def _is_placed(booking: Booking) -> bool:
    """Returns whether the plan has GPUs for it, or it ran."""
    if booking.state in TERMINAL:
        return booking.ready_at is not None
    return booking.state != State.REQUESTED and not booking.is_unplanned
