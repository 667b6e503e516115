"""The task of overrides."""

from celery import shared_task
from django.utils import timezone

from allocation.features.overrides.ending import overrides_warn


@shared_task(name="allocation.overrides", ignore_result=True)
def allocation_overrides() -> None:
    """Notifies people of overrides that end within a week."""
    overrides_warn(timezone.now())
