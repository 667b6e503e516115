"""The answer to an ask before anybody books: options with start, price and effect on the budget."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from django.db import connection

from allocation.models import Allocation, PolicyVersion
from allocation.queries.catalogue import ask_units
from allocation.rules.ask import AskDocument
from allocation.rules.ask_text import document_text
from allocation.services.admission import Terms, terms_check
from allocation.services.bookings import Wish
from allocation.services.policies import policy_of
from allocation.services.price_lock import PRICE_LOCKED, price_lock
from allocation.services.snapshot import (
    gpus_read,
    instant,
    limits_read,
    models_read,
    seconds,
    solver_ask,
)
from allocation.solver import Held, Option, Place, Policy, Question, Snapshot, quote
from billing.queries import BudgetEffect, PriceNow, budget_effect, prices_now
from billing.rules import LEDGER_STEP, cost_of
from tenants.access import Actor, access_project_to_book
from tenants.models import Tier


@dataclass(frozen=True, slots=True)
class QuoteOption:
    """One way to get it. `request` is the line of text that books exactly this."""

    kind: str
    tier: str
    gpu_class: str
    profile: str | None
    count: int
    starts: datetime
    ends: datetime
    nodes: tuple[str, ...]
    price: Decimal
    currency: str
    request: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Quote:
    """Options, best first. `blocking` says what is in the way when it can't be had as asked.

    `lock` handed in with a booking until `expires` keeps these prices.
    """

    options: tuple[QuoteOption, ...]
    blocking: str | None
    effect: BudgetEffect | None
    expires: datetime
    lock: str


def quote_make(*, actor: Actor, wish: Wish, now: datetime) -> Quote:
    """What the wish could be, in the wished tier first, then as asked in the other tiers.

    Places are not kept: the cycle decides when it is booked. Run inside the tenant's transaction.

    Raises:
        Refused: what the portal refuses at once; see `services.admission`.
    """
    project = access_project_to_book(actor, wish.project, "project")
    terms = terms_check(project=project, wish_tier=wish.tier, ask=wish.ask, now=now)
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    prices = prices_now(now)
    answer = quote(
        published_snapshot(now, policy),
        policy,
        Question(
            ask=solver_ask(wish.ask),
            duration=wish.ask.duration,
            earliest=seconds(terms.not_before),
            latest=seconds(wish.ask.deadline) if wish.ask.deadline else None,
            fixed=wish.ask.starts is not None,
            tenant=str(actor.tenant_id),
            project=str(project.id),
            rates=_rates(prices, terms.tier.slug),
        ),
    )
    if wish.ask.not_before is not None and wish.ask.not_before <= now:
        wish = replace(wish, ask=replace(wish.ask, not_before=None))
    options = tuple(_options(answer.options, terms, wish, prices))
    starts = options[0].starts if options else terms.not_before
    return Quote(
        options=options,
        blocking=answer.blocked.sentence if answer.blocked else None,
        effect=budget_effect(project_id=project.id, at=starts),
        expires=now + PRICE_LOCKED,
        lock=price_lock(now),
    )


def published_snapshot(now: datetime, policy: Policy) -> Snapshot:
    """What a tenant may know of the calendar: its own time, and anonymous busy time."""
    until = now + timedelta(seconds=policy.horizon)
    return Snapshot(
        now=seconds(now),
        models=models_read(),
        gpus=gpus_read(),
        held=(*_own_held(), *_busy_held(now, until)),
        requests=(),
        extensions=(),
        limits=limits_read(),
    )


def _own_held() -> Iterator[Held]:
    for row in Allocation.objects.filter(state__in=Allocation.LIVE):
        yield Held(
            id=str(row.id),
            booking=str(row.booking_id),
            tenant=str(row.tenant_id),
            project=str(row.project_id),
            place=Place(str(row.gpu_id), row.profile, row.start, row.size),
            starts=seconds(row.period.lower),
            ends=seconds(row.period.upper),
            started=row.state != Allocation.State.PLANNED,
        )


def _busy_held(now: datetime, until: datetime) -> Iterator[Held]:
    """Other tenants' time, and every promised start, as blocks without a name.

    A slice's profile is not published; its slots are what counts, so they stand for one.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT gpu_id, mode, start, size, period_start, period_end"
            " FROM portal_busy(%s, %s) WHERE NOT mine"
            " UNION ALL SELECT gpu_id, mode, start, size, period_start, period_end"
            " FROM portal_promised(%s, %s)",
            [now, until, now, until],
        )
        rows = cursor.fetchall()
    for number, (gpu, mode, start, size, starts, ends) in enumerate(rows):
        yield Held(
            id=f"busy-{number}",
            booking=f"busy-{number}",
            tenant="",
            project="",
            place=Place(str(gpu), None if mode == "whole" else "busy", start, size),
            starts=seconds(starts),
            ends=seconds(ends),
            started=False,
        )


def _rates(prices: dict[tuple[str, str], PriceNow], tier: str) -> dict[str, int]:
    return {
        gpu_class: int(price.per_gpu_hour / LEDGER_STEP)
        for (gpu_class, in_tier), price in prices.items()
        if in_tier == tier
    }


def _options(
    found: Sequence[Option],
    terms: Terms,
    wish: Wish,
    prices: dict[tuple[str, str], PriceNow],
) -> Iterator[QuoteOption]:
    for option in found:
        if made := _option(option, terms.tier, wish, prices):
            yield made
    asked = next((option for option in found if option.kind == "as_asked"), None)
    if asked is None:
        return
    for tier in Tier.objects.exclude(slug=terms.tier.slug):
        too_long = wish.ask.duration > tier.max_duration_seconds
        if not too_long and (made := _option(asked, tier, wish, prices)):
            yield made


def _option(
    option: Option,
    tier: Tier,
    wish: Wish,
    prices: dict[tuple[str, str], PriceNow],
) -> QuoteOption | None:
    price = prices.get((option.gpu_class, tier.slug))
    ask = _ask_of(option, wish.ask)
    units = ask_units(ask).get(option.gpu_class)
    if price is None or units is None:
        return None
    return QuoteOption(
        kind=option.kind,
        tier=tier.slug,
        gpu_class=option.gpu_class,
        profile=option.profile,
        count=option.count,
        starts=instant(option.starts),
        ends=instant(option.ends),
        nodes=option.places_hint,
        price=cost_of(per_gpu_hour=price.per_gpu_hour, units=units, seconds=ask.duration),
        currency=price.currency,
        request=document_text(ask, ZoneInfo(wish.zone)),
        notes=(tier.description,) if tier.description else (),
    )


def _ask_of(option: Option, asked: AskDocument) -> AskDocument:
    """The ask that books this option: as flexible as it was, unless another window is offered."""
    is_moved = option.kind == "later"
    return AskDocument(
        count=option.count,
        classes=(option.gpu_class,),
        profile=option.profile,
        together="any" if option.kind == "split" else asked.together,
        required=False if option.kind == "split" else asked.required,
        duration=asked.duration,
        starts=instant(option.starts) if is_moved and asked.starts else asked.starts,
        not_before=asked.not_before,
        deadline=asked.deadline,
    )
