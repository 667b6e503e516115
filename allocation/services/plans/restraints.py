"""Restraints: operators' stops and rungs of budgets keep bookings from starting or borrowing, or
pause them.

Each turn compares the marks of bookings (`is_drained`: may not start or resume; `may_borrow`;
`on_cheapest`) with the stops and rungs that act now, so a restraint ends by itself.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.models import Booking, Stop
from allocation.queries.bookings.rung_effects import CHOOSES, NOT_STARTED, budget_scope, pausable
from allocation.queries.fleet.stops import (
    STOP_CODES,
    bookings_covered,
    stop_facts,
    stop_why,
    stops_in_force,
    stops_of,
)
from allocation.rules.states import PLANNED_TIMES, State
from allocation.services.plans.pauses import budget_pause_begin
from allocation.services.record.history import Event
from allocation.services.record.open_pauses import pauses_withdrawable
from allocation.services.runs.interrupt import place_withdraw
from allocation.services.runs.transition import booking_change, booking_lock, booking_move
from allocation.words.events import event_text
from allocation.words.reasons import reason_data
from billing.models import Guardrail
from billing.queries import budget_name
from billing.services.guardrails import STOPPING, restraining_rungs
from solver.reasons.reason import Reason, reason
from tenants.outbox import task_request

Action = Guardrail.Action
# Bookings that one turn changes, so that none takes long.
MOST = 500
PAUSE_STATES = (State.PAUSING, State.PAUSED)


def restraints_due(now: datetime) -> QuerySet[Booking]:
    """Returns the bookings that a restraint has to change, and those with a mark that is over."""
    return _restraints(now).due()


def marked() -> QuerySet[Booking]:
    """Returns the bookings that a restraint has marked and that have not begun, or are paused."""
    return Booking.objects.filter(
        Q(is_drained=True) | Q(may_borrow=False) | Q(on_cheapest=True),
        state__in=(*NOT_STARTED, *PAUSE_STATES),
    )


def restraints_apply(now: datetime) -> int:
    """Writes the marks of up to `MOST` bookings and pauses those that may not run; returns how
    many."""
    found = _restraints(now)
    ids = list(found.due().order_by("id").values_list("id", flat=True)[:MOST])
    return sum(_apply(booking, found) for booking in ids)


def _restraints(now: datetime) -> "_Restraints":
    return _Restraints(restraining_rungs(now), stops_in_force(now), now)


@dataclass(frozen=True, slots=True)
class _Restraints:
    """The rungs and stops that restrain bookings at `now`."""

    rungs: Sequence[Guardrail]
    stops: Sequence[Stop]
    now: datetime

    def due(self) -> QuerySet[Booking]:
        """The bookings with a wrong mark, or with a place or a run that a mark forbids."""
        stopped, may_not_borrow = self.stopped(), self.may_not_borrow()
        may_not_start = self.may_not_start() | stopped
        planned = Q(state=State.REQUESTED) | Q(state=State.SCHEDULED, starts=None)
        planned |= Q(state__in=(State.QUEUED, *PAUSE_STATES), planned_starts__isnull=False)
        wrong = may_not_start & (Q(is_drained=False) | planned)
        wrong |= Q(is_drained=True) & ~may_not_start
        # The stop is over, but a budget still restrains the booking: its reason changes.
        has_stop_reason = Q(state=State.QUEUED, reasons__0__code__in=STOP_CODES)
        wrong |= may_not_start & ~stopped & has_stop_reason
        wrong |= may_not_borrow & (Q(may_borrow=True) | _BORROWS)
        wrong |= Q(may_borrow=False) & ~may_not_borrow
        only_cheapest = self.only_cheapest()
        wrong |= only_cheapest & Q(on_cheapest=False) | Q(on_cheapest=True) & ~only_cheapest
        # A mark on what runs, or is over, has no effect.
        found = Q(wrong, state__in=(*NOT_STARTED, *PAUSE_STATES))
        pausing = self._scope((Action.PAUSE,))
        if pausing is not None:
            found |= pausing & pausable(self.now)
        return Booking.objects.filter(found)

    def may_not_start(self) -> Q:
        """The bookings that a budget keeps from starting or resuming."""
        starting = self._scope(STOPPING) or _NONE
        resuming = self._scope((Action.PAUSE,)) or _NONE
        return Q(state__in=NOT_STARTED) & starting | Q(state__in=PAUSE_STATES) & resuming

    def stopped(self) -> Q:
        """The bookings that an operator's stop keeps from starting or resuming."""
        return Q(state__in=(*NOT_STARTED, *PAUSE_STATES)) & bookings_covered(self.stops)

    def may_not_borrow(self) -> Q:
        """The bookings that may not start or resume on borrowed GPUs."""
        scope = self._scope((Action.NO_BORROWING,)) or _NONE
        return Q(state__in=(*NOT_STARTED, *PAUSE_STATES)) & scope

    def only_cheapest(self) -> Q:
        """Bookings of several classes that may only use the cheapest of them.

        Not those with a deadline, which use the cheapest class that meets it anyway, nor those that
        have begun, which stay on their class.
        """
        scope = self._scope((Action.CHEAPER,)) or _NONE
        return CHOOSES & Q(state__in=NOT_STARTED, pause_count=0) & scope

    def rung_for(self, booking: Booking, actions: Collection[str]) -> Guardrail | None:
        """The first rung with one of the actions that counts the booking."""
        for rung in self.rungs:
            rows = Booking.objects.filter(budget_scope(rung.budget), id=booking.id)
            if rung.action in actions and rows.exists():
                return rung
        return None

    def _scope(self, actions: Collection[str]) -> Q | None:
        found: Q | None = None
        for rung in self.rungs:
            if rung.action in actions:
                scope = budget_scope(rung.budget)
                found = scope if found is None else found | scope
        return found


