"""The task that keeps forecasts."""

from celery import shared_task
from django.utils import timezone

from allocation.features.demand.services import demand_store
from allocation.features.demand.slicing import slicing_turn


@shared_task(name="allocation.demand", ignore_result=True)
def allocation_demand() -> None:
    """Keeps what each hour had, makes the forecasts of this hour, and orders slices that are expected."""
    now = timezone.now()
    demand_store(now)
    slicing_turn(now)
