"""The demo site: its catalogue, hardware, people, money, and two weeks of bookings around today.

The portal's own services create all bookings, runs, pauses and charges: on the first start the
past week is simulated with their clock.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path

from django.db import transaction
from django.db.models import Max

from allocation.models import Booking, BookingEvent, GpuModel, WorkSpeed
from allocation.rules.site.known_models import KnownModel, known_catalogue
from billing.models import PriceBook
from billing.rules import midnight
from billing.services import price_book_publish
from devtools.demo.features import (
    approval_rule_made,
    current_requests,
    feature_actions,
    jira_connected,
    maintenance_planned,
    series_asked,
    service_account_made,
    sprint_begun,
    view_made,
    webhook_made,
)
from devtools.demo.history import history_simulate
from devtools.demo.nodes import DemoFleet, energy_seed, nodes_enrol, zones_seed
from devtools.demo.people import credentials_write, people_seed
from devtools.demo.use import progress_write, use_write
from devtools.demo.week import People, booking_actions, day_plans, opening_plans
from devtools.demo.workloads import workload_actions
from devtools.simulated.models import Model, models_load
from tenants.audit import audit_record
from tenants.models import AuditEntry, GpuClass, Tenant, Tier
from tenants.platform.errors import Refused

# The models that the demo's nodes have; each gets a class of its own.
MODELS = ("h100-80gb", "a100-80gb", "a100-40gb", "l40s", "host-core")
# What happens to idle GPUs for which somebody waits; other tiers only warn.
IDLE_ACTIONS = {"spot": Tier.IdleAction.PAUSE}


def catalogue_seed(now: datetime) -> None:
    """Creates missing classes, tiers, models, speeds of work and prices."""
    catalogue = known_catalogue()
    shipped = [catalogue.models[slug] for slug in MODELS]
    for order, model in enumerate(shipped):
        given = {"label": model.label, "order": order, "kind": model.kind}
        GpuClass.objects.get_or_create(slug=model.gpu_class, defaults=given)
    for tier in catalogue.tiers.values():
        idle = {"idle_action": IDLE_ACTIONS[tier.slug]} if tier.slug in IDLE_ACTIONS else {}
        Tier.objects.get_or_create(slug=tier.slug, defaults={**tier.terms, **idle})
    simulated = {model.name: model for model in models_load().values()}
    for model in shipped:
        _model_seed(model, simulated[model.names[0]])
    if not WorkSpeed.objects.exists():
        speeds = catalogue.speeds(model.gpu_class for model in shipped)
        WorkSpeed.objects.bulk_create(
            WorkSpeed(workload=workload, gpu_class_id=slug, thousandths=thousandths)
            for workload, of_class in speeds.items()
            for slug, thousandths in of_class.items()
        )
    _prices_seed(shipped, now)


def _model_seed(known: KnownModel, model: Model) -> None:
    GpuModel.objects.get_or_create(
        slug=known.slug,
        defaults={
            "product_name": model.name,
            "gpu_class_id": known.gpu_class,
            "memory_mb": model.memory_mb,
            "mode_switch": known.mode_switch,
            "switch_seconds": known.reset_seconds,
        },
    )


def _prices_seed(models: list[KnownModel], now: datetime) -> None:
    if PriceBook.objects.exists():
        return
    catalogue = known_catalogue()
    begin = (now - timedelta(days=62)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    price_book_publish(
        actor_id=None,
        valid_from=begin,
        prices={
            (model.gpu_class, tier): catalogue.price(model, tier)
            for model in models
            for tier in catalogue.tiers
        },
        note="The first price book",
        now=begin,
    )


PAST_DAYS = 7
COMING_DAYS = 7
MARK = "demo.filled"
MINUTE = timedelta(minutes=1)


def seed(*, now: datetime, path: Path, url: str) -> int:
    """Creates what is missing; returns the number of new bookings.

    The first start simulates the past week; after an interrupted start the next one continues. The
    first start of a later day requests the bookings of that day and of newly reached days. Must
    run as the database's owner, who sees every tenant, outside a transaction.
    """
    now = now.replace(microsecond=0)
    today = now.astimezone(UTC).date()
    begin = midnight(today - timedelta(days=PAST_DAYS + 1))
    before = Booking.objects.count()
    is_first = not AuditEntry.objects.filter(action=MARK).exists()
    catalogue_seed(begin)
    people_seed(today, begin if is_first else now)
    if is_first:
        nodes_enrol(begin)
        zones_seed(begin)
        _past(begin, now.replace(second=0), today)
        energy_seed(now)
    if not _is_marked("asked", today):
        _today(now, today)
        _mark("asked", today, now)
    credentials_write(path, url, now)
    return Booking.objects.count() - before


def _past(begin: datetime, edge: datetime, today: date) -> None:
    """Simulates the past, from the last event on if an earlier start was interrupted."""
    last = BookingEvent.objects.aggregate(at=Max("at"))["at"]
    people = People(set())
    fleet = DemoFleet(people.no_shows)
    plans = [plan for day in _days(today, -PAST_DAYS) for plan in day_plans(day, edge)]
    acts = [
        *booking_actions(people, (*plans, *opening_plans(edge))),
        *feature_actions(people, fleet, today),
        *workload_actions(people, today, progress_write),
    ]
    history_simulate(acts, fleet, since=max(begin, last or begin), until=edge)
    use_write(edge)
    progress_write(edge)
    fleet.finish(edge)
    for day in _days(today, 0):
        _mark("planned", day, edge)


def _today(now: datetime, today: date) -> None:
    """Requests the bookings of the day; the portal decides on them when it runs."""
    people = People(set())
    soon = now.replace(second=0) + MINUTE
    lines = [plan.line for plan in opening_plans(soon)]
    for day in _days(today, 0):
        if not _is_marked("planned", day):
            lines += [plan.line for plan in day_plans(day, soon)]
            _mark("planned", day, now)
    approval_rule_made(now)
    for line in (*lines, *current_requests(today)):
        with suppress(Refused), transaction.atomic():
            people.book(line, now)
    planned = partial(maintenance_planned, today + timedelta(days=2))
    made = (webhook_made, view_made, service_account_made, jira_connected, sprint_begun)
    for ask in (series_asked, planned, *made):
        with suppress(Refused), transaction.atomic():
            ask(now)


def _days(today: date, first: int) -> Iterator[date]:
    return (today + timedelta(days=offset) for offset in range(first, COMING_DAYS))


def _is_marked(kind: str, day: date) -> bool:
    return AuditEntry.objects.filter(action=MARK, object_kind=kind, object_id=day.isoformat()).exists()


def _mark(kind: str, day: date, now: datetime) -> None:
    tenant = Tenant.objects.get(slug="helix")
    target = (kind, day.isoformat())
    audit_record(tenant_id=tenant.id, actor_id=None, action=MARK, target=target, now=now)
