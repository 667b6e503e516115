"""The task of host cores."""

from celery import shared_task
from django.utils import timezone

from allocation.features.host_use.raising import TASK, raise_turn
from allocation.services.publish.publish import publish_due


@shared_task(name=TASK, ignore_result=True)
def cores_raise() -> None:
    """Lends free cores to work that waits for input, and takes back what is over."""
    now = timezone.now()
    if raise_turn(now):
        publish_due(now)
