"""The work that is due for a turn at an instant, looked up in one statement."""

from datetime import datetime
from functools import cache

from django.db.models import Q, QuerySet

from allocation.models import (
    Booking,
    BookingChange,
    CompactionOrder,
    Maintenance,
    PortalMode,
    Stop,
)
from allocation.points.bookings import TURN_PREPARES, TURN_STEPS
from allocation.rules.states import EXTENDABLE, OPEN, WAITING, State
from allocation.services.bookings.approval.decisions import approvals_due
from allocation.services.bookings.change.calendar_cuts import calendar_cuts_due
from allocation.services.bookings.departures import departures_due
from allocation.services.bookings.dependencies import dependencies_due
from allocation.services.nodes.gpu_modes import pins_of_modes, starts_with_a_mode
from allocation.services.plans.kept_places import places_lapsed
from allocation.services.plans.pauses import hand_overs_due
from allocation.services.plans.restraints import marked, restraints_due
from allocation.services.policy.activations import activations_due
from allocation.services.publish.publish import nodes_unpublished
from allocation.services.record.open_pauses import pauses_to_extend
from allocation.services.runs.end import (
    RESUME_PLANNED,
    leaving_over,
    never_started,
    runs_over,
    start_planned_by,
)
from allocation.services.runs.interrupt import is_hardware_to_vacate, rows_on_closed_hardware
from allocation.services.runs.resume import suspended_work_over
from allocation.services.runs.start import RESTRAINED
from billing.services.guardrails import rungs_acting
from tenants.platform.database.look import Look, Question

_TO_ANSWER = (State.REQUESTED, State.WAITLISTED, State.QUEUED, State.PAUSING, State.PAUSED)
_EXTENSION_ASKED = Q(extension_until__isnull=False, state__in=EXTENDABLE)
_ASKED = Q(state=BookingChange.State.ASKED)


def _bookings(where: Q) -> QuerySet[Booking]:
    return Booking.objects.filter(where)


def _changes_due(now: datetime) -> QuerySet[BookingChange]:
    """The changes to be decided. One that waits for room is, when its time is over."""
    waits = Q(keep_trying_until__isnull=False, keep_trying_until__gt=now) & ~Q(reasons=[])
    return BookingChange.objects.filter(_ASKED).exclude(waits)


def _starts_due(now: datetime) -> QuerySet[Booking]:
    """The first of all planned starts, if it has come.

    PostgreSQL would expect many planned starts before now, because running bookings have one too,
    and would read all bookings to find that none is scheduled. The first one is one index entry.
    """
    planned = _bookings(Q(state=State.SCHEDULED) & ~RESTRAINED).order_by("planned_starts")
    return _bookings(Q(id__in=planned.values("id")[:1]) & start_planned_by(now))


