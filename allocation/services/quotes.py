"""The answer to an ask before anybody books: options with start, price and effect on the budget."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from django.db import connection

from allocation.models import Allocation, PolicyVersion
from allocation.queries.catalogue import ask_units
from allocation.rules.ask import AskDocument
from allocation.rules.ask_text import document_text
from allocation.services.admission import terms_check
from allocation.services.bookings import Wish
from allocation.services.policies import policy_of
from allocation.services.price_lock import PRICE_LOCKED, price_lock
from allocation.services.snapshot import (
    gpus_read,
    hosts_read,
    instant,
    models_read,
    of_host,
    seconds,
    solver_ask,
)
from allocation.services.snapshot_blackouts import blackouts_read
from allocation.services.snapshot_quota import caps_read, limits_read, tiers_read, used_read
from allocation.solver import (
    UNITS_PER_GPU,
    Availability,
    Claim,
    Held,
    Limit,
    Option,
    Place,
    Policy,
    Question,
    Snapshot,
)
from billing.queries import BudgetEffect, PriceNow, budget_effect, prices_now
from billing.rules import LEDGER_STEP, cost_of
from tenants.access import Actor, access_project_to_book
from tenants.models import Tier

# Stands for all tenants that the reader is not one of.
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class QuoteOption:
    """One way to get it. `request` is the line of text that books exactly this."""

    kind: str
    tier: str
    gpu_class: str
    profile: str | None
    count: int
    share: int | None
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
    site = Availability(published_snapshot(now, policy), policy, _claims(now, policy))
    question = Question(
        ask=solver_ask(wish.ask),
        duration=wish.ask.duration,
        earliest=seconds(terms.not_before),
        latest=seconds(wish.ask.deadline) if wish.ask.deadline else None,
        fixed=wish.ask.starts is not None,
        tenant=str(actor.tenant_id),
        project=str(project.id),
        rates=_rates(prices, terms.tier.slug),
        tier=terms.tier.slug,
        owner=str(actor.user_id),
    )
    answer = site.quote(question)
    others = tuple(_in_other_tiers(site, question))
    if wish.ask.not_before is not None and wish.ask.not_before <= now:
        wish = replace(wish, ask=replace(wish.ask, not_before=None))
    found = [*((terms.tier, option) for option in answer.options), *others]
    made = (_option(option, tier, wish, prices) for tier, option in found)
    options = tuple(option for option in made if option is not None)
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
    used = used_read(now)
    return Snapshot(
        now=seconds(now),
        models=models_read(),
        gpus=gpus_read(),
        held=(*_own_held(), *_busy_held(now, until)),
        requests=(),
        extensions=(),
        limits=(*limits_read(), *_lenders()),
        tiers=tiers_read(),
        caps=caps_read(now, used),
        used=used,
        hosts=hosts_read(),
        blackouts=blackouts_read(now),
    )


def _lenders() -> Iterator[Limit]:
    """All other tenants as one, with what they lend in all."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT gpu_class, guaranteed, lent FROM portal_lenders()")
        for gpu_class, guaranteed, lent in cursor.fetchall():
            yield Limit(OTHERS, None, gpu_class, int(guaranteed), None, int(lent))


def _claims(now: datetime, policy: Policy) -> Iterator[Claim]:
    """From when to when others wait for what they have lent."""
    until = now + timedelta(seconds=policy.horizon)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT gpu_class, period_start, period_end FROM portal_claims(%s, %s)", [now, until]
        )
        for gpu_class, starts, ends in cursor.fetchall():
            yield Claim("", OTHERS, gpu_class, seconds(starts), seconds(ends))


def _own_held() -> Iterator[Held]:
    rows = Allocation.objects.filter(state__in=Allocation.LIVE).select_related("booking")
    for row in rows:
        cores, memory = of_host(row.booking)
        yield Held(
            id=str(row.id),
            booking=str(row.booking_id),
            tenant=str(row.tenant_id),
            project=str(row.project_id),
            place=Place(str(row.gpu_id), row.profile, row.start, row.size, row.share),
            starts=seconds(row.period.lower),
            ends=seconds(row.period.upper),
            started=row.state != Allocation.State.PLANNED,
            tier=row.booking.tier_id,
            cores=cores,
            memory=memory,
            owner=str(row.booking.owner_id),
        )


def _busy_held(now: datetime, until: datetime) -> Iterator[Held]:
    """Other tenants' time, and every promised start, as blocks without a name.

    A slice's profile is not published; its slots are what counts, so they stand for one.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT gpu_id, profile, start, size, share, cores, memory, period_start, period_end,"
            " mine FROM portal_taken(%s, %s) WHERE promised OR NOT mine",
            [now, until],
        )
        rows = cursor.fetchall()
    for number, row in enumerate(rows):
        gpu, profile, start, size, share, cores, memory, starts, ends, mine = row
        yield Held(
            id=f"busy-{number}",
            booking=f"busy-{number}",
            tenant="" if mine else OTHERS,
            project="",
            place=Place(str(gpu), profile, start, size, share),
            starts=seconds(starts),
            ends=seconds(ends),
            started=False,
            cores=cores * 1_000,
            memory=memory * 1_024,
        )


def _rates(prices: dict[tuple[str, str], PriceNow], tier: str) -> dict[str, int]:
    return {
        gpu_class: int(price.per_gpu_hour / LEDGER_STEP)
        for (gpu_class, in_tier), price in prices.items()
        if in_tier == tier
    }


def _in_other_tiers(site: Availability, question: Question) -> Iterator[tuple[Tier, Option]]:
    """The ask exactly as it is, in each other tier that has it: quota differs by tier."""
    tiers = Tier.objects.exclude(slug=question.tier)
    for tier in tiers.filter(max_duration_seconds__gte=question.duration):
        answer = site.quote(replace(question, tier=tier.slug))
        for option in answer.options:
            if option.kind == "as_asked":
                yield tier, option


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
        share=option.share,
        starts=instant(option.starts),
        ends=instant(option.ends),
        nodes=option.places_hint,
        price=cost_of(per_gpu_hour=price.per_gpu_hour, units=units, seconds=ask.duration),
        currency=price.currency,
        request=document_text(ask, ZoneInfo(wish.zone)),
        notes=tuple(_notes(option, tier, ZoneInfo(wish.zone))),
    )


def _notes(option: Option, tier: Tier, zone: ZoneInfo) -> Iterator[str]:
    if option.share is not None:
        yield "Shared with others, not isolated"
    if option.borrowed:
        own, borrowed = (
            f"{units / UNITS_PER_GPU:.3g}"
            for units in (option.units - option.borrowed, option.borrowed)
        )
        note = f"{own} own + {borrowed} borrowed"
        if option.at_risk_from is not None:
            note += f", at risk from {instant(option.at_risk_from).astimezone(zone):%H:%M, %d %b}"
        yield note
    if tier.description:
        yield tier.description


def _ask_of(option: Option, asked: AskDocument) -> AskDocument:
    """The ask that books this option: as flexible as it was, unless another window is offered."""
    is_moved = option.kind == "later"
    return AskDocument(
        count=option.count,
        classes=(option.gpu_class,),
        profile=option.profile,
        share=option.share,
        cores=asked.cores,
        memory=asked.memory,
        together="any" if option.kind == "split" else asked.together,
        required=False if option.kind == "split" else asked.required,
        duration=asked.duration,
        starts=instant(option.starts) if is_moved and asked.starts else asked.starts,
        not_before=asked.not_before,
        deadline=asked.deadline,
    )
