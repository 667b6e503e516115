"""The task of reports."""

from celery import shared_task
from django.utils import timezone

from allocation.features.reports.services import reports_send


@shared_task(name="allocation.reports", ignore_result=True)
def allocation_reports() -> None:
    """Requests the mails of the reports that are due."""
    reports_send(timezone.now())
