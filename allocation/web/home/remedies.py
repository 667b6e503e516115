"""What makes the money of a project last: proposals that act with one click."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from allocation.models import Booking
from allocation.queries.bookings.money.forecasts import BudgetHistory
from allocation.rules.states import State
from allocation.web.parts.times import moment_words
from billing.price_books import CurrentPrice, current_prices
from billing.rules import money_text
from tenants.access import Actor
from tenants.models import GpuClass, Project

# The state of bookings that wait or are planned: these can still get other terms.
CHANGEABLE = (State.REQUESTED, State.QUEUED, State.SCHEDULED)
LEAST_HALF = 1800
NIGHT_HOURS = 48


@dataclass(frozen=True, slots=True)
class Remedy:
    """A proposal: what to do, what it saves, and the page that does it."""

    title: str
    sentence: str
    href: str


def remedies_of(project: Project, money: BudgetHistory, actor: Actor, now: datetime) -> tuple[Remedy, ...]:
    """The proposals for the most expensive booking that has not begun, and a request for money.

    Each opens a page that shows price, place and risk before anything changes.
    """
    if money.forecast is None or money.forecast.runs_out is None:
        return ()
    currency = money.effect.currency
    over = max(Decimal(1), money.forecast.spend - money.effect.amount)
    rows = Booking.objects.filter(project=project, state__in=CHANGEABLE, series=None, array=None)
    if not actor.may_lead(project.id):
        rows = rows.filter(owner_id=actor.user_id)
    most_expensive = rows.select_related("tier").order_by("-hold_amount", "number").first()
    found = list(_of_booking(most_expensive, actor, currency, now)) if most_expensive else []
    query = {
        "kind": "budget",
        "project": project.slug,
        "budget": str(money.effect.budget_id),
        "amount": f"{over:.2f}",
    }
    more = Remedy(
        "Ask for more",
        f"{money_text(over, currency)} are missing by the forecast.",
        f"/t/{actor.tenant_slug}/overrides?{urlencode(query)}",
    )
    return (*found, more)


def _of_booking(booking: Booking, actor: Actor, currency: str, now: datetime) -> Iterator[Remedy]:
    page = f"/t/{actor.tenant_slug}/bookings/{booking.label}/change"
    half = booking.duration_seconds // 2 // 60 * 60
    if half >= LEAST_HALF:
        saved = money_text(booking.price_per_hour * half / 3600, currency)
        yield Remedy(f"Make {booking.label} half as long", f"It saves {saved}.", f"{page}?grow=-{half}")
    prices = current_prices(now)
    yield from _cheaper(booking, page, prices, currency)
    yield from _at_night(booking, page, prices, actor, now)


def _cheaper(
    booking: Booking,
    page: str,
    prices: Mapping[tuple[str, str], CurrentPrice],
    currency: str,
) -> Iterator[Remedy]:
    """The cheapest other class in the tier of the booking."""
    classes = [str(each) for each in booking.ask.get("classes", ())]
    own = [prices[key] for each in classes if (key := (each, booking.tier_id)) in prices]
    if not own:
        return
    present = min(price.per_gpu_hour for price in own)
    labels = dict(GpuClass.objects.values_list("slug", "label"))
    others = sorted(
        (price.per_gpu_hour, name)
        for (name, tier), price in prices.items()
        if tier == booking.tier_id and name not in classes and name in labels
    )
    if others and others[0][0] < present:
        price, name = others[0]
        hourly = money_text(present - price, currency)
        yield Remedy(
            f"Move {booking.label} to {labels[name]}",
            f"A GPU-hour costs {hourly} less; the run may take longer.",
            f"{page}?{urlencode({'classes': name})}",
        )


def _at_night(
    booking: Booking,
    page: str,
    prices: Mapping[tuple[str, str], CurrentPrice],
    actor: Actor,
    now: datetime,
) -> Iterator[Remedy]:
    """The first hour outside of peak hours, if the booking would start in them."""
    price = prices.get((booking.planned_class, booking.tier_id))
    begins = booking.planned_starts or booking.starts
    if price is None or begins is None or price.peak_per_gpu_hour <= price.per_gpu_hour:
        return
    hour = begins.replace(minute=0, second=0, microsecond=0)
    if not _is_peak(price, hour):
        return
    for number in range(1, NIGHT_HOURS):
        later = hour + timedelta(hours=number)
        if later > now and not _is_peak(price, later):
            zone = ZoneInfo(actor.time_zone)
            local = later.astimezone(zone)
            yield Remedy(
                f"Start {booking.label} {moment_words(later, zone, now)}",
                "Peak prices are over then.",
                f"{page}?{urlencode({'starts': f'{local:%Y-%m-%dT%H:%M}'})}",
            )
            return


def _is_peak(price: CurrentPrice, hour: datetime) -> bool:
    return price.hours.spell(hour, hour + timedelta(seconds=1)).peak > 0
