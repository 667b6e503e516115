"""Money of plans and machines: held for a plan, committed for paid periods, charged at the end."""

from collections import defaultdict
from datetime import datetime, timedelta
from decimal import Decimal

from allocation.features.capacity.models import CapacityMachine, CapacityPlan, CapacitySpend
from allocation.features.capacity.providers import Provider
from allocation.features.capacity.rules import cost_of, paid_seconds
from allocation.models import Allocation
from allocation.words.refusals import refusal_text
from billing.rules import ledger_amount
from billing.services import (
    Charge,
    HoldRequest,
    hold_release,
    hold_settle_partially,
    new_holds_place,
)
from billing.services.guardrails import STOPPING, approval_needed
from tenants.platform.errors import Refused

FEE = "burst"
_NOTHING = Decimal(0)


def plan_hold(plan: CapacityPlan, now: datetime) -> None:
    """Holds the money of a plan; a ladder of a budget has its say as on a booking.

    Raises:
        Refused: `no_budget`, `budget_exceeded`, `bookings_stopped` or `approval_needed`.
    """
    request = HoldRequest(plan.id, plan.most_cost, max(plan.starts, now), plan.until, plan.created_by_id)
    held = new_holds_place(tenant_id=plan.tenant_id, project_id=plan.project_id, requests=[request], now=now)
    for refusal in held.refused.values():
        raise refusal
    for rung, effect in held.asking:
        raise approval_needed(rung, effect)
    if held.restraints.get(plan.id) in STOPPING:
        raise Refused("bookings_stopped", refusal_text("capacity_stopped"), "budget")


def plan_release(plan: CapacityPlan, now: datetime) -> None:
    """Gives the rest of a plan's money back."""
    hold_release(tenant_id=plan.tenant_id, reference=plan.id, now=now)


def committed(plan: CapacityPlan, provider: Provider, amount: Decimal, now: datetime) -> bool:
    """Commits money of a locked plan and of the provider's month; False if either has too little."""
    if amount > plan.left:
        return False
    spend = _month(provider, now)
    if spend.committed + amount > spend.most:
        return False
    spend.committed += amount
    spend.save(update_fields=["committed", "most"])
    plan.committed += amount
    plan.save(update_fields=["committed"])
    return True


def _month(provider: Provider, at: datetime) -> CapacitySpend:
    facts = {"provider": provider.name, "month": at.date().replace(day=1)}
    CapacitySpend.objects.get_or_create(**facts, defaults={"most": provider.most_cost})
    found = CapacitySpend.objects.select_for_update().get(**facts)
    # An operator may lower it below what is committed already.
    found.most = max(provider.most_cost, found.committed)
    return found


def paid_longer(
    plan: CapacityPlan, machine: CapacityMachine, provider: Provider, until: datetime, now: datetime
) -> bool:
    """Pays a locked machine until at least this time; False if the money is too little for it."""
    began = machine.came or machine.requested
    seconds = paid_seconds((until - began).total_seconds(), machine.least_seconds, machine.period_seconds)
    cost = cost_of(machine.price, seconds)
    if cost > machine.cost:
        if not committed(plan, provider, cost - machine.cost, now):
            return False
        machine.cost = cost
    machine.paid_until = max(machine.paid_until or began, began + timedelta(seconds=seconds))
    machine.save(update_fields=["cost", "paid_until"])
    return True


def machine_settle(plan: CapacityPlan, machine: CapacityMachine, now: datetime) -> None:
    """Charges what a machine that is gone cost beyond what bookings paid on it.

    Periods that were committed and not begun are given back, to the plan and to the month.
    """
    cost = _NOTHING
    if machine.came is not None:
        kept = ((machine.released or now) - machine.came).total_seconds()
        seconds = paid_seconds(kept, machine.least_seconds, machine.period_seconds)
        cost = min(machine.cost, cost_of(machine.price, seconds))
    back, machine.cost = machine.cost - cost, cost
    machine.save(update_fields=["cost"])
    spends = CapacitySpend.objects.select_for_update()
    spend = spends.filter(provider=machine.provider, month=machine.requested.date().replace(day=1)).first()
    if spend is not None and back:
        spend.committed = max(_NOTHING, spend.committed - back)
        spend.save(update_fields=["committed"])
    net = ledger_amount(max(_NOTHING, cost - paid_by_bookings(plan, machine)))
    plan.committed -= back
    keep = _open_cost(plan) + (plan.left if plan.state in CapacityPlan.OPEN else _NOTHING)
    charged, _ = hold_settle_partially(
        tenant_id=plan.tenant_id, reference=plan.id, amount=Charge(net, fee=FEE), keep=keep, now=now
    )
    plan.charged += charged
    plan.save(update_fields=["committed", "charged"])


def _open_cost(plan: CapacityPlan) -> Decimal:
    return sum((each.cost for each in plan.machines.filter(state__in=CapacityMachine.OPEN)), _NOTHING)


def paid_by_bookings(plan: CapacityPlan, machine: CapacityMachine) -> Decimal:
    """What bookings of the plan were charged for their time on a machine."""
    mine = Allocation.objects.filter(
        gpu__node__name=machine.node,
        booking__pool=plan.pool,
        state=Allocation.State.ENDED,
        period__startswith__gte=machine.requested,
    )
    on_it: dict[object, int] = defaultdict(int)
    bookings = {}
    for row in mine.select_related("booking"):
        on_it[row.booking_id] += 1
        bookings[row.booking_id] = row.booking
    total = _NOTHING
    for key, booking in bookings.items():
        every = booking.allocations.filter(state=Allocation.State.ENDED).count()
        paid = booking.settled if booking.charged is None else booking.charged
        total += paid * on_it[key] / every
    return total
