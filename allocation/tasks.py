"""Celery's way in. Every task is safe to run twice: the database is the truth."""

from celery import shared_task
from django.utils import timezone

from allocation.services.cycle import cycle_run, tick_run
from allocation.services.publish import publish_due
from allocation.services.stalls import stalls_tell
from allocation.services.telemetry import telemetry_sweep, use_roll
from allocation.services.watch import invariants_watch
from tenants.outbox import nudge_taken


@shared_task(name="allocation.cycle")
def allocation_cycle() -> None:
    """One turn of the decision-maker."""
    nudge_taken("allocation.cycle")
    cycle_run(timezone.now())


@shared_task(name="allocation.tick")
def allocation_tick() -> None:
    """A turn if the clock asks for one: this is what starts and ends bookings on time."""
    tick_run(timezone.now())


@shared_task(name="allocation.publish")
def allocation_publish() -> None:
    """Writes assignments that were not written yet."""
    nudge_taken("allocation.publish")
    publish_due(timezone.now())


@shared_task(name="allocation.stalls")
def allocation_stalls() -> None:
    """Tells who waits for a node that does not get anything ready."""
    stalls_tell(timezone.now())


@shared_task(name="allocation.telemetry")
def allocation_telemetry() -> None:
    """Rolls readings up into five-minute rows, and removes what is older than it is useful."""
    now = timezone.now()
    use_roll(now)
    telemetry_sweep(now)


@shared_task(name="allocation.invariants")
def allocation_invariants() -> None:
    """Asks whether every promise holds; the answer is at /statusz."""
    nudge_taken("allocation.invariants")
    invariants_watch(timezone.now())