_NONE = Q(pk__in=[])
# A fixed window keeps its GPUs: no other time would do. It does not start while it borrows.
_BORROWS = Q(borrowed_units__gt=0) & (
    Q(state=State.SCHEDULED, starts=None) | Q(state=State.PAUSED, planned_starts__isnull=False)
)


def _apply(booking_id: UUID, found: _Restraints) -> bool:
    with transaction.atomic():
        booking = booking_lock(booking_id, "tier")
        if not found.due().filter(id=booking.id).exists():
            return False
        if booking.state == State.ACTIVE:
            rung = found.rung_for(booking, (Action.PAUSE,))
            if rung is not None:
                budget_pause_begin(booking, _why("budget_paused", rung), found.now)
        else:
            _start_mark(booking, found)
            _borrowing_mark(booking, found)
            _cheapest_mark(booking, found)
        task_request("allocation.cycle")
    return True


def _start_mark(booking: Booking, found: _Restraints) -> None:
    """Marks a booking that may not start and takes its planned start, or removes the mark."""
    now = found.now
    actions = (Action.PAUSE,) if booking.state in PAUSE_STATES else STOPPING
    stops = stops_of(booking, now)
    rung = None if stops else found.rung_for(booking, actions)
    if stops:
        event = Event("work_stopped", event_text("work_stopped", **stop_facts(stops[0])))
        _start_forbid(booking, event, stop_why(stops[0]), now)
    elif rung is not None:
        event = Event("drained", event_text("drained", **_facts(rung)))
        _start_forbid(booking, event, _why("budget_drained", rung), now)
    elif booking.is_drained:
        event = Event("drained_no_more", event_text("drained_no_more"))
        booking_change(booking, event=event, now=now, is_drained=False)


def _start_forbid(booking: Booking, event: Event, why: Reason, now: datetime) -> None:
    """Marks the booking and takes its planned start; a fixed window keeps its GPUs, unless others
    are to be paused for it."""
    if not booking.is_drained:
        booking_change(booking, event=event, now=now, is_drained=True)
    is_planned = booking.state == State.SCHEDULED
    if is_planned and (booking.starts is None or _has_notices(booking, now)):
        place_withdraw(booking, event, now)
    if booking.state not in (State.REQUESTED, State.QUEUED, *PAUSE_STATES):
        return
    waits: dict[str, object] = {
        "reasons": [reason_data(why)],
        "planned_places": [],
        **dict.fromkeys(PLANNED_TIMES),
    }
    if booking.state == State.REQUESTED:
        booking_move(booking, State.QUEUED, event=event, now=now, **waits)
        return
    if booking.state == State.PAUSED and booking.planned_starts is not None:
        place_withdraw(booking, event, now, **dict.fromkeys(PLANNED_TIMES))
    booking_change(booking, event=None, now=now, **waits)


def _has_notices(booking: Booking, now: datetime) -> bool:
    """Whether others have notice for it that can still be withdrawn."""
    return pauses_withdrawable(now).filter(cause__beneficiary=booking).exists()


def _borrowing_mark(booking: Booking, found: _Restraints) -> None:
    """Marks a booking that may not borrow and takes the borrowed GPUs that it has not started on,
    or removes the mark."""
    rung, now = found.rung_for(booking, (Action.NO_BORROWING,)), found.now
    if rung is None:
        if not booking.may_borrow:
            event = Event("borrowing_allowed", event_text("borrowing_allowed"))
            booking_change(booking, event=event, now=now, may_borrow=True)
        return
    event = Event("borrowing_stopped", event_text("borrowing_stopped", **_facts(rung)))
    if booking.may_borrow:
        booking_change(booking, event=event, now=now, may_borrow=False)
    gives_up = Booking.objects.filter(_BORROWS, id=booking.id).exists()
    is_planned = booking.state == State.SCHEDULED and booking.borrowed_units > 0
    if gives_up or (is_planned and _has_notices(booking, now)):
        place_withdraw(booking, event, now, **dict.fromkeys(PLANNED_TIMES))


def _cheapest_mark(booking: Booking, found: _Restraints) -> None:
    """Marks a booking that may only use its cheapest class and takes its planned start on another
    one, or removes the mark."""
    is_due = Booking.objects.filter(found.only_cheapest(), id=booking.id).exists()
    if is_due == booking.on_cheapest:
        return
    rung = found.rung_for(booking, (Action.CHEAPER,)) if is_due else None
    if rung is None:
        event = Event("cheapest_no_more", event_text("cheapest_no_more"))
        booking_change(booking, event=event, now=found.now, on_cheapest=False)
        return
    event = Event("cheapest_only", event_text("cheapest_only", **_facts(rung)))
    is_dearer = booking.planned_class != booking.class_durations[0][0]
    anew: dict[str, object] = {"planned_places": [], **dict.fromkeys(PLANNED_TIMES)}
    facts = anew if is_dearer and booking.state == State.QUEUED else {}
    booking_change(booking, event=event, now=found.now, on_cheapest=True, **facts)
    if is_dearer and booking.state == State.SCHEDULED:
        place_withdraw(booking, event, found.now, **dict.fromkeys(PLANNED_TIMES))


def _facts(rung: Guardrail) -> dict[str, int | str | None]:
    owner = budget_name(rung.budget)
    if rung.measure == Guardrail.Measure.UNIT_COST:
        owner = f"{owner} (spend per unit of progress)"
    return {"owner": owner, "percent": rung.percent}


def _why(code: str, rung: Guardrail) -> Reason:
    return reason(code, **_facts(rung))
