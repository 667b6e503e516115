"""The mix of GPUs of an organisation or the site: what its demand needed, and what each mix would cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from django.db.models import Count
from rest_framework import serializers

from allocation.features.capacity.mix.arithmetic import Loads, Mix, Prices, cheapest, hours_by_level, mix_made
from allocation.features.capacity.mix.load import Needed, NeverRan, Whose, needed_read
from allocation.features.capacity.providers import offers
from allocation.features.capacity.rules import Offer
from allocation.models import Gpu
from allocation.words.refusals import refusal_text
from billing.price_books import CurrentPrice, PriceShelf
from billing.rules import UNITS_PER_GPU
from tenants.access import Actor, access_project
from tenants.models import GpuClass, Project, Quota, Tenant
from tenants.platform.errors import denied, invalid, missing
from tenants.platform.rest.fields import Day, Money, Strict, Text

USUAL, MOST = timedelta(days=90), timedelta(days=366)
USUAL_TIER = "standard"
MOST_GPUS = 4096
CHEAPEST, PRESENT, TRIED = "cheapest", "present", "tried"


def _gpus(text: str) -> serializers.IntegerField:
    return serializers.IntegerField(required=False, min_value=0, max_value=MOST_GPUS, help_text=text)


def _price(text: str) -> Money:
    return Money(max_digits=12, decimal_places=6, required=False, help_text=text)


_SITE: dict[str, Any] = {
    "__doc__": "UTC days [from, to), without them the last 90 days until now. `class` is a word of Python.",
    "class": Text(max_length=40, required=False, default="", help_text="A GPU class; without it all in use."),
    "from": Day(required=False),
    "to": Day(required=False, help_text="The first day after them."),
    "own": _gpus("Own GPUs of the mix that is tried."),
    "reserved": _gpus("Reserved GPUs of the mix that is tried; the rest bursts."),
    "own_price": _price("Of a GPU-hour, used or not. Without it the list price."),
    "reserved_price": _price("Of a GPU-hour, used or not. Without it that of the cheapest offer."),
    "burst_price": _price("Of a GPU-hour that is used. Without it that of the cheapest offer."),
}
_PROJECT = {"project": Text(max_length=40, required=False, default="", help_text="Of this project alone.")}
# The class takes its fields out of what it is made of.
SiteMixQuery: type[Strict] = type("SiteMixQuery", (Strict,), dict(_SITE))
MixQuery: type[Strict] = type("MixQuery", (Strict,), _SITE | _PROJECT)


@dataclass(frozen=True, slots=True)
class Question:
    """UTC days [starts, ends), a class or all, the prices that are given, and the mix to try."""

    starts: date
    ends: date
    gpu_class: str
    prices: dict[str, Decimal | None]
    tried: tuple[int, int] | None

    @property
    def last_day(self) -> date:
        """The last of the days."""
        return self.ends - timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ClassMix:
    """What a class needed in the hours, and what mixes for it cost. `own` GPUs may be used at once now."""

    gpu_class: str
    label: str
    starts: datetime
    ends: datetime
    hours: int
    gpu_hours: Decimal
    peak: Decimal
    never_ran: NeverRan
    own: int
    prices: Prices
    lead_seconds: int | None
    mixes: tuple[Mix, ...]
    load: Loads

    def mix(self, name: str) -> Mix | None:
        """The mix of this name."""
        return next((each for each in self.mixes if each.name == name), None)

    @property
    def hours_by_level(self) -> list[float]:
        """For each GPU the hours in which it is needed."""
        return list(hours_by_level(self.load))


def question_read(values: dict[str, Any], now: datetime) -> Question:
    """Reads valid parameters. Raises Refused `bad_period` or `not_found`."""
    ends = values.get("to") or now.astimezone(UTC).date() + timedelta(days=1)
    starts = values.get("from") or ends - USUAL
    if not timedelta(0) < ends - starts <= MOST:
        raise invalid("bad_period", refusal_text("mix_period", most=MOST.days), "from")
    name = values.get("class", "")
    if name and not GpuClass.objects.filter(slug=name).exists():
        raise missing("GPU class", "class")
    is_tried = "own" in values or "reserved" in values
    if is_tried and not name:
        raise invalid("mix_class", refusal_text("mix_class"), "class")
    return Question(
        starts,
        ends,
        name,
        {kind: values.get(f"{kind}_price") for kind in ("own", "reserved", "burst")},
        (values.get("own", 0), values.get("reserved", 0)) if is_tried else None,
    )


def whose_mix(actor: Actor, project: str) -> Whose:
    """Whose bookings a person may ask about: of a project that they lead, or without one of all that they
    lead; admins of the whole organisation.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    if project:
        row = access_project(actor, project)
        if not actor.may_lead(row.id):
            raise denied(refusal_text("mix_leads"))
        return Whose(row.name, actor.tenant_id, (row.id,))
    if actor.is_tenant_admin:
        return Whose(Tenant.objects.get(id=actor.tenant_id).name, actor.tenant_id)
    led = [row for row in Project.objects.filter(tenant_id=actor.tenant_id) if actor.may_lead(row.id)]
    if not led:
        raise denied(refusal_text("mix_leads"))
    return Whose(", ".join(row.name for row in led), actor.tenant_id, tuple(row.id for row in led))


