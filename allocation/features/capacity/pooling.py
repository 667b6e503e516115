"""Which waiting bookings of a project go to the machines of its plan."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from allocation.features.capacity.models import CapacityMachine, CapacityPlan
from allocation.features.capacity.money import paid_longer
from allocation.features.capacity.providers import Provider, offers
from allocation.features.capacity.rules import Offer, best_offer
from allocation.models import Booking, Pause
from allocation.rules.ask import count_asked
from allocation.rules.states import OPEN, PLANNED_TIMES, State
from allocation.services.record.history import Event
from allocation.services.record.open_pauses import MACHINE_LEAVES
from allocation.services.record.open_pauses import OPEN as OPEN_PAUSE
from allocation.services.runs.transition import booking_change, booking_lock
from allocation.words.events import event_text
from tenants.outbox import task_request

# Who starts on own GPUs within so long does not go to a rented one.
WORTH_WAITING = timedelta(minutes=2)
# A booking is handed over and cleared away within so long, beyond its own time.
AROUND = timedelta(minutes=2)
MOST_READ = 200


def gpus_wanted(plan: CapacityPlan, now: datetime) -> int:
    """How many GPUs a plan needs beyond those of its machines that are ready.

    What a person asks for comes once at its time; later, and for other sources, as many as waiting
    bookings need.
    """
    ready = plan.machines.filter(state=CapacityMachine.State.READY)
    there = sum(each.gpus for each in ready)
    is_first = plan.source == plan.Source.PERSON and not plan.machines.exists()
    if is_first:
        return plan.gpus
    known = offers()
    waiting = sum(
        count_asked(each.ask) for each in candidates(plan, now) if _is_affordable(each, plan, known)
    )
    free = there - gpus_taken(plan)
    coming = sum(
        each.gpus
        for each in plan.machines.filter(
            state__in=(CapacityMachine.State.DRAINING, CapacityMachine.State.RELEASING)
        )
    )
    return min(max(0, waiting - free), plan.gpus - there - coming)


def _is_affordable(row: Booking, plan: CapacityPlan, known: list[Offer]) -> bool:
    """Whether the money of the plan is enough for machines that a booking would use alone."""
    length = row.duration_seconds + 2 * AROUND.total_seconds()
    offer = best_offer(known, plan.gpu_class_id, count_asked(row.ask), length)
    return offer is not None and offer.cost(length) * offer.machines_for(count_asked(row.ask)) <= plan.left


def gpus_taken(plan: CapacityPlan) -> int:
    """GPUs that open bookings of the plan's pool have or will have."""
    return sum(count_asked(each.ask) for each in pooled_bookings(plan))


def pooled_bookings(plan: CapacityPlan) -> QuerySet[Booking]:
    """The open bookings in a plan's pool."""
    return Booking.objects.filter(tenant_id=plan.tenant_id, pool=plan.pool, state__in=OPEN)


# What was paused because its machine left has nothing on other GPUs; other paused work may have.
_LEFT = Pause.objects.filter(OPEN_PAUSE, rule=MACHINE_LEAVES, booking=OuterRef("id"))
_MOVABLE = Q(state=State.QUEUED) | Q(Exists(_LEFT), state=State.PAUSED)


def candidates(plan: CapacityPlan, now: datetime) -> Iterator[Booking]:
    """Bookings that would start or resume earlier on a machine of the plan, in their queue's order."""
    soon = now + WORTH_WAITING
    rows = Booking.objects.filter(
        Q(planned_starts=None) | Q(planned_starts__gt=soon),
        _MOVABLE,
        tenant_id=plan.tenant_id,
        project_id=plan.project_id,
        pool="",
        starts=None,
        not_before__lte=soon,
        is_drained=False,
        awaits_parents=False,
        extension_until=None,
    )
    if plan.booking_id is not None:
        rows = rows.filter(id=plan.booking_id)
    for row in rows.select_related("tier").order_by("-tier__priority", "submitted", "id")[:MOST_READ]:
        if _fits(row, plan):
            yield row


def _fits(row: Booking, plan: CapacityPlan) -> bool:
    """Whole GPUs of the plan's class, few enough for it."""
    ask = row.ask
    special = ("profile", "share", "groups", "pin", "zones", "not_zones", "storage", "scratch")
    is_plain = not any(ask.get(name) for name in special)
    return is_plain and plan.gpu_class_id in ask["classes"] and ask["count"] <= plan.gpus


def bookings_pool(plan_id: UUID, by_name: dict[str, Provider], now: datetime) -> int:
    """Moves waiting bookings into the pool of a plan with free GPUs, as far as its money goes."""
    moved = 0
    with transaction.atomic():
        plan = CapacityPlan.objects.select_for_update().get(id=plan_id)
        machines = list(
            plan.machines.select_for_update().filter(state=CapacityMachine.State.READY).order_by("slot")
        )
        free = sum(each.gpus for each in machines) - gpus_taken(plan)
        if plan.state != plan.State.ACTIVE or free <= 0:
            return 0
        for row in candidates(plan, now):
            if row.ask["count"] > free:
                continue
            ends = now + timedelta(seconds=row.duration_seconds) + AROUND
            needed = _machines_for(machines, row.ask["count"])
            if ends > plan.until + AROUND or not all(
                _pays(plan, each, by_name, ends, now) for each in needed
            ):
                continue
            _pool(row, plan, now)
            free, moved = free - row.ask["count"], moved + 1
    if moved:
        task_request("allocation.cycle")
    return moved


def _machines_for(machines: list[CapacityMachine], gpus: int) -> list[CapacityMachine]:
    """The first machines that have so many GPUs together."""
    found: list[CapacityMachine] = []
    for each in machines:
        if sum(one.gpus for one in found) >= gpus:
            break
        found.append(each)
    return found


def _pays(
    plan: CapacityPlan, machine: CapacityMachine, by_name: dict[str, Provider], ends: datetime, now: datetime
) -> bool:
    provider = by_name.get(machine.provider)
    return provider is not None and paid_longer(plan, machine, provider, ends, now)


def _pool(row: Booking, plan: CapacityPlan, now: datetime) -> None:
    booking = booking_lock(row.id)
    if booking.state not in (State.QUEUED, State.PAUSED) or booking.pool:
        return
    text = event_text("burst", gpu_class=plan.gpu_class_id)
    booking_change(
        booking,
        event=Event("moved", text, detail={"plan": str(plan.id)}),
        now=now,
        pool=plan.pool,
        **_UNPLANNED,
    )


# What was planned and announced was on other GPUs.
_UNPLANNED: dict[str, object] = {**dict.fromkeys(PLANNED_TIMES), "planned_places": []}


def bookings_unpool(plan: CapacityPlan, now: datetime) -> int:
    """Returns bookings that wait in a plan's pool to the site's own GPUs; returns how many."""
    waiting = pooled_bookings(plan).filter(state__in=(State.QUEUED, State.PAUSED))
    keys = list(waiting.order_by("id").values_list("id", flat=True))
    for key in keys:
        booking = booking_lock(key)
        if booking.pool == plan.pool and booking.state in (State.QUEUED, State.PAUSED):
            booking_change(
                booking,
                event=Event("moved", event_text("burst_over"), detail={"plan": str(plan.id)}),
                now=now,
                pool="",
                **_UNPLANNED,
            )
    if keys:
        task_request("allocation.cycle")
    return len(keys)
