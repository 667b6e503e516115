"""The task of limit cuts."""

from celery import shared_task
from django.utils import timezone

from allocation.features.limit_cuts.enforce import cuts_enforce
from allocation.features.limit_cuts.services import TASK
from tenants.outbox import task_request_clear


@shared_task(name=TASK, ignore_result=True)
def cuts_enforce_run() -> None:
    """Pauses what is above limits that were cut, and ends cuts that are met."""
    task_request_clear(TASK)
    cuts_enforce(timezone.now())