def mixes_of(whose: Whose, question: Question, now: datetime) -> list[ClassMix]:
    """The mixes of a class, or of each that was needed, in the order of the catalogue."""
    starts, ends = (datetime.combine(each, time(), UTC) for each in (question.starts, question.ends))
    needed = needed_read(whose, starts, ends, now)
    rows = GpuClass.objects.order_by("order", "slug")
    found = (
        rows.filter(slug=question.gpu_class or None)
        if question.gpu_class
        else rows.filter(slug__in=needed.by_class)
    )
    listed, known = PriceShelf.read(now).on(now), offers()
    return [_of_class(whose, question, needed, each, listed, known) for each in found]


def _of_class(
    whose: Whose,
    question: Question,
    needed: Needed,
    row: GpuClass,
    listed: Mapping[tuple[str, str], CurrentPrice],
    known: list[Offer],
) -> ClassMix:
    load, own = needed.of(row.slug), _own(whose, row.slug)
    price = listed.get((row.slug, USUAL_TIER))
    offer = _offer(known, row.slug, price)
    prices = _prices(question, price, offer)
    best = cheapest(load, own, prices)
    asked = {CHEAPEST: best, PRESENT: (own, 0), TRIED: question.tried}
    return ClassMix(
        gpu_class=row.slug,
        label=row.label,
        starts=needed.starts,
        ends=needed.ends,
        hours=needed.hours,
        gpu_hours=Decimal(str(round(float(load.sum()), 3))),
        peak=Decimal(str(round(float(load.max(initial=0.0)), 3))),
        never_ran=needed.never_ran.get(row.slug, NeverRan()),
        own=own,
        prices=prices,
        lead_seconds=offer.lead_seconds if offer else None,
        mixes=tuple(mix_made(name, load, *gpus, prices) for name, gpus in asked.items() if gpus is not None),
        load=load,
    )


def _offer(known: list[Offer], gpu_class: str, price: CurrentPrice | None) -> Offer | None:
    """The offer with the cheapest GPU-hour in the currency of the price; one that its provider may not take
    back, if there is one."""
    fitting = [
        each
        for each in known
        if each.gpu_class == gpu_class and (price is None or each.currency == price.currency)
    ]
    return min(fitting, key=lambda each: (each.interruptible, each.per_gpu_hour, each.name), default=None)


def _prices(question: Question, price: CurrentPrice | None, offer: Offer | None) -> Prices:
    given = question.prices
    found = {
        "own": price.rate(UNITS_PER_GPU).plain if price else None,
        "reserved": offer.reserved_per_gpu_hour if offer else None,
        "burst": offer.per_gpu_hour if offer else None,
    }
    own, reserved, burst = (found[kind] if given[kind] is None else given[kind] for kind in found)
    currency = price.currency if price else offer.currency if offer else ""
    return Prices(own, reserved, burst, currency)


def _own(whose: Whose, gpu_class: str) -> int:
    """The site's GPUs of a class, or as many as quotas let the bookings have at once."""
    there = Gpu.objects.filter(gpu_class=gpu_class, node__pool="").aggregate(found=Count("id"))["found"]
    if whose.tenant_id is None:
        return int(there)
    quotas = Quota.objects.filter(tenant_id=whose.tenant_id, gpu_class=gpu_class)
    most = {each.project_id: _limit(each, int(there)) for each in quotas}
    of_projects = sum(most.get(each, int(there)) for each in whose.projects or ())
    limits = [int(there), most.get(None, int(there))]
    return min(limits if whose.projects is None else [*limits, of_projects])


def _limit(quota: Quota, there: int) -> int:
    if quota.borrow_limit_units is None:
        return there
    return (quota.guaranteed_units + quota.borrow_limit_units) // UNITS_PER_GPU
