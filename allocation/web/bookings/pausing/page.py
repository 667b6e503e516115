"""The pauses of a page: notice, choices, receipts and short notices."""

from typing import Any

from allocation.models import Booking, Pause
from allocation.queries.bookings.pauses import higher_tiers, nodes_unreachable, notices_of, price_in
from allocation.queries.decisions.seen import pauses_seen
from allocation.rules.states import State
from allocation.services.runs.pause_choices import more_time_refusal
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.pausing.notice import (
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


def pause_context(booking: Booking, ctx: PageContext, *, may_change: bool) -> dict[str, Any]:
    """Returns the notice of a pausing booking and the receipts of its pauses."""
    pauses = list(ctx.pauses)
    found: dict[str, Any] = {}
    if booking.state == State.PAUSING and pauses and pauses[-1].is_open:
        pause = pauses.pop()
        found["notice"] = notice_of(booking, pause, ctx, nodes_unreachable(booking, ctx.now))
        found["ways"] = _ways(booking, pause, ctx) if may_change else None
    found["receipts"] = [receipt_of(booking, pause, ctx) for pause in reversed(pauses)]
    return found


def notices_context(actor: Actor, ctx: PageContext) -> list[Notice]:
    """Returns the notices of the reader's own pausing bookings."""
    return [notice_of(pause.booking, pause, ctx) for pause in pauses_seen(actor, notices_of(actor))]


def _ways(booking: Booking, pause: Pause, ctx: PageContext) -> PauseChoices:
    tier = booking.tier
    step = length_words(tier.more_time_seconds)
    return PauseChoices(
        refused=more_time_refusal(tier, pause),
        more_words=f"{step} more time ({tier.more_times - pause.more_times_used} left)",
        offers=tuple(_offers(booking, pause, ctx)),
    )


def _offers(booking: Booking, pause: Pause, ctx: PageContext) -> list[BetterTierLink]:
    tiers = higher_tiers(booking)
    safe = next((tier for tier in tiers if not tier.pausable), None)
    offers = [unpausable_link(booking, safe, ctx)] if safe else []
    if tiers:
        left = int((pause.ends_before - pause.deadline).total_seconds())
        price = price_in(booking, tiers[0], left, ctx.now)
        if price is not None:
            words = money_text(price, booking.currency)
            offers.append(higher_tier_link(booking, tiers[0], words, left, ctx))
    return offers
