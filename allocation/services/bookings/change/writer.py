"""Writes changes of a locked booking: as made, or as asked for and held for; of labels at once."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID, uuid4

from django.db.models import F

from allocation.models import Booking, BookingChange, PlannedStrength
from allocation.rules.changes import Strength, Target
from allocation.rules.states import State
from allocation.services.bookings.approval.changes import change_approval_request
from allocation.services.bookings.approval.requests import Needed
from allocation.services.bookings.change.series_cuts import series_facts
from allocation.services.bookings.change_rows import (
    NO_BOUNDS,
    Accept,
    change_close,
    change_event,
    change_open,
    restores_of,
    terms_apply,
)
from allocation.services.bookings.checks.terms import target_of
from allocation.services.record.history import Event
from allocation.services.record.terms import Terms, terms_of
from allocation.services.runs.transition import booking_change
from billing.services import HoldRequest, hold_delta_place, hold_exchange
from tenants.access import Actor
from tenants.audit import actor_record
from tenants.outbox import task_request


@dataclass(frozen=True, slots=True)
class ChangeWriter:
    """One change of a locked booking, from `old` to `new`. `group`: changes that are made all or
    none; `undoes`: the change that it takes back."""

    actor: Actor
    booking: Booking
    old: Target
    new: Target
    now: datetime
    accept: Accept = NO_BOUNDS
    group: UUID | None = None
    undoes: BookingChange | None = None
    is_partial: bool = False

    def ask(self, change: BookingChange, request: HoldRequest, needed: Needed | None) -> Booking:
        """Holds what the change adds and leaves it to the next cycle, or to its approvers first."""
        booking = self.booking
        self.replace_open()
        self.hold_delta(change, request)
        until = change.until
        if needed is not None:
            change.state, until = BookingChange.State.AWAITING_APPROVAL, None
        change.save(force_insert=True)
        event = self._event("change_asked", change)
        booking_change(booking, event=event, now=self.now, extension_until=until)
        if needed is not None:
            change_approval_request(self.actor, booking, change, needed, self.now)
        self._audit("booking.change_asked", change)
        task_request("allocation.cycle")
        return booking

    def row(self, terms: Terms, strength: Strength) -> BookingChange:
        """The change as a row that is not stored yet."""
        booking, accept = self.booking, self.accept
        latest = booking.announced_until or booking.planned_starts
        start_by = accept.start_by
        if start_by is None and latest is not None and terms.starts is None:
            start_by = max(latest, terms.not_before)
        least = accept.strength or booking.planned_strength or ""
        if not accept.strength and booking.state == State.SCHEDULED:
            least = PlannedStrength.FIRM
        return BookingChange(
            id=uuid4(),
            tenant_id=booking.tenant_id,
            booking=booking,
            strength=strength.value,
            state=BookingChange.State.ASKED,
            base_revision=booking.revision,
            target=terms.to_json(),
            before=terms_of(booking).to_json(),
            differences={n: list(v) for n, v in self.old.differences(self.new).items()},
            start_by=start_by,
            least_strength=least,
            asked_by_id=self.actor.user_id,
            asked_at=self.now,
            group=self.group,
            is_partial=self.is_partial,
            undoes=self.undoes,
            restores=restores_of(booking),
        )

    def hold_delta(self, change: BookingChange, request: HoldRequest) -> None:
        """Holds what the change adds under its own id."""
        booking = self.booking
        amount = request.amount + change.late_fee
        change.delta_held = hold_delta_place(
            tenant_id=booking.tenant_id,
            project_id=booking.project_id,
            old=booking.id,
            request=replace(request, reference=change.id, amount=amount),
            now=self.now,
        )

    def exchange(self, request: HoldRequest, change: BookingChange | None = None) -> None:
        """Exchanges the open holds of the booking, and those of the change."""
        booking, delta = self.booking, change.id if change else None
        hold_exchange(
            tenant_id=booking.tenant_id,
            project_id=booking.project_id,
            request=request,
            delta=delta,
            now=self.now,
        )

    def replace_open(self) -> None:
        """Closes an open change, which this one replaces."""
        change = change_open(self.booking)
        if change is not None:
            change_close(change, BookingChange.State.REPLACED, self.now)
            if self.booking.extension_until is not None:
                booking_change(self.booking, now=self.now, extension_until=None)

    def store(
        self,
        terms: Terms,
        strength: Strength,
        change: BookingChange | None = None,
        **facts: object,
    ) -> None:
        """Writes the terms, and the change as one that was made."""
        booking = self.booking
        change = change or self.row(terms, strength)
        change.state, change.decided_at = BookingChange.State.CHANGED, self.now
        change.calendar_due = strength is Strength.WEAKER
        change.save(force_insert=True)
        facts |= series_facts(booking, change)
        terms_apply(booking, terms, self._event("changed", change), self.now, **facts)
        self._audit("booking.change", change)

    def _event(self, kind: str, change: BookingChange) -> Event:
        return change_event(kind, change, self.actor)

    def _audit(self, action: str, change: BookingChange) -> None:
        booking = self.booking
        detail = {"label": booking.label, "differences": change.differences}
        actor_record(self.actor, action, ("booking", booking.id), self.now, detail)


def labels_change(
    actor: Actor,
    booking: Booking,
    labels: Mapping[str, str] | None,
    external_ref: str | None,
    now: datetime,
) -> None:
    """Replaces the labels and the reference of a locked booking; None keeps them."""
    wanted: dict[str, object] = {}
    if labels is not None and dict(labels) != booking.labels:
        wanted["labels"] = dict(labels)
    if external_ref is not None and external_ref != booking.external_ref:
        wanted["external_ref"] = external_ref
    if not wanted:
        return
    open_changes_follow(booking, booking.name)
    target, terms = target_of(booking), terms_of(booking)
    writer = ChangeWriter(actor, booking, target, target, now)
    change = writer.row(terms, Strength.WORD)
    change.differences = {name: [getattr(booking, name), new] for name, new in wanted.items()}
    # The terms do not contain labels, so this change can't be undone.
    change.restores = {}
    writer.store(terms, Strength.WORD, change, **wanted)


def open_changes_follow(booking: Booking, name: str) -> None:
    """Lets an open change stay valid for the next revision, and gives it the name."""
    open_changes = BookingChange.objects.filter(booking=booking, state__in=BookingChange.OPEN)
    for change in open_changes.select_for_update():
        change.base_revision = F("base_revision") + 1
        change.target["name"] = name
        change.save(update_fields=["base_revision", "target"])
