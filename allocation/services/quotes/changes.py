"""Quotes of changes: price, start and place in the queue, before anything is changed."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db import transaction

from allocation.models import Booking, BookingChange, PolicyVersion
from allocation.rules.ask import AskDocument
from allocation.rules.changes import Strength
from allocation.services.bookings.bookings import BookingRequest
from allocation.services.bookings.changes import Patch, booking_patch
from allocation.services.policy.policies import policy_of
from allocation.services.quotes.quote_calendar import published_snapshot
from allocation.services.quotes.quote_options import QuoteOption
from allocation.services.quotes.quotes import quote_make
from allocation.services.record.terms import Terms, terms_of
from allocation.services.snapshot.snapshot import seconds
from allocation.solver import Availability
from allocation.words.reasons import sentence
from tenants.access import Actor


@dataclass(frozen=True, slots=True)
class ChangeQuote:
    """What a change would do. `option` is the start that a stronger one would get now; without one
    `blocking` says why not. A change that is no `stronger` one takes effect at once."""

    strength: Strength
    before: Terms
    after: Terms
    until: datetime | None = None
    option: QuoteOption | None = None
    blocking: str = ""

    @property
    def difference(self) -> Decimal:
        """What the booking would cost more, or less, at most."""
        return self.after.hold_amount - self.before.hold_amount


def change_quote(
    *, actor: Actor, booking: Booking, patch: Patch, revision: int | None, now: datetime
) -> ChangeQuote:
    """Returns what the change would do; nothing is written. Run inside the tenant's transaction.

    Raises:
        Refused: as `booking_patch`.
    """
    before = terms_of(booking)
    with transaction.atomic():
        booking_patch(actor=actor, booking=booking, patch=patch, revision=revision, now=now)
        change = (
            BookingChange.objects.filter(booking=booking, asked_at=now)
            .exclude(state=BookingChange.State.REPLACED)
            .order_by("-base_revision")
            .first()
        )
        transaction.set_rollback(True)
    if change is None:
        return ChangeQuote(Strength.WORD, before, before)
    strength, after = Strength(change.strength), Terms.from_json(change.target)
    if strength is not Strength.STRONGER:
        return ChangeQuote(strength, before, after)
    if change.until is not None:
        blocking = _why_not_longer(booking, change.until, now)
        return ChangeQuote(strength, before, after, change.until, None, blocking)
    option, blocking = _start_of(actor, booking, after, now)
    return ChangeQuote(strength, before, after, None, option, blocking)


def _start_of(
    actor: Actor, booking: Booking, after: Terms, now: datetime
) -> tuple[QuoteOption | None, str]:
    """The start as asked, or why there is none."""
    request = BookingRequest(
        project=booking.project.slug,
        tier=after.tier,
        ask=AskDocument.from_json(after.ask),
        name=after.name,
        zone=booking.zone,
        campaign=booking.campaign.slug if booking.campaign else "",
    )
    quote = quote_make(actor=actor, request=request, now=now, without=booking)
    found = (o for o in quote.options if (o.kind, o.tier) == ("as_asked", after.tier))
    return next(found, None), quote.blocking or ""


def _why_not_longer(booking: Booking, until: datetime, now: datetime) -> str:
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    site = Availability(published_snapshot(now, policy), policy)
    why = site.why_not_longer(str(booking.id), seconds(until))
    return sentence(why) if why else ""
