"""Pauses as pages show them: the pauses of one booking, and a reader's open notices."""

from datetime import datetime
from decimal import Decimal

from allocation.models import Allocation, Booking, Node, Pause
from allocation.queries.fleet.catalogue import ask_units
from allocation.queries.fleet.fleet import UNREACHABLE_AFTER
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from billing.price_books import current_prices
from billing.rules import cost_of
from tenants.access import Actor
from tenants.models import Tier


def pauses_of(booking: Booking) -> list[Pause]:
    """All pauses of a booking, oldest first."""
    return list(Pause.objects.filter(tenant_id=booking.tenant_id, booking=booking))


def notices_of(actor: Actor) -> list[Pause]:
    """The open notices for the reader's own bookings, most urgent first."""
    found = Pause.objects.filter(
        tenant_id=actor.tenant_id,
        booking__owner_id=actor.user_id,
        booking__state=State.PAUSING,
        resumed_at=None,
        ended_at=None,
    )
    return list(found.select_related("booking").order_by("deadline", "id"))


def nodes_unreachable(booking: Booking, now: datetime) -> list[str]:
    """Names of the booking's nodes without a recent heartbeat."""
    live = Allocation.objects.filter(booking=booking, state__in=Allocation.LIVE)
    nodes = Node.objects.filter(gpus__in=live.values("gpu_id"), last_seen__lt=now - UNREACHABLE_AFTER)
    return list(nodes.order_by("name").values_list("name", flat=True).distinct())


def higher_tiers(booking: Booking) -> list[Tier]:
    """Tiers with a higher priority than the booking's, lowest first."""
    tiers = Tier.objects.filter(priority__gt=booking.tier.priority)
    return list(tiers.order_by("priority", "slug"))


def price_in(booking: Booking, tier: Tier, seconds: int, now: datetime) -> Decimal | None:
    """The current price of `seconds` of the booking in another tier. None without a price."""
    prices, ask = current_prices(now), AskDocument.from_json(booking.ask)
    units = ask_units(ask)
    names = list(units) if ask.groups else [booking.planned_class]
    total = Decimal(0)
    for name in names:
        price, part = prices.get((name, tier.slug)), ask.on(name)
        if price is None or name not in units:
            return None
        price = price.of(part.profile, part.count, units[name])
        total += cost_of(per_gpu_hour=price.per_gpu_hour, units=units[name], seconds=seconds)
    return total
