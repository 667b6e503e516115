"""Removes what has expired, and notifies people before their tokens expire."""

from datetime import datetime, timedelta

from celery import shared_task
from django.utils import timezone

from tenants.failures import steps_apart
from tenants.models import IdempotencyKey, Invitation
from tenants.outbox import task_request_clear
from tenants.services.credentials.expiry import tokens_expiring_notify
from tenants.services.credentials.products import products_sweep
from tenants.services.members.operator_access import access_sweep
from tenants.services.sign_in.mail_links import links_sweep
from tenants.services.sign_in.passkeys import passkey_challenges_sweep
from tenants.services.sign_in.sessions import sessions_sweep
from tenants.services.sign_on.attempts import attempts_sweep

KEYS_KEPT = timedelta(days=7)
INVITATIONS_KEPT = timedelta(days=30)


@shared_task(name="tenants.sweep", ignore_result=True)
def sweep() -> None:
    """Deletes keys after a week, invitations a month after they expired, and expired sessions,
    links and attempts to sign in; ends what ended tokens had set up."""
    task_request_clear("tenants.sweep")
    steps_apart(
        "tenants.sweep",
        timezone.now(),
        old_rows_delete,
        sessions_sweep,
        links_sweep,
        attempts_sweep,
        passkey_challenges_sweep,
        tokens_expiring_notify,
        products_sweep,
        access_sweep,
    )


def old_rows_delete(now: datetime) -> None:
    """Deletes idempotency keys and invitations that are old."""
    IdempotencyKey.objects.filter(created__lt=now - KEYS_KEPT).delete()
    # They contain addresses of people who may have no account.
    Invitation.objects.filter(expires__lt=now - INVITATIONS_KEPT).delete()
