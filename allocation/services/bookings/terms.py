"""The terms that a change gives a booking, with their price."""

from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from allocation.models import Booking
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument
from allocation.rules.changes import Target
from allocation.services.bookings.admission import admission_check
from allocation.services.bookings.offers import offer_price
from allocation.services.record.costs import granted_seconds, price_lines_of
from allocation.services.record.terms import Terms, terms_of
from allocation.services.record.workloads import durations_of
from billing.price_lines import PriceLine, Size, line_cost, lines_after, lines_data
from billing.queries import price_of
from billing.services import HoldRequest


def target_of(booking: Booking) -> Target:
    """What a booking asks for at present."""
    ask = AskDocument.from_json(booking.ask)
    if ask.workload is None and booking.duration_seconds != ask.duration:
        ask = replace(ask, duration=booking.duration_seconds)
    return Target(ask, booking.tier_id, booking.name)


def weaker_terms(booking: Booking, target: Target, request_text: str) -> Terms:
    """The terms of a weaker change: what is left keeps its prices."""
    old, ask = terms_of(booking), target.ask
    lengths = durations_of(ask)
    length = lengths.get(booking.planned_class) or min(
        (lengths.get(name, ask.duration) for name in ask.classes), default=ask.duration
    )
    before = old.duration_seconds
    changed = replace(
        old,
        name=target.name,
        ask=ask.to_json(),
        request_text=request_text,
        not_before=max(old.not_before, ask.not_before or old.not_before),
        deadline=ask.deadline,
        duration_seconds=length,
        class_durations=[
            [name, lengths.get(name, ask.duration)]
            for name, _ in old.class_durations
            if name in ask.classes
        ],
    )
    sizes = Size(before, old.ask["count"]), Size(length, ask.count)
    lines = lines_after(price_lines_of(booking), *sizes, Decimal(0))
    # The hold covers the slowest class, as it did before.
    held = line_cost(lines, int(changed.longest().total_seconds()))
    return _priced(changed, lines, min(old.hold_amount, booking.settled + held))


def stronger_terms(booking: Booking, target: Target, request_text: str, now: datetime) -> Terms:
    """The terms of a change that the next cycle decides. What is added has the prices of now, and
    so has all of it on other classes or in another tier.

    Raises:
        Refused: by any rule of a request.
    """
    admission = admission_check(
        project=booking.project, tier_slug=target.tier, ask=target.ask, now=now
    )
    ask, offer = admission.ask, offer_price(admission, now)
    changed = Terms(
        name=target.name,
        ask=ask.to_json(),
        tier=target.tier,
        request_text=request_text,
        starts=ask.starts,
        not_before=admission.not_before,
        deadline=ask.deadline,
        duration_seconds=min(map(admission.seconds_on, admission.units)),
        class_durations=[list(each) for each in offer.lengths],
        currency=offer.price.currency,
        price_version=offer.price.version,
        price_per_hour=offer.price.per_gpu_hour,
        price_lines=[],
        hold_amount=booking.settled + offer.most,
    )
    old = AskDocument.from_json(booking.ask)
    is_same_kind = (old.classes, old.shape, old.workload, booking.tier_id) == (
        ask.classes, ask.shape, ask.workload, target.tier,
    )  # fmt: skip
    if not is_same_kind or ask.workload is not None:
        return changed
    dearest = max(
        admission.units,
        key=lambda name: (
            price_of(gpu_class=name, tier=target.tier, now=now).per_gpu_hour * admission.units[name]
        ),
    )
    price = price_of(gpu_class=dearest, tier=target.tier, now=now)
    was = Size(booking.duration_seconds, ask_units(old)[dearest])
    will = Size(changed.duration_seconds, admission.units[dearest])
    lines = lines_after(price_lines_of(booking), was, will, price.per_gpu_hour)
    version = booking.price_version if lines == price_lines_of(booking) else price.version
    held = booking.settled + line_cost(lines, changed.duration_seconds)
    return _priced(replace(changed, price_version=version), lines, held)


def longer_terms(booking: Booking, seconds: int, now: datetime) -> Terms:
    """The terms of a booking with GPUs that ends so many seconds later, at the prices of now."""
    old, granted = terms_of(booking), granted_seconds(booking)
    price = price_of(gpu_class=booking.planned_class, tier=booking.tier_id, now=now)
    units = ask_units(AskDocument.from_json(booking.ask))[booking.planned_class]
    was, will = Size(granted, units), Size(granted + seconds, units)
    before = _as_long_as(price_lines_of(booking), granted)
    lines = lines_after(before, was, will, price.per_gpu_hour)
    extra = line_cost(lines, granted + seconds) - line_cost(before, granted)
    return _priced(_with_length(old, granted + seconds), lines, old.hold_amount + extra)


def shorter_terms(booking: Booking, seconds: int) -> Terms:
    """The terms of a booking with GPUs that ends so many seconds earlier."""
    old, granted = terms_of(booking), granted_seconds(booking)
    lines = _as_long_as(price_lines_of(booking), granted)
    less = line_cost(lines, granted) - line_cost(lines, granted - seconds)
    held = max(booking.settled, old.hold_amount - less)
    return _priced(_with_length(old, granted - seconds), lines, held)


def hold_of(booking: Booking, terms: Terms) -> HoldRequest:
    """What the terms need to be held for: in their window, or where the start is planned."""
    amount = terms.hold_amount - booking.settled
    starts, length = terms.starts or terms.not_before, terms.longest()
    people = booking.owner_id, booking.campaign_id
    return HoldRequest(booking.id, amount, starts, starts + length, *people)


def _with_length(terms: Terms, seconds: int) -> Terms:
    ask = dict(terms.ask)
    if ask.get("workload") is None:
        ask["duration"] = seconds
    return replace(terms, ask=ask, duration_seconds=seconds)


def _as_long_as(lines: tuple[PriceLine, ...], seconds: int) -> tuple[PriceLine, ...]:
    """The lines of a booking that was given this length."""
    earlier = sum(line.seconds for line in lines[:-1])
    return (*lines[:-1], replace(lines[-1], seconds=max(0, seconds - earlier)))


def _priced(terms: Terms, lines: tuple[PriceLine, ...], held: Decimal) -> Terms:
    price = lines[0].per_hour
    return replace(terms, price_per_hour=price, price_lines=lines_data(lines), hold_amount=held)
