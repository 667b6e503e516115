"""The task of monthly figures."""

from celery import shared_task
from django.utils import timezone

from allocation.features.insights.monthly import TASK, months_mail


@shared_task(name=TASK, ignore_result=True)
def insights_months() -> None:
    """Requests the mails of the month before, in the first days of the next."""
    months_mail(timezone.now())
