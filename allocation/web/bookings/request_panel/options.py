"""The options of the booking panel with their prices, and the effect of the best one."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from allocation.queries.bookings.bookings import quota_at
from allocation.rules.start_range import StartRange
from allocation.services.quotes.quote_options import GroupLine, QuoteOption
from allocation.services.quotes.quotes import Quote
from allocation.web.bookings.earlier_options import percent_words
from allocation.web.bookings.summary import shape_words, what_words
from allocation.web.parts.planned_start import start_words
from allocation.web.parts.times import length_words, window_words
from billing.rules import money_text
from billing.web.budget_bar import Meter
from tenants.access import Actor
from tenants.models import GpuClass, Project, Tier
from tenants.web.frame import zone_of


@dataclass(frozen=True, slots=True)
class Names:
    """Tiers by slug, and the labels of classes."""

    tiers: Mapping[str, Tier]
    classes: Mapping[str, str]


def options_context(
    actor: Actor, project: Project, tiers: list[Tier], quote: Quote, now: datetime, dates: int
) -> dict[str, Any]:
    """Returns the template context of a quote."""
    labels = dict(GpuClass.objects.values_list("slug", "label"))
    names = Names({tier.slug: tier for tier in tiers}, labels)
    options = [_option(option, actor, names, now) for option in quote.options]
    found: dict[str, Any] = {
        "options": options,
        "blocking": quote.blocking,
        "waits": quote.waits,
        "asks_hook": quote.asks_hook,
        "price_until": quote.expires,
        "price_lock": quote.lock,
        "effect": _effect(quote, dates),
    }
    if quote.options:
        best = quote.options[0]
        found["quota"] = quota_at(
            project=project, gpu_class=best.gpu_class, at=max(best.starts, now)
        )
    return found


def _option(option: QuoteOption, actor: Actor, names: Names, now: datetime) -> dict[str, Any]:
    zone = zone_of(actor.time_zone)
    tier = names.tiers.get(option.tier)
    price = money_text(option.price, option.currency)
    window = window_words(option.starts, option.ends, zone, now)
    when = start_words(option.strength, StartRange(option.starts, option.latest), zone, now)
    return {
        "option": option,
        "when": when,
        "may_move": option.sentence,
        "tier": tier.name if tier else option.tier,
        "never_paused": bool(tier and not tier.pausable),
        "risk": percent_words(option.pause_risk) if option.pause_basis else "",
        "basis": option.pause_basis,
        "what": _what(option, names),
        "lines": [_line(each, option.currency, names) for each in option.lines],
        "nodes": ", ".join(option.nodes),
        "price": price,
        "parts": price_parts(option),
        "window": window,
        "button": f"Book {window.removeprefix('today ')} for {price}",
        "value": f"{option.tier} {option.request}",
        # The tier's pill already shows its description.
        "notes": [note for note in option.notes if tier is None or note != tier.description],
    }


def _what(option: QuoteOption, names: Names) -> str:
    if option.lines:
        return what_words(option.ask, names.classes)
    label = names.classes.get(option.gpu_class, option.gpu_class)
    return shape_words(option.count, label, option.profile, option.share)


def _line(line: GroupLine, currency: str, names: Names) -> str:
    """`2 × H100 80 GB: 24.00 €, 4.00 €/h`, at the plain price."""
    label = names.classes.get(line.gpu_class, line.gpu_class)
    shape = shape_words(line.count, label, line.profile)
    price, hourly = (money_text(each, currency) for each in (line.price, line.price_per_hour))
    return f"{shape}: {price}, {hourly}/h"


def price_parts(option: QuoteOption) -> str:
    """Returns the set-up and peak parts of the price, and the price at another start if that can be
    higher."""
    rate, words = option.rate, []
    if option.setup:
        words = [f"{money_text(option.setup, option.currency)} of it for set-up"]
    if rate.peak == rate.plain or not rate.hours.weekly:
        return "".join(words)
    spell = rate.between(option.starts, option.ends)
    words += [
        f"{length_words(seconds)} {name} at {money_text(per_hour, option.currency)}/h"
        for seconds, per_hour, name in (
            (spell.peak, rate.peak, "peak"),
            (spell.seconds - spell.peak, rate.plain, "off-peak"),
        )
        if seconds
    ]
    if option.most > option.price:
        words.append(f"at most {money_text(option.most, option.currency)} at another start")
    return ", ".join(words)


def _effect(quote: Quote, dates: int) -> dict[str, Any] | None:
    effect = quote.effect
    if effect is None or not quote.options:
        return None
    price, whole = quote.options[0].price * dates, effect.amount or 1
    spent, held, added = (
        money_text(each, effect.currency) for each in (effect.spent, effect.held, price)
    )
    return {
        "meter": Meter(
            effect.spent * 100 / whole,
            effect.held * 100 / whole,
            f"Budget: spent {spent}, held {held}, this booking {added}",
            min(price * 100 / whole, Decimal(100)),
        ),
        "spent_text": spent,
        "held_text": held,
        "price_text": added,
        "left_text": money_text(effect.left - price, effect.currency),
        "too_much": effect.left < price,
        "until": effect.ends - timedelta(days=1),
        "of": "" if effect.level == "project" else f" of {effect.name}",
    }
