"""The options of the booking panel with prices, the effect of the best one, and its booking."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid5

from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest, QueryDict

from allocation.models import Booking, PlannedStrength, Series, WaitMode
from allocation.points import Advice, WorkRate
from allocation.points.arrays import arrays
from allocation.queries.bookings.bookings import quota_at
from allocation.queries.fleet.catalogue import ask_catalogue
from allocation.rules.ask import MAX_TEXT_LENGTH, AskDocument, parse_ask
from allocation.rules.ask.line.text import document_text
from allocation.rules.start_range import StartRange
from allocation.rules.workload_names import LABEL, MOST, workload_slug
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.price_lock import price_lock_read
from allocation.services.bookings.request_text import kinds_said
from allocation.services.bookings.requests import ArrayRequest, BookingRequest
from allocation.services.bookings.series import Repeat, Window, series_request
from allocation.services.quotes.quote_options import GroupLine, QuoteOption
from allocation.services.quotes.quotes import Quote
from allocation.web.bookings.earlier_options import risk_words
from allocation.web.bookings.request_panel.array_form import ArraySaid, array_said
from allocation.web.bookings.summary import shape_words, what_words
from allocation.web.parts.planned_start import start_words
from allocation.web.parts.times import length_words, window_words
from allocation.words.refusals import refusal_text
from billing.price_books import currency_latest
from billing.rules import Period, cents_of, money_text, share_inside
from billing.web.budget_bar import Meter
from tenants.access import Actor
from tenants.models import GpuClass, IdempotencyKey, Project, Tier
from tenants.platform.errors import invalid, text_within
from tenants.platform.labels import labels_read, reference_check
from tenants.web.frame import zone_of
from tenants.web.parts import counted

# Another token with the same values is the same form.
_NOT_SAID = ("csrfmiddlewaretoken", "key")


@dataclass(frozen=True, slots=True)
class Names:
    """Tiers by slug, and the labels of classes."""

    tiers: Mapping[str, Tier]
    classes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often a request is booked: `count` times at once, or in these windows."""

    count: int = 1
    windows: tuple[Window, ...] = ()

    def cost(self, option: QuoteOption) -> Decimal:
        """Returns the price of all of them."""
        if not self.windows:
            return option.price * self.count
        return sum((price_in(option, window) for window in self.windows), Decimal(0))

    def cost_inside(self, option: QuoteOption, period: Period) -> Decimal:
        """Returns the part of their price that a budget of the period pays."""
        if not self.windows:
            once = share_inside(option.price, option.starts, option.ends, period)
            return once * self.count
        parts = (
            share_inside(price_in(option, each), each.starts, each.ends, period) for each in self.windows
        )
        return sum(parts, Decimal(0))


def price_in(option: QuoteOption, window: Window) -> Decimal:
    """Returns the price of an option in another window."""
    return option.setup + option.rate.cost(option.rate.between(window.starts, window.ends))


def options_context(
    actor: Actor, project: Project, tiers: list[Tier], quote: Quote, now: datetime, repeats: Repeats
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
        "learnt": _learnt(quote, labels, now),
        "diverted": quote.diverted,
        "advice": [_advice(each, quote.workload, actor, project, labels) for each in quote.advice],
        "price_until": quote.expires,
        "price_lock": quote.lock,
        "effect": _effect(quote, repeats),
    }
    if quote.options:
        best = quote.options[0]
        found["quota"] = quota_at(project=project, gpu_class=best.gpu_class, at=max(best.starts, now))
    return found


def _advice(
    advice: Advice, workload: str, actor: Actor, project: Project, names: Mapping[str, str]
) -> dict[str, str]:
    """Returns an advice in words, with its changed request and the address of its quote."""
    if advice.ask is None:
        return {"sentence": advice.sentence, "link": advice.link, "label": "", "href": ""}
    text = document_text(advice.ask, zone_of(actor.time_zone))
    query = {"q": text, "project": project.slug, "work": workload, "labels": f"advice={advice.code}"}
    return {
        "sentence": advice.sentence,
        "link": advice.link,
        "label": advice_label(advice.ask, names),
        "href": f"/t/{actor.tenant_slug}/book?{urlencode(query)}",
    }


def advice_label(ask: AskDocument, names: Mapping[str, str]) -> str:
    """`Rent a machine, up to €109.50`, or `See 1 × A100 80 GB for 1 h 19 min`."""
    if ask.most_cost is not None:
        return f"Rent a machine, up to {money_text(ask.most_cost, currency_latest())}"
    return f"See {what_words(ask, names)} for {length_words(ask.duration)}"


