"""Undo: for a minute a change can be taken back, with the rank and the prices from before.

Nothing is kept free for it. What the change gave up is asked for again, and the next cycle says
whether it is still free. If it is, the late share that the change cost is given back.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db import transaction

from allocation.models import Booking, BookingChange, PlannedStrength
from allocation.rules.ask import AskDocument
from allocation.rules.changes import Strength, Target, strength_of
from allocation.rules.states import RUNNING, State
from allocation.services.bookings.change.calendar_cuts import is_awaited, plan_cut
from allocation.services.bookings.change.refusals import change_awaited, not_changeable
from allocation.services.bookings.change.writer import ChangeWriter
from allocation.services.bookings.change_rows import late_fee_of, rank_of
from allocation.services.bookings.checks.terms import hold_of, target_of
from allocation.services.bookings.departures import growth_check
from allocation.services.record.terms import Terms
from allocation.services.record.workloads import has_run
from allocation.services.runs.transition import booking_lock
from allocation.words.refusals import refusal_text
from billing.services import HoldRequest
from tenants.access import Actor
from tenants.outbox import task_request
from tenants.platform.errors import Refused

UNDO_TIME = timedelta(seconds=60)


def undoable_change(booking: Booking, now: datetime) -> BookingChange | None:
    """The change that can be undone now; None: there is none."""
    change = _last_made(booking)
    return change if change is not None and now < _until(change) else None


def change_undo(*, actor: Actor, booking: Booking, now: datetime) -> Booking:
    """Undoes the last change of the booking, or asks for what it gave up.

    Raises:
        Refused: `nothing_to_undo`, `undo_late`, `undo_begun`, `undo_past`, `change_awaited`,
            `not_changeable`, `owner_left`, or by the budget. Nothing is changed then.
    """
    with transaction.atomic():
        booking = booking_lock(booking.id, "project", "tier", "owner", "campaign")
        change = _last_made(booking)
        if change is None:
            raise Refused("nothing_to_undo", refusal_text("nothing_to_undo", label=booking.label))
        if now >= _until(change):
            made = actor.clock(change.decided_at or now, now)
            raise Refused("undo_late", refusal_text("undo_late", label=booking.label, made=made))
        if change.strength == Strength.WEAKER:
            growth_check(booking)
        return _Undo.of(actor, booking, change, now).apply()


def _until(change: BookingChange) -> datetime:
    return (change.decided_at or change.asked_at) + UNDO_TIME


def _last_made(booking: Booking) -> BookingChange | None:
    """The change that gave the booking its present revision; None for one that undid another."""
    made = BookingChange.objects.filter(
        booking=booking,
        state=BookingChange.State.CHANGED,
        base_revision=booking.revision - 1,
        undoes=None,
    )
    return made.exclude(restores={}).order_by("-decided_at").first()


@dataclass(frozen=True, slots=True)
class _Undo:
    """The way back of a locked booking to the terms from before a change."""

    booking: Booking
    change: BookingChange
    terms: Terms
    writer: ChangeWriter
    now: datetime

    @classmethod
    def of(cls, actor: Actor, booking: Booking, change: BookingChange, now: datetime) -> "_Undo":
        before = Terms.from_json(change.before)
        # What was charged since then is part of what the booking costs.
        charged = late_fee_of(change, booking)
        terms = replace(before, hold_amount=before.hold_amount + charged)
        new = Target(AskDocument.from_json(terms.ask), terms.tier, terms.name)
        writer = ChangeWriter(actor, booking, target_of(booking), new, now, undoes=change)
        return cls(booking, change, terms, writer, now)

    def apply(self) -> Booking:
        booking, old, new = self.booking, self.writer.old, self.writer.new
        strength, state = strength_of(old, new), State(booking.state)
        if strength is Strength.WORD:
            self.writer.replace_open()
            self.writer.store(self.terms, strength)
            return booking
        if state in RUNNING:
            return self._running()
        if state not in (State.REQUESTED, State.QUEUED, State.SCHEDULED) or has_run(booking):
            raise not_changeable(booking)
        if is_awaited(booking):
            raise change_awaited(booking)
        if self.terms.starts is not None and self.terms.starts < self.now:
            raise Refused("undo_past", refusal_text("undo_past"))
        keeps_class = not booking.planned_class or booking.planned_class in new.ask.classes
        if state == State.REQUESTED:
            return self._at_once(Strength.STRONGER)
        # A cycle gives a late share back.
        has_fee = late_fee_of(self.change, booking) > 0
        if strength is Strength.WEAKER and keeps_class and not has_fee:
            return self._at_once(Strength.WEAKER)
        return self._ask_again()

    def _at_once(self, strength: Strength) -> Booking:
        """Goes back to less, or to a request that nobody has decided."""
        booking, writer, request = self.booking, self.writer, hold_of(self.booking, self.terms)
        writer.replace_open()
        change = writer.row(self.terms, strength)
        if strength is Strength.WEAKER:
            plan_cut(booking, self.terms, self.now)
        else:
            writer.hold_delta(change, request)
        digest = self.change.restores["approved_hash"]
        writer.store(self.terms, strength, change, ranked_at=rank_of(change), approved_hash=digest)
        writer.exchange(request, change)
        task_request("allocation.cycle")
        return booking

    def _ask_again(self) -> Booking:
        """Asks the next cycle for what the change gave up, by the old start and no weaker."""
        restores = self.change.restores
        change = self.writer.row(self.terms, Strength.STRONGER)
        starts = restores["planned_starts"]
        is_flexible = self.terms.starts is None
        change.start_by = datetime.fromisoformat(starts) if starts and is_flexible else None
        firm = PlannedStrength.FIRM.value
        change.least_strength = firm if restores["is_scheduled"] else restores["strength"]
        return self.writer.ask(change, hold_of(self.booking, self.terms), None)

    def _running(self) -> Booking:
        """Gives a booking that has GPUs its old end."""
        booking, writer, now = self.booking, self.writer, self.now
        is_only_end = writer.old.differences(writer.new).keys() <= {"duration", "name"}
        if booking.planned_ends is None or not is_only_end:
            raise Refused("undo_begun", refusal_text("undo_begun", label=booking.label))
        seconds = writer.new.ask.duration - writer.old.ask.duration
        until = booking.planned_ends + timedelta(seconds=seconds)
        if until <= now:
            raise Refused("undo_past", refusal_text("undo_past"))
        request = self._hold_of_run(until)
        if seconds > 0:
            change = writer.row(self.terms, Strength.STRONGER)
            change.until = until
            return writer.ask(change, request, None)
        writer.replace_open()
        writer.store(self.terms, Strength.WEAKER, planned_ends=until)
        writer.exchange(request)
        task_request("allocation.cycle")
        return booking

    def _hold_of_run(self, until: datetime) -> HoldRequest:
        begun = self.booking.planned_starts or self.now
        request = hold_of(self.booking, self.terms)
        return replace(request, starts=min(begun, self.now), ends=until)
