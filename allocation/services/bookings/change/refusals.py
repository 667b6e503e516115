"""Refusals of changes."""

from datetime import datetime
from decimal import Decimal

from allocation.models import Booking
from allocation.rules.ask.words.times import duration_words
from allocation.rules.states import TERMINAL
from allocation.services.record.open_pauses import pause_open
from allocation.services.record.refusals import refusal
from allocation.services.record.terms import Terms
from allocation.words.refusals import refusal_text
from billing.rules import money_text
from tenants.models import Tier
from tenants.platform.errors import Refused


def revision_moved(booking: Booking) -> Refused:
    """The refusal for a change of a request that somebody has changed meanwhile."""
    sentence = refusal_text("revision_moved", label=booking.label)
    numbers = {"revision": booking.revision}
    return Refused("revision_moved", sentence, param="If-Match", numbers=numbers)


def change_awaited(booking: Booking) -> Refused:
    """The refusal for a stronger change of a booking that others leave for."""
    sentence = refusal_text("change_awaited", label=booking.label)
    return refusal("change_awaited", sentence, "conflict", "request")


def while_paused(booking: Booking) -> Refused:
    """The refusal for a change of a booking that is paused or about to be."""
    state = booking.get_state_display().lower()
    sentence = refusal_text("extension_while_paused", label=booking.label, state=state)
    return refusal("extension_while_paused", sentence, "conflict", "request")


def tier_begun(booking: Booking, tier: str, now: datetime) -> Refused:
    """The refusal for another tier of a booking that has begun, with what works instead."""
    pause, rest = pause_open(booking), booking.duration_seconds
    if pause is not None and pause.remaining_seconds is not None:
        rest = pause.remaining_seconds
    elif booking.planned_ends is not None:
        rest = max(0, int((booking.planned_ends - now).total_seconds()))
    named = Tier.objects.filter(slug=tier).values_list("name", flat=True).first()
    sentence = refusal_text(
        "tier_begun",
        label=booking.label,
        tier=booking.tier.name,
        new=named or tier,
        rest=duration_words(rest // 60 * 60),
    )
    return Refused(
        "tier_begun",
        sentence,
        param="tier",
        owner="others",
        alternatives=[{"tier": tier, "duration": rest}],
    )


def not_changeable(booking: Booking) -> Refused:
    """The refusal for a change of a booking that is over or about to be."""
    state = booking.get_state_display().lower()
    if booking.state in TERMINAL:
        return Refused("booking_over", refusal_text("booking_over", label=booking.label, state=state))
    sentence = refusal_text("not_changeable", label=booking.label, state=state)
    return Refused("not_changeable", sentence)


def too_dear(terms: Terms, most: Decimal) -> Refused:
    """The refusal for a change that costs more than the asker accepts."""
    costs, limit = (money_text(each, terms.currency) for each in (terms.hold_amount, most))
    sentence = refusal_text("cost_above", costs=costs, limit=limit)
    numbers = {"costs": str(terms.hold_amount)}
    return Refused("cost_above", sentence, "budget", "accept.cost_at_most", numbers=numbers)
