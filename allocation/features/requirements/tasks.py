"""The task of requirements."""

from celery import shared_task
from django.utils import timezone

from allocation.features.requirements.expiry import requirements_expiring_notify


@shared_task(name="requirements.expiring", ignore_result=True)
def requirements_expiring() -> None:
    """Notifies people of training, and of accepted texts, that run out."""
    requirements_expiring_notify(timezone.now())
