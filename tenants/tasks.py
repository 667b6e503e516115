"""Housekeeping of sessions, invitations and idempotency keys."""

from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from tenants.models import IdempotencyKey, Invitation
from tenants.services.sessions import sessions_sweep

KEYS_KEPT = timedelta(days=7)
INVITATIONS_KEPT = timedelta(days=30)


@shared_task(name="tenants.sweep", ignore_result=True)
def sweep() -> None:
    """Deletes keys older than a week, sessions that have run out, and invitations a month after.

    Safe to run twice.
    """
    now = timezone.now()
    IdempotencyKey.objects.filter(created__lt=now - KEYS_KEPT).delete()
    # They hold addresses of people who may never have heard of us.
    Invitation.objects.filter(expires__lt=now - INVITATIONS_KEPT).delete()
    sessions_sweep(now)