_QUESTIONS: dict[str, Question] = {
    "frozen": lambda _: PortalMode.objects.filter(kind=PortalMode.Kind.FREEZE, ended_at=None),
    "activations": activations_due,
    "departures": lambda _: departures_due(),
    "calendar_cuts": lambda _: calendar_cuts_due(),
    "runs_over": lambda now: _bookings(runs_over(now)),
    "leaving_over": lambda now: _bookings(leaving_over(now)),
    "never_started": lambda now: _bookings(never_started(now)),
    "maintenance": lambda now: Maintenance.objects.filter(ended_at=None, ends__gt=now),
    "maintenance_acts": lambda now: Maintenance.objects.filter(
        ended_at=None, drain_by__lte=now, ends__gt=now
    ),
    "to_vacate": lambda now: rows_on_closed_hardware(now)[0],
    "blocked": lambda now: rows_on_closed_hardware(now)[1],
    "approvals": approvals_due,
    "places_lapsed": lambda now: _bookings(places_lapsed(now)),
    "more_time": lambda _: pauses_to_extend(),
    "hand_overs": lambda _: hand_overs_due(),
    "rungs": rungs_acting,
    "stops": lambda _: Stop.objects.filter(ended_at=None),
    "marked": lambda _: marked(),
    "changes_open": lambda _: BookingChange.objects.filter(state__in=BookingChange.OPEN),
    "changes_asked": lambda _: BookingChange.objects.filter(_ASKED),
    "changes_due": _changes_due,
    "dependants": lambda _: Booking.objects.filter(awaits_parents=True, state__in=WAITING),
    "dependencies": dependencies_due,
    "orders": lambda _: CompactionOrder.objects.filter(decided_at=None),
    "to_answer": lambda _: _bookings(
        Q(state__in=_TO_ANSWER)
        | Q(at_risk_from__isnull=False, state__in=OPEN)
        | Q(place_until__isnull=False, state=State.AWAITING_APPROVAL)
        | _EXTENSION_ASKED
    ),
    "requested": lambda _: Booking.objects.filter(state=State.REQUESTED, is_drained=False),
    "starts": _starts_due,
    "resumes": lambda now: _bookings(RESUME_PLANNED & start_planned_by(now) & ~RESTRAINED),
    "modes": starts_with_a_mode,
    "pins": lambda _: pins_of_modes(),
    "suspended": suspended_work_over,
    "unpublished": lambda _: nodes_unpublished(),
}
# Each of these gives a turn something to do.
_ANY_OF = (
    "activations",
    "departures",
    "calendar_cuts",
    "runs_over",
    "leaving_over",
    "approvals",
    "places_lapsed",
    "more_time",
    "changes_due",
    "dependencies",
    "requested",
    "starts",
    "resumes",
)
_HARDWARE = ("maintenance", "to_vacate", "blocked")
# Planning a maintenance requests a turn, so the tick watches only its deadline.
_HARDWARE_NOW = ("maintenance_acts", "to_vacate", "blocked")
_RESTRAINTS = ("rungs", "stops", "marked")


@cache
def _look() -> Look:
    steps = TURN_STEPS | TURN_PREPARES
    return Look(_QUESTIONS | {name: step.rows for name, step in steps.items()})


class Work:
    """The names of `_QUESTIONS`, and of steps of features, that have work at an instant.

    The answers are kept until something was done (`take`, `done`); then they are looked up again.
    """

    def __init__(self, now: datetime) -> None:
        """Looks nothing up before the first question."""
        self._now = now
        self._found: frozenset[str] | None = None

    def has(self, *names: str) -> bool:
        """Whether one of the names has work."""
        if self._found is None:
            self._found = _look()(self._now)
        return not self._found.isdisjoint(names)

    def take(self, *names: str) -> bool:
        """Returns the same as `has`, for a caller that does the work now."""
        found = self.has(*names)
        if found:
            self.forget()
        return found

    @property
    def has_hardware(self) -> bool:
        """Whether a booking may have to leave its hardware, for a caller that looks at each."""
        return self.has(*_HARDWARE)

    @property
    def has_restraints(self) -> bool:
        """Whether a booking may have to be restrained or freed, for a caller that looks at each."""
        return self.has(*_RESTRAINTS)

    def done(self, count: int) -> int:
        """Returns `count`, the number of things that the caller did. More work may follow from
        them."""
        if count:
            self.forget()
        return count

    def forget(self) -> None:
        """Makes the next question look again."""
        self._found = None

    @property
    def is_due(self) -> bool:
        """Whether the clock or a new request gives a turn something to do.

        Waiting bookings with a planned start don't count: time alone changes nothing for them, and
        a change that helps them requests a turn.
        """
        return (
            self.has(*_ANY_OF, *(name for name, step in TURN_STEPS.items() if step.makes_due))
            or (self.has_restraints and restraints_due(self._now).exists())
            or (self.has(*_HARDWARE_NOW) and is_hardware_to_vacate(self._now))
        )

    @property
    def is_undecided(self) -> bool:
        """Whether the solver has something to answer, or a risk that may be over."""
        return self.has("orders", "changes_asked", "to_answer")
