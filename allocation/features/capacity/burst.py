"""Bookings that may burst: a machine is rented for one that would wait, and quotes say what it costs."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import Q

from allocation.features.capacity.models import CapacityPlan
from allocation.features.capacity.pooling import AROUND, WORTH_WAITING
from allocation.features.capacity.providers import offers
from allocation.features.capacity.rules import Offer, best_offer
from allocation.features.capacity.services import Cause, PlanTerms, plan_create
from allocation.models import Booking
from allocation.points import Advice, Quoted
from allocation.rules.ask import AskDocument
from allocation.rules.ask.words.times import duration_words
from allocation.rules.states import State
from allocation.words.refusals import refusal_text
from billing.rules import ceil_to_cents, money_text
from tenants.access import actor_by_id
from tenants.platform.errors import Refused

# A plan of a booking is open so long beyond its time: its machine may come late.
SPARE = timedelta(hours=1)
MOST_AT_ONCE = 20


def offer_for(ask: AskDocument, seconds: float, known: list[Offer]) -> tuple[Offer, Decimal] | None:
    """The cheapest offer for a request on its classes, and what its machines cost for so long; None where
    no machine serves it."""
    if ask.profile or ask.share or ask.groups or ask.is_bound or ask.starts is not None:
        return None
    length = seconds + 2 * AROUND.total_seconds()
    found = [
        (offer.cost(length) * offer.machines_for(ask.count), offer.lead_seconds, offer)
        for name in ask.classes
        if (offer := best_offer(known, name, ask.count, length)) is not None
    ]
    if not found:
        return None
    cost, _, offer = min(found, key=lambda each: each[:2])
    return offer, ceil_to_cents(cost)


def burst_advice(quoted: Quoted, now: datetime) -> Iterator[Advice]:
    """Says what a rented machine would cost, if own GPUs are free much later."""
    if quoted.ask.may_burst or not (known := offers()):
        return
    found = offer_for(quoted.ask, quoted.seconds, known)
    if found is None:
        return
    offer, cost = found
    if quoted.starts - now <= offer.lead + WORTH_WAITING:
        return
    own = quoted.starts.astimezone(ZoneInfo(quoted.zone))
    yield Advice(
        "burst",
        refusal_text(
            "burst_advice",
            lead=duration_words(offer.lead_seconds),
            cost=money_text(cost, offer.currency),
            own=f"{own:%a %-d %b %H:%M}",
        ),
        replace(quoted.ask, most_cost=cost),
        "",
    )


def bookings_burst(now: datetime) -> int:
    """Makes the plans of waiting bookings that may burst; returns how many. One that is refused is
    kept with its reason, and not tried again."""
    if not (known := offers()):
        return 0
    rows = Booking.objects.filter(
        Q(planned_starts=None) | Q(planned_starts__gt=now + WORTH_WAITING),
        state=State.QUEUED,
        pool="",
        starts=None,
        not_before__lte=now + WORTH_WAITING,
        is_drained=False,
        awaits_parents=False,
        ask__may_burst=True,
    ).exclude(id__in=CapacityPlan.objects.filter(booking__isnull=False).values("booking"))
    found = rows.select_related("project", "tenant").order_by("submitted", "id")[:MOST_AT_ONCE]
    return sum(_burst(row, known, now) for row in found)


def _burst(row: Booking, known: list[Offer], now: datetime) -> int:
    ask = AskDocument.from_json(row.ask)
    found = offer_for(ask, row.duration_seconds, known)
    if found is None or ask.most_cost is None:
        return 0
    offer, cost = found
    if row.planned_starts is not None and row.planned_starts - now <= offer.lead + WORTH_WAITING:
        return 0
    until = now + 2 * offer.lead + timedelta(seconds=row.duration_seconds) + SPARE
    asked = PlanTerms(
        project=row.project.slug,
        gpu_class=offer.gpu_class,
        count=ask.count,
        until=until,
        most_cost=ask.most_cost,
    )
    if cost > ask.most_cost:
        why = refusal_text("burst_too_little", cost=money_text(cost, offer.currency))
        _refused(row, offer, until, ask.most_cost, why, now)
        return 0
    try:
        with transaction.atomic():
            actor = actor_by_id(row.owner_id, row.tenant.slug)
            plan_create(actor=actor, terms=asked, now=now, cause=Cause(booking=row))
    except Refused as refusal:
        _refused(row, offer, until, ask.most_cost, refusal.sentence, now)
        return 0
    return 1


def _refused(
    row: Booking, offer: Offer, until: datetime, most_cost: Decimal, why: str, now: datetime
) -> None:
    facts: dict[str, Any] = {"source": CapacityPlan.Source.PERSON, "state": CapacityPlan.State.REFUSED}
    CapacityPlan.objects.create(
        id=uuid4(),
        tenant_id=row.tenant_id,
        project=row.project,
        gpu_class_id=offer.gpu_class,
        gpus=row.ask["count"],
        starts=now,
        until=until,
        most_cost=most_cost,
        currency=offer.currency,
        booking=row,
        note=why[:300],
        created=now,
        created_by_id=row.owner_id,
        ended=now,
        **facts,
    )
