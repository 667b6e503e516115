"""Celery tasks about money. Every task is safe to run twice."""

from celery import shared_task
from django.utils import timezone

from billing.services.guardrails import guardrails_evaluate
from billing.services.renewals import budgets_renew
from tenants.outbox import task_request


@shared_task(name="billing.renew", ignore_result=True)
def billing_renew() -> None:
    """Creates the budgets of the next periods and moves what is left of the last ones."""
    budgets_renew(timezone.now())


@shared_task(name="billing.guardrails", ignore_result=True)
def billing_guardrails() -> None:
    """Marks the rungs of budgets' ladders that were reached or cleared, and announces them."""
    if guardrails_evaluate(timezone.now()):
        task_request("allocation.cycle")
