"""The terms that a change gives a booking, with their price."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from allocation.models import Booking
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument
from allocation.rules.changes import Target
from allocation.services.bookings.checks.admission import Admission, Asker
from allocation.services.bookings.checks.admission_check import admission_check
from allocation.services.bookings.checks.offers import (
    most_of,
    offer_price,
    peak_facts,
    priced_from,
    rate_for,
)
from allocation.services.bookings.checks.persons import open_refusals
from allocation.services.record.costs import (
    granted_seconds,
    price_lines_of,
    rate_of,
    unpaid_setup,
)
from allocation.services.record.terms import Terms, terms_of
from allocation.services.record.workloads import durations_of
from billing.price_books import CurrentPrice, PriceShelf
from billing.price_lines import PriceLine, Size, line_cost, lines_after, lines_data
from billing.rates import Rate, peak_hours
from billing.rules import ledger_amount
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
    lengths = durations_of(ask, booking.project_id)
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
            [name, lengths.get(name, ask.duration)] for name, _ in old.class_durations if name in ask.classes
        ],
    )
    sizes = Size(before, old.ask["count"]), Size(length, ask.count)
    lines = lines_after(price_lines_of(booking), *sizes, Decimal(0))
    surcharge = ledger_amount(old.peak_surcharge * ask.count / old.ask["count"])
    changed = replace(changed, peak_surcharge=surcharge)
    # The hold covers the slowest class, as it did before.
    longest = int(changed.longest().total_seconds())
    held = line_cost(lines, longest) + _peak_cost(changed, longest)
    held += booking.settled + unpaid_setup(booking)
    return _priced(changed, lines, min(old.hold_amount, held))


def rest_terms(booking: Booking, target: Target, rest: int, until: datetime) -> Terms:
    """The terms of a paused fixed window that ends at `until`, with `rest` seconds left of it."""
    old, rate, length = terms_of(booking), rate_of(booking), target.ask.duration
    held = booking.settled + line_cost(price_lines_of(booking), rest)
    held += rate.surcharge(rate.between(until - timedelta(seconds=rest), until))
    return replace(
        old,
        name=target.name,
        ask=target.ask.to_json(),
        duration_seconds=length,
        class_durations=[[name, length] for name, _ in old.class_durations],
        hold_amount=min(old.hold_amount, held),
    )


def stronger_terms(
    booking: Booking,
    target: Target,
    request_text: str,
    now: datetime,
    priced_at: datetime | None = None,
    zone: str = "",
) -> Terms:
    """The terms of a change that the next cycle decides. What is added has the prices of now, or
    of the quote that was shown, and so has all of it on other classes or in another tier. A refusal
    says its times in `zone`.

    Raises:
        Refused: by any rule of a request.
    """
    asker = Asker(booking.owner_id, booking, zone=zone)
    admission = admission_check(
        project=booking.project, tier_slug=target.tier, ask=target.ask, now=now, asker=asker
    )
    _open_check(booking, target, admission)
    shelf = PriceShelf.read(priced_at or now)
    ask, offer = admission.ask, offer_price(admission, shelf)
    is_set_up = booking.setup_paid > 0
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
        price_per_hour=offer.rate.plain,
        price_lines=[],
        **peak_facts(offer.rate),
        hold_amount=booking.settled + offer.most - (offer.price.setup if is_set_up else 0),
        setup_fee=booking.setup_fee if is_set_up else offer.price.setup,
        notice_seconds=admission.tier.notice_seconds,
        late_share=admission.tier.late_share,
    )
    old = AskDocument.from_json(booking.ask)
    before = (old.classes, old.shape, old.workload, booking.tier_id)
    is_same_kind = before == (ask.classes, ask.shape, ask.workload, target.tier)
    if not is_same_kind or ask.workload is not None or ask.groups or old.groups:
        return changed
    return _with_old_prices(booking, changed, admission, shelf, priced_from(ask, priced_at or now))


def _open_check(booking: Booking, target: Target, admission: Admission) -> None:
    """Raises Refused if the tier that it moves to allows no further open booking."""
    if target.tier == booking.tier_id:
        return
    moved = Booking(
        id=booking.id,
        tenant_id=booking.tenant_id,
        owner_id=booking.owner_id,
        tier=admission.tier,
        ask=admission.ask.to_json(),
    )
    for refused in open_refusals({booking.id: moved}, {booking.id: admission.use}).values():
        raise refused


def _with_old_prices(
    booking: Booking, changed: Terms, admission: Admission, shelf: PriceShelf, day: datetime
) -> Terms:
    """Returns the terms with the booked prices for what it has, and those of `day` for more."""
    ask, prices = admission.ask, shelf.on(day)
    old = AskDocument.from_json(booking.ask)
    tier = booking.tier_id
    most_expensive = max(
        admission.units,
        key=lambda name: rate_for(prices[name, tier], ask, admission.units[name]).plain,
    )
    price = prices[most_expensive, tier].of(ask.profile, ask.count, admission.units[most_expensive])
    was = Size(booking.duration_seconds, ask_units(old)[most_expensive])
    will = Size(changed.duration_seconds, admission.units[most_expensive])
    lines = lines_after(price_lines_of(booking), was, will, price.per_gpu_hour)
    version = booking.price_version if lines == price_lines_of(booking) else price.version
    changed = replace(changed, price_version=version, **_peaks_after(booking, was, will, price))
    length = changed.duration_seconds
    held = booking.settled + line_cost(lines, length) + _peak_cost(changed, length)
    # All in the same tier: the fee that it was booked with.
    changed = replace(changed, setup_fee=booking.setup_fee)
    return _priced(changed, lines, held + unpaid_setup(booking))


def _peaks_after(booking: Booking, was: Size, will: Size, price: CurrentPrice) -> dict[str, Any]:
    """The surcharge of a booking after a change of its size: the old part keeps its own, what is
    added has that of now. All of it has the peak hours that it was booked with, if there are any.
    """
    surcharge = ledger_amount(booking.peak_surcharge * min(was.units, will.units) / was.units)
    added = price.rate(max(0, will.units - was.units))
    hours = rate_of(booking).hours if booking.peak_weekly else added.hours
    return peak_facts(Rate(Decimal(0), surcharge + added.peak - added.plain, hours))


def _peak_cost(terms: Terms, seconds: int) -> Decimal:
    """The most that peak hours can add to the cost of a length."""
    rate = Rate(Decimal(0), terms.peak_surcharge, peak_hours(terms.peak_zone or "UTC", terms.peak_weekly))
    return most_of(rate, terms.starts, seconds)


def longer_terms(booking: Booking, seconds: int, now: datetime) -> Terms:
    """The terms of a booking with GPUs that ends so many seconds later, at the prices of now. The
    surcharge of peak hours is the one that it was booked with."""
    old, granted = terms_of(booking), granted_seconds(booking)
    ask, shelf = AskDocument.from_json(booking.ask), PriceShelf.read(now)
    names = ask.all_classes if ask.groups else (booking.planned_class,)
    prices = {name: shelf.price(name, booking.tier_id, now) for name in names}
    units = ask_units(ask)
    total = sum(units[name] for name in names)
    costs = (
        price.of(ask.on(name).profile, ask.on(name).count, units[name]).per_gpu_hour * units[name]
        for name, price in prices.items()
    )
    # The price of one GPU-hour: for a mixed booking, the mean of its groups.
    price = sum(costs, Decimal(0)) / total
    was, will = Size(granted, total), Size(granted + seconds, total)
    before = _as_long_as(price_lines_of(booking), granted)
    lines = lines_after(before, was, will, price)
    extra = line_cost(lines, granted + seconds) - line_cost(before, granted)
    extra += _surcharge_at_end(booking, 0, seconds)
    return _priced(_with_length(old, granted + seconds), lines, old.hold_amount + extra)


def shorter_terms(booking: Booking, seconds: int) -> Terms:
    """The terms of a booking with GPUs that ends so many seconds earlier."""
    old, granted = terms_of(booking), granted_seconds(booking)
    lines = _as_long_as(price_lines_of(booking), granted)
    less = line_cost(lines, granted) - line_cost(lines, granted - seconds)
    less += _surcharge_at_end(booking, -seconds, 0)
    held = max(booking.settled, old.hold_amount - less)
    return _priced(_with_length(old, granted - seconds), lines, held)


def _surcharge_at_end(booking: Booking, first: int, last: int) -> Decimal:
    """The surcharge of the time between two numbers of seconds after the planned end."""
    rate, ends = rate_of(booking), booking.planned_ends
    if ends is None:
        return Decimal(0)
    return rate.surcharge(rate.between(ends + timedelta(seconds=first), ends + timedelta(seconds=last)))


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
