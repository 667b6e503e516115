"""Housekeeping of sign-ins and idempotency keys."""

from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from tenants.models import IdempotencyKey
from tenants.services.sessions import sessions_sweep

KEYS_KEPT = timedelta(days=7)


@shared_task(name="tenants.sweep", ignore_result=True)
def sweep() -> None:
    """Deletes keys older than a week and sessions that have run out. Safe to run twice."""
    now = timezone.now()
    IdempotencyKey.objects.filter(created__lt=now - KEYS_KEPT).delete()
    sessions_sweep(now)
