"""A process that runs one cycle and is killed, or stopped, at a chosen point of it.

`python -m tests.faults.crashing_cycle POINT NOW [SIGSTOP]`
"""

import importlib
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime

import django

# Where it dies: just before this function is called for the n-th time.
POINTS = {
    "before the plan is written": ("allocation.services.decide.cycle", "plan_apply", 1),
    "in the middle of writing it": ("allocation.services.runs.transition", "_write", 1),
    "before its history is written": ("allocation.services.runs.transition", "events_add", 1),
    "after it is committed": ("allocation.services.decide.cycle", "starts_due", 1),
    "in the middle of starts": ("allocation.services.runs.start", "_begin", 1),
    "when starts are nearly written": ("allocation.services.runs.start", "bookings_change", 1),
    "before nodes are notified": ("allocation.services.decide.cycle", "publish_due", 1),
    "while a node is notified": ("wire", "seal", 1),
}
# Where it dies if it moves something.
OF_MOVES = {
    "when the old places are left": ("allocation.services.plans.answers", "allocations_write", 1),
    "when the new places are taken": ("allocation.services.plans.answers", "move_record", 1),
    "when the move is committed": ("allocation.services.decide.cycle", "_publish", 1),
}
# Where it dies if it ends something.
OF_ENDS = {"in the middle of an end": ("allocation.services.runs.end", "generations_raise", 1)}
# Where it dies if a plan is written in several transactions, of ten bookings each.
OF_PIECES = {
    "between two pieces": ("allocation.services.plans.transactions", "_piece_write", 3),
}
# Where it dies if a version of the policy goes into force.
OF_POLICIES = {
    "when the live version is superseded": ("allocation.services.policy.activations", "_end", 1),
    "when its tiers are set": ("allocation.services.policy.scenarios", "_prices_apply", 1),
    "when the next version is live": ("allocation.services.policy.activations", "policy_event", 1),
}
# The same where an operator goes back, which is no part of a cycle.
OF_ROLLBACKS = {f"{point}, going back": where for point, where in OF_POLICIES.items()}
BOOKINGS_OF_A_PIECE = 10


def dying(
    really: Callable[..., object], times: int, number: signal.Signals = signal.SIGKILL
) -> Callable[..., object]:
    """As `really`, until it is called for the last time."""
    left = [times]

    def function(*args: object, **named: object) -> object:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), number)
        return really(*args, **named)

    return function


def main(point: str, now: str, number: str = "SIGKILL") -> None:
    """Comes back only from a stop."""
    django.setup()
    from allocation.services.decide.cycle import cycle_run  # noqa: PLC0415 (needs the settings)
    from allocation.services.policy.activations import policy_rollback  # noqa: PLC0415 (the same)

    name, function, times = (POINTS | OF_MOVES | OF_ENDS | OF_PIECES | OF_POLICIES | OF_ROLLBACKS)[point]
    if point in OF_PIECES:
        pieces = importlib.import_module("allocation.services.plans.transactions")
        pieces.PIECE_BOOKINGS = BOOKINGS_OF_A_PIECE  # type: ignore[attr-defined]
    module = importlib.import_module(name)
    setattr(module, function, dying(getattr(module, function), times, signal.Signals[number]))
    if point in OF_ROLLBACKS:
        policy_rollback(now=datetime.fromisoformat(now), operator_id=None, reason="Under load.")
        return
    cycle_run(datetime.fromisoformat(now))


if __name__ == "__main__":
    main(*sys.argv[1:])