def _learnt(quote: Quote, labels: dict[str, str], now: datetime) -> str:
    """Returns what finished runs have shown of the lengths; empty where the operator's table counts."""
    shown = [(each.gpu_class, each.rate) for each in quote.lengths if each.rate is not None]
    if len(shown) < 2:
        return ""
    rates = ", ".join(
        f"{rate.per_gpu_hour:,.4g} on {labels.get(name, name)} ({_runs_words(rate, now)})"
        for name, rate in shown
    )
    unit = shown[0][1].unit
    return f"Lengths by finished runs of this project, in {unit}s of a GPU in an hour: {rates}."


def _runs_words(rate: WorkRate, now: datetime) -> str:
    """Returns the runs behind a rate and their age, as `3 runs since a jump, the last 4 d ago`."""
    series = {"driver": " since another driver", "jump": " since a jump"}.get(rate.began, "")
    days = (now - rate.last).days
    return f"{rate.runs} runs{series}" + (f", the last {days} d ago" if days else "")


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
        "risk": risk_words(option.pause_risk) if option.pause_basis else "",
        "risk_known": option.pause_risk is not None,
        "basis": option.pause_basis,
        "what": _what(option, names),
        "lines": [_line(each, option.currency, names) for each in option.lines],
        "nodes": ", ".join(option.nodes),
        "price": price,
        "parts": price_parts(option),
        "window": window,
        "button": f"Book {_booked(option, window, when)} for {price}",
        "value": f"{option.tier} {option.request}",
        # The tier's pill already shows its description.
        "notes": [note for note in option.notes if tier is None or note != tier.description],
    }


def _booked(option: QuoteOption, window: str, when: str) -> str:
    """Returns the window of a start that stays; else the length, with the start that is shown
    next to it, because the end is as little fixed."""
    if PlannedStrength(option.strength) == PlannedStrength.FIRM:
        return window.removeprefix("today ")
    length = length_words(int((option.ends - option.starts).total_seconds()))
    return f"{length}, {when[0].lower()}{when[1:]},"


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


def _effect(quote: Quote, repeats: Repeats) -> dict[str, Any] | None:
    effect = quote.effect
    if effect is None or not quote.options:
        return None
    best, whole = quote.options[0], effect.amount or 1
    price = repeats.cost_inside(best, effect.period)
    later = repeats.cost(best) - price
    shown = effect.in_cents
    spent, held, added = (money_text(each, effect.currency) for each in (shown.spent, shown.held, price))
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
        "left_text": money_text(shown.left - cents_of(price), effect.currency),
        "too_much": effect.left < price,
        "later_text": money_text(later, effect.currency) if later else "",
        "until": effect.ends - timedelta(days=1),
        "of": "" if effect.level == "project" else f" of {effect.name}",
    }


def option_book(request: HttpRequest, actor: Actor, now: datetime) -> Booking | Series:
    """Books the chosen option, or all dates of a series. Sending the same form twice books once.

    Raises:
        Refused, AskError; `idempotency_key_reused` for another form with the same key.
    """
    tier, _, text = request.POST.get("option", "").partition(" ")
    if not text:
        raise invalid("no_option", refusal_text("no_option"), "option")
    identifier = _identifier(request, actor)
    _form_check(actor, identifier, request.POST)
    with transaction.atomic():
        made = _option_book(request, actor, (tier, text, identifier), now)
        _form_keep(actor, identifier, request.POST, request.path, now)
        # One that was sent at the same time may have come first.
        _form_check(actor, identifier, request.POST)
    return made


def _form_check(actor: Actor, key: UUID, form: QueryDict) -> None:
    """Raises Refused `idempotency_key_reused` if the key was sent with other values."""
    rows = IdempotencyKey.objects.filter(tenant_id=actor.tenant_id, user_id=actor.user_id, key=_form_key(key))
    sent = rows.values_list("body_sha256", flat=True).first()
    if sent is not None and bytes(sent) != _form_digest(form):
        raise invalid("idempotency_key_reused", refusal_text("form_key_reused"), "key")


def _form_keep(actor: Actor, key: UUID, form: QueryDict, path: str, now: datetime) -> None:
    """Keeps what was sent with the key, in the transaction that books it."""
    row = IdempotencyKey(
        tenant_id=actor.tenant_id,
        user_id=actor.user_id,
        key=_form_key(key),
        method="POST",
        path=path[:400],
        body_sha256=_form_digest(form),
        status=302,
        answer={},
        is_final=True,
        created=now,
    )
    IdempotencyKey.objects.bulk_create([row], ignore_conflicts=True)


