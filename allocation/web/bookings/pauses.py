"""What pages show of pauses: the notice with its choices, receipts, and short notices in lists."""

from typing import Any

from allocation.models import Booking, Pause
from allocation.queries.bookings.pauses import higher_tiers, nodes_silent, notices_of, price_in
from allocation.rules.states import State
from allocation.services.runs.pause_choices import more_time_refusal
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.pause_notice import (
    BetterTierLink,
    Notice,
    PauseChoices,
    higher_tier_link,
    notice_of,
    receipt_of,
    unpausable_link,
)
from allocation.web.parts.times import length_words
from billing.rules import money_text
from tenants.access import Actor


def pause_context(booking: Booking, scene: PageContext, *, may_change: bool) -> dict[str, Any]:
    """The notice of a booking that is to be paused, and the receipts of all its pauses."""
    pauses = list(scene.pauses)
    found: dict[str, Any] = {}
    if booking.state == State.PAUSING and pauses and pauses[-1].is_open:
        pause = pauses.pop()
        found["notice"] = notice_of(booking, pause, scene, nodes_silent(booking, scene.now))
        found["ways"] = _ways(booking, pause, scene) if may_change else None
    found["receipts"] = [receipt_of(booking, pause, scene) for pause in reversed(pauses)]
    return found


def notices_context(actor: Actor, scene: PageContext) -> list[Notice]:
    """The reader's own pauses that count down."""
    return [notice_of(pause.booking, pause, scene) for pause in notices_of(actor)]


def _ways(booking: Booking, pause: Pause, scene: PageContext) -> PauseChoices:
    tier = booking.tier
    step = length_words(tier.more_time_seconds)
    return PauseChoices(
        refused=more_time_refusal(tier, pause),
        more_words=f"{step} more time, {tier.more_times - pause.more_times_used} left",
        offers=tuple(_offers(booking, pause, scene)),
    )


def _offers(booking: Booking, pause: Pause, scene: PageContext) -> list[BetterTierLink]:
    tiers = higher_tiers(booking)
    safe = next((tier for tier in tiers if not tier.pausable), None)
    offers = [unpausable_link(booking, safe, scene)] if safe else []
    if tiers:
        left = int((pause.ends_before - pause.deadline).total_seconds())
        price = price_in(booking, tiers[0], left, scene.now)
        if price is not None:
            words = money_text(price, booking.currency)
            offers.append(higher_tier_link(booking, tiers[0], words, left, scene))
    return offers
