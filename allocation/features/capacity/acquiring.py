"""Machines that plans ask for: committed and recorded first, requested afterwards, found again.

A kill between the request and its record loses nothing: the name of the machine is recorded before,
and the next turn finds it in what the provider lists.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID, uuid4

from django.db import transaction

from allocation.features.capacity.models import CapacityMachine, CapacityPlan
from allocation.features.capacity.money import committed
from allocation.features.capacity.nodes import boot_script, node_expect
from allocation.features.capacity.pooling import gpus_wanted
from allocation.features.capacity.providers import (
    Listed,
    Machines,
    Provider,
    ProviderFailed,
    providers,
)
from allocation.features.capacity.rules import Offer, best_offer, late_after
from allocation.queries.fleet.stops import stops_covering

logger = logging.getLogger(__name__)
State = CapacityMachine.State
NOTE_LENGTH = 300
# A request whose answer was lost may still appear at the provider.
ASK_AGAIN_AFTER = timedelta(seconds=30)


def machines_plan(now: datetime) -> int:
    """Records the machines that active plans need; returns how many."""
    active = CapacityPlan.objects.filter(
        state=CapacityPlan.State.ACTIVE, starts__lte=now, until__gt=now
    ).order_by("created", "id")
    return sum(_machines_of(plan_id, now) for plan_id in list(active.values_list("id", flat=True)))


def _machines_of(plan_id: UUID, now: datetime) -> int:
    made = 0
    with transaction.atomic():
        plan = CapacityPlan.objects.select_for_update().get(id=plan_id)
        if plan.state != plan.State.ACTIVE or stops_covering(plan.tenant_id, "", (plan.gpu_class_id,), now):
            return 0
        there = sum(each.gpus for each in plan.machines.filter(state__in=(State.REQUESTED, State.BOOTING)))
        missing = gpus_wanted(plan, now) - there
        while missing > 0:
            machine = _machine_make(plan, missing, now)
            if machine is None:
                break
            missing, made = missing - machine.gpus, made + 1
    return made


def _machine_make(plan: CapacityPlan, gpus: int, now: datetime) -> CapacityMachine | None:
    """The record of one machine, with its money; None if no provider has room or money for it."""
    for provider, offer, slot in _possible(plan, gpus):
        cost = offer.cost(0)
        if not committed(plan, provider, cost, now):
            continue
        return CapacityMachine.objects.create(
            tenant_id=plan.tenant_id,
            plan=plan,
            provider=provider.name,
            offer=offer.name,
            name=f"{provider.prefix}{slot}-{uuid4().hex[:8]}",
            node=f"{provider.name}-{slot}",
            slot=slot,
            most=provider.most_machines,
            gpu_class_id=offer.gpu_class,
            gpus=offer.gpus,
            zone=offer.zone,
            interruptible=offer.interruptible,
            price=offer.price,
            currency=offer.currency,
            least_seconds=offer.least_seconds,
            period_seconds=offer.period_seconds,
            state=State.REQUESTED,
            requested=now,
            due=late_after(now, offer.lead_seconds),
            cost=cost,
        )
    return None


def _possible(plan: CapacityPlan, gpus: int) -> Sequence[tuple[Provider, Offer, int]]:
    """Offers with a free slot, the cheapest first."""
    found: list[tuple[Provider, Offer, int]] = []
    for provider in providers():
        own = [each for each in provider.offers if each.currency == plan.currency]
        offer = best_offer(own, plan.gpu_class_id, gpus, 0)
        taken = set(
            CapacityMachine.objects.filter(
                provider=provider.name, state__in=CapacityMachine.OPEN
            ).values_list("slot", flat=True)
        )
        free = next((slot for slot in range(1, provider.most_machines + 1) if slot not in taken), None)
        if offer is not None and free is not None:
            found.append((provider, offer, free))
    return sorted(found, key=lambda each: (_cost(each[1], gpus), each[0].name))


def _cost(offer: Offer, gpus: int) -> Decimal:
    return offer.cost(0) * offer.machines_for(gpus)


def machines_request(
    opened: Callable[[Provider], Machines],
    by_name: Mapping[str, Provider],
    listed: Mapping[str, Sequence[Listed]],
    now: datetime,
) -> int:
    """Requests recorded machines from their providers, unless they are there already; returns how many."""
    done = 0
    waiting = CapacityMachine.objects.filter(state=State.REQUESTED, provider__in=listed)
    for machine in waiting.select_related("plan").order_by("requested", "id"):
        provider = by_name[machine.provider]
        found = [each for each in listed[machine.provider] if each.name == machine.name]
        if found:
            machine_known(machine, min(each.id for each in found), now)
        elif _is_to_be_asked(machine, now):
            done += _request(machine, provider, opened(provider), now)
    return done


def _is_to_be_asked(machine: CapacityMachine, now: datetime) -> bool:
    return machine.asked is None or now - machine.asked >= ASK_AGAIN_AFTER


def _request(machine: CapacityMachine, provider: Provider, at: Machines, now: datetime) -> int:
    offer = next((each for each in provider.offers if each.name == machine.offer), None)
    with transaction.atomic():
        locked = (
            CapacityMachine.objects.select_for_update(of=("self",)).select_related("plan").get(id=machine.id)
        )
        if locked.state != State.REQUESTED or locked.plan is None:
            return 0
        if offer is None or locked.plan.state != CapacityPlan.State.ACTIVE:
            return 0
        token = node_expect(locked, now)
        locked.asked = now
        locked.save(update_fields=["asked"])
    try:
        identifier = at.acquire(machine.name, offer, boot_script(provider, machine.node, token))
    except ProviderFailed as error:
        logger.warning("%s", error)
        CapacityMachine.objects.filter(id=machine.id).update(note=str(error)[:NOTE_LENGTH])
        return 0
    machine_known(machine, identifier, now)
    return 1


def machine_known(machine: CapacityMachine, identifier: str, now: datetime) -> None:
    """Records the id that a provider gave to a machine."""
    CapacityMachine.objects.filter(id=machine.id, state=State.REQUESTED).update(
        provider_id=identifier, state=State.BOOTING, note=""
    )
    logger.info("%s is %s at %s since %s", machine.name, identifier, machine.provider, now)
