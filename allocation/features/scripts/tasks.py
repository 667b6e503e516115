"""The task of scripts."""

from celery import shared_task
from django.utils import timezone

from allocation.features.scripts.endings import ended_turn
from allocation.features.scripts.services import TASK
from tenants.outbox import task_request_clear


@shared_task(name=TASK, ignore_result=True)
def scripts_end() -> None:
    """Ends the bookings whose scripts have ended."""
    task_request_clear(TASK)
    ended_turn(timezone.now())
