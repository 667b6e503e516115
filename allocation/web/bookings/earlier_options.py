"""The start range of a waiting booking and the options that start earlier."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from django.http import HttpRequest

from allocation.models import Booking
from allocation.queries.bookings.outcomes import booking_start_range
from allocation.rules.states import State
from allocation.services.bookings.price_lock import price_lock_read
from allocation.services.quotes.earlier import Change, earlier_options, earlier_take
from allocation.services.quotes.quote_options import REFERENCE_SPEED, QuoteOption
from allocation.web.bookings.summary import shape_words
from allocation.web.parts.planned_start import start_basis
from allocation.web.parts.times import moment_words
from allocation.words.refusals import refusal_text
from billing.rules import money_text
from tenants.access import Actor
from tenants.models import Tier
from tenants.platform.errors import invalid


@dataclass(frozen=True, slots=True)
class ChangeCard:
    """One earlier option, as a form with one button."""

    when: str
    what: str
    more: str
    price: str
    tier: str
    request: str
    starts: int


@dataclass(frozen=True, slots=True)
class Outlook:
    """The basis of a planned start's range, and the earlier options."""

    basis: str
    cards: tuple[ChangeCard, ...]
    lock: str = ""


def outlook_of(
    actor: Actor, booking: Booking, labels: Mapping[str, str], zone: tzinfo, now: datetime
) -> Outlook | None:
    """Returns the basis of the range and the earlier options; None without a planned start."""
    if booking.state not in (State.QUEUED, State.SCHEDULED) or booking.planned_starts is None:
        return None
    options, lock = earlier_options(actor=actor, booking=booking, now=now)
    tiers = dict(Tier.objects.values_list("slug", "name"))
    cards = tuple(_card(option, booking, tiers, labels, zone, now) for option in options)
    return Outlook(start_basis(booking_start_range(booking, now), booking.planned_strength), cards, lock)


def earlier_ask(request: HttpRequest, actor: Actor, booking: Booking, now: datetime) -> Booking:
    """Asks for the change to the chosen card. Returns the booking.

    Raises:
        Refused.
    """
    starts = request.POST.get("starts", "")
    if not (starts.isascii() and starts.isdigit() and len(starts) < 12):
        raise invalid("not_a_time", refusal_text("option_choice"), "starts")
    shown = request.POST.get("quote", "")
    change = Change(
        request.POST.get("tier", ""),
        request.POST.get("request", ""),
        datetime.fromtimestamp(int(starts), UTC),
        price_lock_read(shown, now) if shown else None,
    )
    return earlier_take(actor=actor, booking=booking, change=change, now=now)


WITHOUT = {"unpinned": "without the pin", "anywhere": "on nodes of any zone and storage"}


def _card(
    option: QuoteOption,
    booking: Booking,
    tiers: Mapping[str, str],
    labels: Mapping[str, str],
    zone: tzinfo,
    now: datetime,
) -> ChangeCard:
    label = labels.get(option.gpu_class, option.gpu_class)
    parts = []
    if option.tier != booking.tier_id:
        parts.append(f"in {tiers.get(option.tier, option.tier)}")
    if option.speed is not None and option.speed != REFERENCE_SPEED:
        parts.append(f"about {option.speed / 1000:.2g} times as fast")
    elif option.gpu_class not in booking.ask["classes"]:
        parts.append("speed not known")
    if option.kind in ("split", "without_nvlink"):
        parts.append("less closely connected GPUs")
    if option.pauses:
        parts.append(
            f"{option.pauses} running booking{'s' * (option.pauses != 1)} of your organisation will be paused"
        )
    parts += [WITHOUT[option.kind]] if option.kind in WITHOUT else []
    if option.pause_basis:
        parts.append(f"{risk_words(option.pause_risk)} ({option.pause_basis})")
    return ChangeCard(
        when=moment_words(option.starts, zone, now),
        what=shape_words(option.count, label, option.profile),
        more="; ".join(parts),
        price=money_text(option.price, option.currency),
        tier=option.tier,
        request=option.request,
        starts=int(option.starts.timestamp()),
    )


def risk_words(thousandths: int | None) -> str:
    """`pause risk about 5 %`; `pause risk not known` without a number."""
    if thousandths is None:
        return "pause risk not known"
    return f"pause risk {'about ' if thousandths >= 10 else ''}{percent_words(thousandths)}"


def percent_words(thousandths: int | None) -> str:
    """`5 %`; below one percent `under 1 %`; `unknown` without a number."""
    if thousandths is None:
        return "unknown"
    return f"{round(thousandths / 10)} %" if thousandths >= 10 else "under 1 %"
