"""Restraints: what an operator's stop or the ladder of a budget keeps from starting, and what a
ladder keeps from borrowing or pauses.

Each turn compares the marks of every booking with the stops and rungs that act now, so a restraint
ends by itself.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.models import Booking, Stop
from allocation.queries.bookings.restrained import CHOOSES, NOT_STARTED, budget_scope, pausable
from allocation.queries.fleet.stops import (
    STOP_CODES,
    bookings_covered,
    stop_facts,
    stop_why,
    stops_in_force,
    stops_of,
)
from allocation.reasons.reason import Reason, reason
from allocation.rules.states import PLANNED_TIMES, State
from allocation.services.plans.apply_pauses import budget_pause_begin
from allocation.services.record.history import Event
from allocation.services.runs.interrupt import place_withdraw
from allocation.services.runs.transition import booking_change, booking_lock, booking_move
from allocation.words.events import event_text
from allocation.words.reasons import reason_data
from billing.models import Guardrail
from billing.queries import budget_name
from billing.services.guardrails import STOPPING, restraining_rungs
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
    """Marks and pauses what may not start, borrow or run now, and frees what may again; returns how
    many. For the turn."""
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
        stopped, within = self.stopped(), self.within()
        kept = self.kept() | stopped
        planned = Q(state=State.REQUESTED) | Q(state=State.SCHEDULED, starts=None)
        planned |= Q(state__in=(State.QUEUED, *PAUSE_STATES), planned_starts__isnull=False)
        wrong = kept & (Q(is_drained=False) | planned) | Q(is_drained=True) & ~kept
        # The stop is over, and a budget still keeps it.
        wrong |= kept & ~stopped & Q(state=State.QUEUED, reasons__0__code__in=STOP_CODES)
        wrong |= within & (Q(may_borrow=True) | _BORROWS) | Q(may_borrow=False) & ~within
        cheapest = self.cheapest()
        wrong |= cheapest & Q(on_cheapest=False) | Q(on_cheapest=True) & ~cheapest
        # A mark on what runs, or is over, has no effect.
        found = Q(wrong, state__in=(*NOT_STARTED, *PAUSE_STATES))
        pausing = self._scope((Action.PAUSE,))
        if pausing is not None:
            found |= pausing & pausable(self.now)
        return Booking.objects.filter(found)

    def kept(self) -> Q:
        """The bookings that may not start or resume."""
        starting = self._scope(STOPPING) or _NONE
        resuming = self._scope((Action.PAUSE,)) or _NONE
        return Q(state__in=NOT_STARTED) & starting | Q(state__in=PAUSE_STATES) & resuming

    def stopped(self) -> Q:
        """The bookings that an operator's stop keeps from starting or resuming."""
        return Q(state__in=(*NOT_STARTED, *PAUSE_STATES)) & bookings_covered(self.stops)

    def within(self) -> Q:
        """The bookings that may not start or resume on borrowed GPUs."""
        scope = self._scope((Action.NO_BORROWING,)) or _NONE
        return Q(state__in=(*NOT_STARTED, *PAUSE_STATES)) & scope

    def cheapest(self) -> Q:
        """Work on several classes that takes the cheapest of them. With a deadline it takes the
        cheapest that meets it anyway; what has begun stays on its class."""
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
            _drain(booking, found)
            _keep_within(booking, found)
            _keep_cheapest(booking, found)
        task_request("allocation.cycle")
    return True


def _drain(booking: Booking, found: _Restraints) -> None:
    """Marks the booking and gives up its planned start, or takes the mark away."""
    now = found.now
    actions = (Action.PAUSE,) if booking.state in PAUSE_STATES else STOPPING
    stops = stops_of(booking, now)
    rung = None if stops else found.rung_for(booking, actions)
    if stops:
        event = Event("work_stopped", event_text("work_stopped", **stop_facts(stops[0])))
        _keep(booking, event, stop_why(stops[0]), now)
    elif rung is not None:
        event = Event("drained", event_text("drained", **_facts(rung)))
        _keep(booking, event, _why("budget_drained", rung), now)
    elif booking.is_drained:
        event = Event("drained_no_more", event_text("drained_no_more"))
        booking_change(booking, event=event, now=now, is_drained=False)


def _keep(booking: Booking, event: Event, why: Reason, now: datetime) -> None:
    """Marks the booking and gives up its planned start; a fixed window keeps its GPUs."""
    if not booking.is_drained:
        booking_change(booking, event=event, now=now, is_drained=True)
    if booking.state == State.SCHEDULED and booking.starts is None:
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


def _keep_within(booking: Booking, found: _Restraints) -> None:
    """Marks the booking and gives up borrowed GPUs that it has not started on, or takes the mark
    away."""
    rung, now = found.rung_for(booking, (Action.NO_BORROWING,)), found.now
    if rung is None:
        if not booking.may_borrow:
            event = Event("borrowing_allowed", event_text("borrowing_allowed"))
            booking_change(booking, event=event, now=now, may_borrow=True)
        return
    event = Event("borrowing_stopped", event_text("borrowing_stopped", **_facts(rung)))
    if booking.may_borrow:
        booking_change(booking, event=event, now=now, may_borrow=False)
    if Booking.objects.filter(_BORROWS, id=booking.id).exists():
        place_withdraw(booking, event, now, **dict.fromkeys(PLANNED_TIMES))


def _keep_cheapest(booking: Booking, found: _Restraints) -> None:
    """Marks the booking and gives up a planned start on a dearer class, or takes the mark away."""
    is_due = Booking.objects.filter(found.cheapest(), id=booking.id).exists()
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
    return {"owner": budget_name(rung.budget), "percent": rung.percent}


def _why(code: str, rung: Guardrail) -> Reason:
    return reason(code, **_facts(rung))
