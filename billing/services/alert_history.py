"""The history of a budget's alerts: a row for each time that a rung was reached."""

from collections.abc import Sequence
from datetime import datetime

from billing.models import BudgetAlert, Guardrail
from billing.queries import BudgetFigures


def alert_begin(rung: Guardrail, figures: BudgetFigures, people: Sequence[int], now: datetime) -> None:
    """Writes that the rung was reached. The database refuses a second row until it was left."""
    BudgetAlert.objects.create(
        tenant_id=rung.tenant_id,
        budget_id=rung.budget_id,
        measure=rung.measure,
        percent=rung.percent,
        action=rung.action,
        audience=rung.audience,
        people=list(people),
        reached_at=now,
        amount=figures.amount,
        spent=figures.spent,
        held=figures.held,
        forecast=figures.forecast,
    )


def alert_end(rung: Guardrail, now: datetime) -> None:
    """Writes that the rung was left, or removed."""
    BudgetAlert.objects.filter(
        budget_id=rung.budget_id,
        measure=rung.measure,
        percent=rung.percent,
        action=rung.action,
        cleared_at=None,
    ).update(cleared_at=now)
