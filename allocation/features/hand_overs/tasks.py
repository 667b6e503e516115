"""The task of hand-overs."""

from celery import shared_task
from django.utils import timezone

from allocation.features.hand_overs.services import TASK, hand_overs_expire


@shared_task(name=TASK, ignore_result=True)
def hand_overs_expire_run() -> None:
    """Closes the offers that are over, and notifies both sides."""
    hand_overs_expire(timezone.now())
