"""The task of notebooks."""

from celery import shared_task
from django.utils import timezone

from allocation.features.notebooks.services import TASK, orders_turn
from allocation.services.publish.publish import publish_due
from tenants.outbox import task_request_clear


@shared_task(name=TASK, ignore_result=True)
def notebook_orders() -> None:
    """Brings what is asked for to the nodes."""
    task_request_clear(TASK)
    now = timezone.now()
    orders_turn(now)
    publish_due(now)
