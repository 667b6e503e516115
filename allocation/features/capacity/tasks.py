"""The task of capacity."""

from celery import shared_task
from django.utils import timezone

from allocation.features.capacity.services import TASK
from allocation.features.capacity.turn import capacity_turn
from tenants.outbox import task_request_clear


@shared_task(name=TASK, ignore_result=True)
def capacity_turn_run() -> None:
    """Runs a turn: asks providers, and takes each machine one step further."""
    task_request_clear(TASK)
    capacity_turn(timezone.now())
