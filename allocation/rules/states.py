"""The states of a booking and the table of transitions. The database enforces a copy of it."""

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """The state of a booking."""

    REQUESTED = "requested"
    AWAITING_APPROVAL = "awaiting_approval"
    WAITLISTED = "waitlisted"
    OFFERED = "offered"
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
BEFORE_RUN = (State.REQUESTED, State.AWAITING_APPROVAL, State.QUEUED, State.SCHEDULED)
RUNNING = (State.STARTING, State.ACTIVE)
ON_HARDWARE = frozenset({State.STARTING, State.ACTIVE, State.PAUSING, State.ENDING})
OPEN = frozenset(State) - TERMINAL
# States in which a booking waits for a window on the waiting list.
ON_WAITLIST = (State.WAITLISTED, State.OFFERED)
# What pages, lists and counts call the states: each state is in one of them.
PHASES: Mapping[str, tuple[State, ...]] = {
    "waiting": (State.REQUESTED, State.AWAITING_APPROVAL, *ON_WAITLIST, State.QUEUED),
    "scheduled": (State.SCHEDULED,),
    "running": (State.STARTING, State.ACTIVE, State.PAUSING, State.ENDING),
    "paused": (State.PAUSED,),
    "over": tuple(sorted(TERMINAL)),
}
# States in which a booking can be extended.
EXTENDABLE = (State.SCHEDULED, State.STARTING, State.ACTIVE)

_NEXT: Mapping[State, tuple[State, ...]] = {
    State.REQUESTED: (
        State.AWAITING_APPROVAL,
        State.WAITLISTED,
        State.QUEUED,
        State.SCHEDULED,
        State.REFUSED,
        State.CANCELLED,
    ),
    State.WAITLISTED: (State.OFFERED, State.SCHEDULED, State.EXPIRED, State.CANCELLED),
    State.OFFERED: (State.WAITLISTED, State.SCHEDULED, State.CANCELLED),
    State.AWAITING_APPROVAL: (
        State.REQUESTED,
        State.REJECTED,
        State.EXPIRED,
        State.CANCELLED,
    ),
    State.QUEUED: (State.SCHEDULED, State.EXPIRED, State.REFUSED, State.CANCELLED, State.FAILED),
    State.SCHEDULED: (State.STARTING, State.QUEUED, State.EXPIRED, State.CANCELLED),
    State.STARTING: (State.ACTIVE, State.ENDING, State.QUEUED, State.FAILED),
    State.ACTIVE: (State.PAUSING, State.ENDING, State.QUEUED, State.FAILED),
    State.PAUSING: (State.ACTIVE, State.PAUSED, State.ENDING, State.FAILED),
    State.PAUSED: (State.STARTING, State.CANCELLED, State.ENDED, State.FAILED),
    State.ENDING: (State.ENDED, State.FAILED),
}
TRANSITIONS = frozenset((old, new) for old, states in _NEXT.items() for new in states)

# The planned run of a booking, and what was announced about its start.
PLANNED_TIMES = (
    "planned_starts",
    "planned_ends",
    "planned_strength",
    "announced_from",
    "announced_until",
)
IDLE = ("idle_seconds", "idle_counted_at", "idle_veto_until", "idle_vetoes")
# Fields that have no meaning in a state. They are reset to their defaults when it is entered.
CLEARED_IN: Mapping[State, tuple[str, ...]] = {
    State.WAITLISTED: (*PLANNED_TIMES, "planned_class", "planned_places"),
    State.SCHEDULED: ("alternatives", "planned_places"),
    State.PAUSING: (
        "extension_until",
        *PLANNED_TIMES,
        "planned_places",
        "reasons",
    ),
    State.PAUSED: ("ready_at", "notified_at", "saved_at", "used_seconds", "used_peak_seconds"),
    State.ENDING: ("extension_until",),
    **dict.fromkeys(TERMINAL, ("extension_until", "planned_places")),
}
_RUN_LOST = (
    "ready_at",
    "released_at",
    "extension_until",
    "planned_strength",
    "announced_from",
    "announced_until",
)
# Fields that a single transition also resets: a run starts, a notice is withdrawn, a run is lost.
CLEARED_BY: Mapping[tuple[State, State], tuple[str, ...]] = {
    (State.STARTING, State.ACTIVE): (
        "saved_at",
        "absent_seconds",
        "absent_until",
        "absence_warnings",
        *IDLE,
        "awaits_check_in",
    ),
    (State.PAUSING, State.ACTIVE): (
        "notified_at",
        "planned_places",
        "reasons",
        *IDLE,
        "awaits_check_in",
    ),
    (State.STARTING, State.QUEUED): _RUN_LOST,
    (State.ACTIVE, State.QUEUED): _RUN_LOST,
}


def fields_cleared(old: State, new: State) -> tuple[str, ...]:
    """Names of the fields that the transition from `old` to `new` resets to their defaults."""
    return CLEARED_IN.get(new, ()) + CLEARED_BY.get((old, new), ())


def is_transition_allowed(old: State, new: State) -> bool:
    """Whether the table has the transition."""
    return (old, new) in TRANSITIONS


STATE_WORDS: Mapping[str, str] = {
    State.REQUESTED: "Being placed",
    State.AWAITING_APPROVAL: "Needs approval",
    State.WAITLISTED: "On the waiting list",
    State.OFFERED: "Offered to you",
    State.QUEUED: "Waiting",
    State.SCHEDULED: "Scheduled",
    State.STARTING: "Starting",
    State.ACTIVE: "Running",
    State.PAUSING: "Pausing",
    State.PAUSED: "Paused",
    State.ENDING: "Ending",
    State.ENDED: "Ended",
    State.CANCELLED: "Cancelled",
    State.EXPIRED: "Expired",
    State.REFUSED: "Refused",
    State.REJECTED: "Not approved",
    State.FAILED: "Failed",
}
"""The word of each state of a booking, the same on pages and in calendars."""
