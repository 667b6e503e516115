"""Changes of labels and references, which take effect at once and keep an open change."""

from collections.abc import Mapping
from datetime import datetime

from django.db.models import F

from allocation.models import Booking, BookingChange
from allocation.rules.changes import Strength
from allocation.services.bookings.change.writer import ChangeWriter
from allocation.services.bookings.checks.terms import target_of
from allocation.services.record.terms import terms_of
from tenants.access import Actor


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