def _form_key(key: UUID) -> str:
    return f"form {key.hex}"


def _form_digest(form: QueryDict) -> bytes:
    said = sorted((name, values) for name, values in form.lists() if name not in _NOT_SAID)
    return sha256(json.dumps(said).encode()).digest()


def _option_book(
    request: HttpRequest, actor: Actor, option: tuple[str, str, UUID], now: datetime
) -> Booking | Series:
    tier, text, identifier = option
    first = Q(id=identifier) | Q(array=identifier, array_index=1)
    made = Booking.objects.filter(first, tenant_id=actor.tenant_id).first()
    if made is not None:
        return made
    zone = zone_of(actor.time_zone)
    catalogue = ask_catalogue(kinds=kinds_said(request.POST.get("project", ""), text))
    parsed = parse_ask(text[:MAX_TEXT_LENGTH], catalogue=catalogue, now=now, zone=zone)
    shown = request.POST.get("quote", "")
    terms = BookingRequest(
        project=request.POST.get("project", ""),
        tier=tier,
        ask=parsed.document(first=True, many=True),
        name=text_within(request.POST.get("name", "").strip(), 80, "name"),
        zone=actor.time_zone,
        request_text=text,
        priced_at=price_lock_read(shown, now) if shown else None,
        campaign=request.POST.get("campaign", ""),
        labels=labels_read(request.POST.get("labels", "")) | _work_label(request.POST.get("work", "")),
        external_ref=reference_check(request.POST.get("external_ref", "").strip()),
        waitlist=_wait_mode(request.POST.getlist("if_full")),
    )
    array = array_said(parsed)
    if array is not None:
        return _book_array(actor, terms, array, now, identifier)
    if parsed.repeat is None:
        return booking_request(actor=actor, request=terms, now=now, booking_id=identifier)
    is_partial = request.POST.get("partial") == "1"
    repeat = Repeat(parsed.repeat, is_partial, keeps_end=parsed.ends is not None)
    return series_request(actor=actor, request=terms, repeat=repeat, now=now, series_id=identifier)


def _work_label(name: str) -> dict[str, str]:
    """The label of a chosen workload."""
    found = workload_slug(text_within(name, MOST, "work"))
    return {LABEL: found} if found else {}


def _wait_mode(chosen: list[str]) -> str:
    """What a full window does: the button says more than the form."""
    if "offer" in chosen:
        return WaitMode.OFFER
    return WaitMode.AUTO if "wait" in chosen else ""


def _book_array(actor: Actor, terms: BookingRequest, array: ArraySaid, now: datetime, key: UUID) -> Booking:
    """Books an array, all or nothing of it. Returns its first element."""
    wanted = ArrayRequest(array.count, array.parallel)
    with transaction.atomic():
        made: Booking = arrays().request(actor=actor, request=terms, array=wanted, now=now, key=key)
    return made


def _identifier(request: HttpRequest, actor: Actor) -> UUID:
    """Derives the booking's id from the form's key, the tenant and the user."""
    try:
        key = UUID(hex=request.POST.get("key", ""))
    except ValueError:
        raise invalid("no_key", refusal_text("no_key"), "key") from None
    return uuid5(key, f"{actor.tenant_id}:{actor.user_id}")


def made_words(actor: Actor, booking: Booking | Series) -> dict[str, str]:
    """Returns the texts and the address of a new booking or series."""
    base = f"/t/{actor.tenant_slug}"
    if isinstance(booking, Series):
        return {
            "label": "a series",
            "href": f"{base}/series/sr_{booking.id.hex}",
            "heading": "Requested all dates:",
            "link": "view the series",
            "text": "Placing all dates; this takes a few seconds.",
            "message": "Requested all dates. The result of each date is shown below.",
        }
    if booking.array is not None:
        label = booking.array.label
        return {
            "label": label,
            "href": f"{base}/arrays/{label}",
            "heading": f"Booked {counted(booking.array.count, 'run')} as",
            "link": label,
            "text": "Placing the first; this takes a few seconds.",
            "message": f"Booked {counted(booking.array.count, 'run')} as {label}.",
        }
    return {
        "label": booking.label,
        "href": f"{base}/bookings/{booking.label}",
        "heading": "Booked as",
        "link": booking.label,
        "text": "Placing it; this takes a few seconds.",
        "message": f"Booked as {booking.label}. You can undo this below.",
    }
