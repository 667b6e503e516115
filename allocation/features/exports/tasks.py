"""The task of exports."""

from celery import shared_task
from django.utils import timezone

from allocation.features.exports.services import TASK, exports_make
from tenants.outbox import task_request_clear

# A PDF of a million lines takes less. The broker gives a long task to another worker meanwhile,
# which finds the file claimed.
SECONDS = 300


@shared_task(name=TASK, soft_time_limit=SECONDS, time_limit=SECONDS + 15)
def allocation_exports() -> None:
    """Makes the files of statements that people asked for."""
    task_request_clear(TASK)
    exports_make(timezone.now)
