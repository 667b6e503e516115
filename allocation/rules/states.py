"""The life of a booking: the one transition table. The database holds a copy and enforces it."""

from enum import StrEnum


class State(StrEnum):
    """Where a booking stands."""

    REQUESTED = "requested"
    AWAITING_APPROVAL = "awaiting_approval"
    QUEUED = "queued"
    SCHEDULED = "scheduled"
    STARTING = "starting"
    ACTIVE = "active"
    PAUSING = "pausing"
    PAUSED = "paused"
    ENDING = "ending"
    ENDED = "ended"
    REFUSED = "refused"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    FAILED = "failed"


TERMINAL = frozenset(
    {State.ENDED, State.REFUSED, State.REJECTED, State.EXPIRED, State.CANCELLED, State.FAILED}
)
WAITING = frozenset({State.REQUESTED, State.QUEUED})
ON_HARDWARE = frozenset({State.STARTING, State.ACTIVE, State.PAUSING, State.ENDING})
OPEN = frozenset(State) - TERMINAL
# States in which the end may still move.
EXTENDABLE = (State.SCHEDULED, State.STARTING, State.ACTIVE)

TRANSITIONS: frozenset[tuple[State, State]] = frozenset(
    {
        (State.REQUESTED, State.AWAITING_APPROVAL),
        (State.REQUESTED, State.QUEUED),
        (State.REQUESTED, State.SCHEDULED),
        (State.REQUESTED, State.REFUSED),
        (State.REQUESTED, State.CANCELLED),
        (State.AWAITING_APPROVAL, State.REQUESTED),
        (State.AWAITING_APPROVAL, State.REJECTED),
        (State.AWAITING_APPROVAL, State.CANCELLED),
        (State.QUEUED, State.SCHEDULED),
        (State.QUEUED, State.EXPIRED),
        (State.QUEUED, State.REFUSED),
        (State.QUEUED, State.CANCELLED),
        (State.QUEUED, State.FAILED),
        (State.SCHEDULED, State.STARTING),
        (State.SCHEDULED, State.QUEUED),
        (State.SCHEDULED, State.EXPIRED),
        (State.SCHEDULED, State.CANCELLED),
        (State.STARTING, State.ACTIVE),
        (State.STARTING, State.ENDING),
        (State.STARTING, State.QUEUED),
        (State.STARTING, State.FAILED),
        (State.ACTIVE, State.PAUSING),
        (State.ACTIVE, State.ENDING),
        (State.ACTIVE, State.QUEUED),
        (State.ACTIVE, State.FAILED),
        (State.PAUSING, State.ACTIVE),
        (State.PAUSING, State.PAUSED),
        (State.PAUSING, State.ENDING),
        (State.PAUSING, State.FAILED),
        (State.PAUSED, State.STARTING),
        (State.PAUSED, State.CANCELLED),
        (State.PAUSED, State.ENDED),
        (State.PAUSED, State.FAILED),
        (State.ENDING, State.ENDED),
        (State.ENDING, State.FAILED),
    }
)


def may_become(old: State, new: State) -> bool:
    """True when the table lists the step."""
    return (old, new) in TRANSITIONS
