"""Sets the most that units of progress of a campaign may cost, and what happens then."""

from dataclasses import asdict
from datetime import datetime
from decimal import Decimal

from django.db import transaction

from billing.models import Budget, Guardrail
from billing.queries import UnitLimit, unit_limit_of
from billing.services.alerts import rungs_of
from billing.services.guardrails import OF_UNITS, Rung, ladder_set
from billing.words import refusal_text
from tenants.audit import audit_record
from tenants.platform.errors import invalid

WARN_PERCENT = 80


def unit_limit_set(
    *,
    actor_id: int | None,
    budget: Budget,
    limit: UnitLimit | None,
    cost: Decimal | None,
    action: str,
    now: datetime,
) -> None:
    """Notifies at 80 % of the limit, and does the action at the limit; None: no limit any more. Its rungs
    are those of the ladder, where they can be changed. `cost` is what its units have cost so far. The
    caller has checked the actor's right.

    Raises:
        Refused: `unit_limit`, `unknown_choice`, or as `ladder_set`.
    """
    if budget.level != Budget.Level.CAMPAIGN or (limit is not None and not limit.unit.strip()):
        raise invalid("unit_limit", refusal_text("unit_limit"), "unit")
    if action not in OF_UNITS:
        raise invalid("unknown_choice", refusal_text("unknown_rung"), "action")
    before = unit_limit_of(budget)
    measure = Guardrail.Measure.UNIT_COST
    rungs = [each for each in rungs_of(budget) if each.measure != measure]
    if limit is not None:
        rungs += [Rung(measure, WARN_PERCENT, Guardrail.Action.NOTIFY), Rung(measure, 100, action)]
    with transaction.atomic():
        budget.unit_most, budget.unit_count, budget.unit = (
            (None, None, "") if limit is None else (limit.most, limit.count, limit.unit.strip())
        )
        budget.unit_cost, budget.unit_cost_at = (None, None) if limit is None else (cost, now)
        budget.save(update_fields=["unit_most", "unit_count", "unit", "unit_cost", "unit_cost_at"])
        audit_record(
            tenant_id=budget.tenant_id,
            actor_id=actor_id,
            action="budget.unit_limit_set",
            target=("budget", budget.id),
            now=now,
            detail={"before": _values(before), "after": _values(limit)},
        )
        ladder_set(actor_id=actor_id, budget=budget, rungs=rungs, now=now)


def _values(limit: UnitLimit | None) -> dict[str, str]:
    return {} if limit is None else {name: str(value) for name, value in asdict(limit).items()}
