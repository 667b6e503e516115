"""Machines from their boot to their end: they join, are paid on, are drained and given back."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from allocation.features.capacity.leaving import leaving_work_pause, machine_leaves
from allocation.features.capacity.models import CapacityMachine, CapacityPlan
from allocation.features.capacity.money import machine_settle, paid_longer
from allocation.features.capacity.nodes import fault_of, is_empty, node_drain_at, node_gone
from allocation.features.capacity.pooling import bookings_unpool, candidates, pooled_bookings
from allocation.features.capacity.providers import Listed, Machines, Provider, ProviderFailed
from allocation.features.capacity.rules import GIVE_BACK_BEFORE
from allocation.models import Booking, Node
from allocation.rules.states import ON_HARDWARE
from allocation.services.operate.drain import fence_places
from allocation.services.runs.end import allocation_empty
from allocation.services.runs.interrupt import Interruption, run_interrupt
from allocation.words.events import event_text

logger = logging.getLogger(__name__)
State = CapacityMachine.State
NOTE_LENGTH = 300
# A provider that lists a machine so long after it was given back has not released it.
STAYS_AFTER = timedelta(minutes=5)
TAKEN_BACK = "Its provider takes it back."
Listing = Mapping[str, Sequence[Listed]]


def machine_watch(machine_id: UUID, by_name: Mapping[str, Provider], listed: Listing, now: datetime) -> str:
    """Takes one machine one step further in a transaction of its own; returns its state."""
    with transaction.atomic():
        machine = CapacityMachine.objects.select_for_update().get(id=machine_id)
        if machine.plan_id is None or machine.provider not in listed:
            return machine.state
        plan = CapacityPlan.objects.select_for_update().get(id=machine.plan_id)
        machine.plan = plan
        provider = by_name[machine.provider]
        found = next((each for each in listed[machine.provider] if each.id == machine.provider_id), None)
        step = _STEPS.get(State(machine.state))
        if step is not None:
            step(plan, machine, provider, found, now)
        return machine.state


def _move(machine: CapacityMachine, state: str, *names: str, note: str | None = None) -> None:
    machine.state = state
    if note is not None:
        machine.note = note[:NOTE_LENGTH]
    machine.save(update_fields=["state", "note", *names])


def _requested(
    plan: CapacityPlan, machine: CapacityMachine, provider: Provider, found: Listed | None, now: datetime
) -> None:
    """A machine that no provider has when its plan is over, or when it is late, is given up."""
    is_late = machine.due is not None and now > machine.due
    if plan.state == plan.State.ACTIVE and not is_late:
        return
    why = machine.note or ("It did not come." if is_late else "Its plan is over.")
    _end(plan, machine, State.LOST if is_late else State.RELEASED, why, now)


def _booting(
    plan: CapacityPlan, machine: CapacityMachine, provider: Provider, found: Listed | None, now: datetime
) -> None:
    if found is not None and found.is_running and machine.came is None:
        machine.came = now
        machine.paid_until = now + timedelta(seconds=machine.least_seconds)
        machine.save(update_fields=["came", "paid_until"])
    fault = fault_of(machine)
    leaves = found is not None and found.leaves is not None
    if fault == "" and plan.state == plan.State.ACTIVE and not leaves:
        if machine.came is None:
            machine.came, machine.paid_until = now, now + timedelta(seconds=machine.least_seconds)
        machine.ready = now
        _move(machine, State.READY, "ready", "came", "paid_until", note="")
        return
    why = _why_not_ready(plan, machine, found, fault, now)
    if why:
        _leave(machine, why, now)


def _why_not_ready(
    plan: CapacityPlan, machine: CapacityMachine, found: Listed | None, fault: str | None, now: datetime
) -> str:
    """Why a machine that boots is given up; "" while it may still join."""
    if found is not None and found.leaves is not None:
        return TAKEN_BACK
    if found is not None and found.has_failed:
        return "The provider could not start it."
    if fault:
        return f"It takes no work: {fault}"
    if machine.due is not None and now > machine.due:
        return "It did not join in time."
    return "" if plan.state == plan.State.ACTIVE else "Its plan is over."


def _ready(
    plan: CapacityPlan, machine: CapacityMachine, provider: Provider, found: Listed | None, now: datetime
) -> None:
    if found is None:
        _lost(plan, machine, now)
        return
    if found.leaves is not None:
        _taken_back(machine, found.leaves, now)
        return
    if machine.paid_until is None or now < machine.paid_until - GIVE_BACK_BEFORE:
        return
    if not _is_needed(plan, machine, now):
        _leave(machine, "Nothing is planned on it.", now)
        return
    if not paid_longer(plan, machine, provider, machine.paid_until + GIVE_BACK_BEFORE, now):
        machine.note = "The money of its plan is used up."
        node_drain_at(machine, machine.paid_until, now)
        _move(machine, State.DRAINING)


def _taken_back(machine: CapacityMachine, leaves: datetime, now: datetime) -> None:
    """Drains a machine whose provider has given notice, and pauses what runs there before it goes."""
    if machine.leaves is None or leaves < machine.leaves:
        machine.note = TAKEN_BACK
        machine_leaves(machine, leaves, now)
        _move(machine, State.DRAINING)
    leaving_work_pause(machine, now)


def _is_needed(plan: CapacityPlan, machine: CapacityMachine, now: datetime) -> bool:
    """Whether something runs or is planned on it, or a booking waits for it. The bookings of a plan
    with other machines can be on them."""
    if not is_empty(machine):
        return True
    if plan.state != plan.State.ACTIVE or now >= plan.until:
        return False
    waiting = pooled_bookings(plan).exclude(state__in=ON_HARDWARE).exists()
    return waiting or next(candidates(plan, now), None) is not None


def _leave(machine: CapacityMachine, why: str, now: datetime) -> None:
    machine.note = why[:NOTE_LENGTH]
    node_drain_at(machine, None, now)
    _move(machine, State.DRAINING)


def _draining(
    plan: CapacityPlan, machine: CapacityMachine, provider: Provider, found: Listed | None, now: datetime
) -> None:
    if found is None and machine.came is not None:
        _lost(plan, machine, now)
        return
    if found is not None and found.leaves is not None:
        _taken_back(machine, found.leaves, now)
    if is_empty(machine):
        node_gone(machine, now)
        machine.due = now + STAYS_AFTER
        _move(machine, State.RELEASING, "due")


def _releasing(
    plan: CapacityPlan, machine: CapacityMachine, provider: Provider, found: Listed | None, now: datetime
) -> None:
    if found is None:
        _end(plan, machine, State.RELEASED, machine.note, now)
    elif machine.due is not None and now > machine.due and "still there" not in machine.note:
        logger.error("%s is still at %s after it was given back", machine.name, machine.provider)
        _move(machine, State.RELEASING, note=f"{machine.note} It was given back and is still there.")


_STEPS = {
    State.REQUESTED: _requested,
    State.BOOTING: _booting,
    State.READY: _ready,
    State.DRAINING: _draining,
    State.RELEASING: _releasing,
}


def _lost(plan: CapacityPlan, machine: CapacityMachine, now: datetime) -> None:
    """The provider has a machine no more: nothing runs on it. Its work starts again elsewhere."""
    bookings = Booking.objects.filter(
        allocations__gpu__node__name=machine.node, state__in=("starting", "active", "pausing"), pool=plan.pool
    )
    cause = Interruption("R62", event_text("node_off", node=machine.node))
    for key in list(bookings.distinct().order_by("id").values_list("id", flat=True)):
        run_interrupt(key, cause, now)
    places_close(machine, now)
    node_gone(machine, now)
    why = "Its provider has it no more." if machine.leaves is None else "Its provider took it back."
    _end(plan, machine, State.LOST, why, now)


def places_close(machine: CapacityMachine, now: datetime) -> None:
    """Closes what was open on a machine that is off."""
    node = Node.objects.filter(name=machine.node).first()
    if node is None:
        return
    for key in list(fence_places(node, None).order_by("booking_id", "id").values_list("id", flat=True)):
        allocation_empty(key, now)


def _end(plan: CapacityPlan, machine: CapacityMachine, state: str, why: str, now: datetime) -> None:
    machine.released = now
    _move(machine, state, "released", note=why)
    machine_settle(plan, machine, now)
    if not plan.machines.filter(state=State.READY).exists():
        bookings_unpool(plan, now)


def machines_give_back(
    opened: Callable[[Provider], Machines], by_name: Mapping[str, Provider], listed: Listing
) -> int:
    """Gives machines back to their providers, as long as those list them; returns how many."""
    done = 0
    for machine in CapacityMachine.objects.filter(state=State.RELEASING, provider__in=listed).order_by(
        "requested"
    ):
        if any(each.id == machine.provider_id for each in listed[machine.provider]):
            try:
                opened(by_name[machine.provider]).release(machine.provider_id)
            except ProviderFailed as error:
                logger.warning("%s", error)
            else:
                done += 1
    return done
