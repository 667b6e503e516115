"""The task that keeps forecasts."""

from celery import shared_task
from django.utils import timezone

from allocation.features.demand.services import demand_store


@shared_task(name="allocation.demand", ignore_result=True)
def allocation_demand() -> None:
    """Keeps what each hour had, and makes the forecasts of this hour."""
    demand_store(timezone.now())
