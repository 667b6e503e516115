"""Advice in a quote: a later start of the coming day at which no wait is expected, and which costs less."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from allocation.features.demand.booking_times import booking_times, class_of, tier_of
from allocation.features.demand.services import gpus_of_classes
from allocation.points import Advice, Quoted
from allocation.rules.ask import AskDocument
from allocation.web.parts.times import moment_words
from billing.price_books import PriceShelf
from billing.rates import Rate
from billing.rules import UNITS_PER_GPU, money_text

WITHIN = timedelta(hours=24)
# Less than this part of the price is not worth a night.
LEAST = Decimal("0.05")


def later_advice(quoted: Quoted, now: datetime) -> Iterable[Advice]:
    """At most one piece of advice, for whole GPUs of one class that may start at any time."""
    ask: AskDocument = quoted.ask
    if not _is_movable(ask) or ask.count > gpus_of_classes().get(ask.classes[0], 0):
        return
    price = PriceShelf.read(now).on(quoted.starts).get((ask.classes[0], quoted.tier))
    if price is None or not price.hours.weekly:
        return
    rate, usual = price.rate(UNITS_PER_GPU * ask.count), quoted.starts
    cost = _cost(rate, usual, quoted.seconds)
    rows = booking_times(class_of(ask.classes[0]), tier_of(quoted.tier), ask.count, now)
    hours = [row.at for row in rows if row.wait_hours == 0 and usual < row.at <= now + WITHIN]
    found = min(((_cost(rate, at, quoted.seconds), at) for at in hours), default=None)
    if found is None or cost - found[0] < max(LEAST * cost, Decimal("0.01")):
        return
    less = money_text(cost - found[0], price.currency)
    words = moment_words(found[1], ZoneInfo(quoted.zone), now)
    yield Advice(
        "later",
        f"A start {words} costs {less} less. No wait is expected then.",
        replace(ask, not_before=found[1]),
        "",
    )


def _is_movable(ask: AskDocument) -> bool:
    return (
        len(ask.classes) == 1
        and not ask.groups
        and ask.profile is None
        and ask.share is None
        and ask.starts is None
        and ask.deadline is None
    )


def _cost(rate: Rate, starts: datetime, seconds: int) -> Decimal:
    return rate.cost(rate.between(starts, starts + timedelta(seconds=seconds)))
