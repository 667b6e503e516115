"""The alerts of a budget: the rungs of its ladder that only notify, and who is notified."""

from collections.abc import Collection
from datetime import datetime

from billing.access import people_of
from billing.models import Budget, Guardrail
from billing.services.guardrails import Rung, ladder_set
from billing.words import refusal_text
from tenants.platform.errors import invalid

MAIN_PERCENT = 80
"""The share of spent and held money at which a new budget notifies if nobody chose another one."""


def people_named(budget: Budget, names: Collection[str]) -> tuple[int, ...]:
    """Returns the accounts with these sign-in names, who may see the budget.

    Raises:
        Refused: `unknown_person`.
    """
    found = dict(people_of(budget).filter(username__in=names).values_list("username", "id"))
    if unknown := [name for name in names if name not in found]:
        raise invalid("unknown_person", refusal_text("unknown_person", names=", ".join(unknown)), "people")
    return tuple(sorted(found.values()))


def alerts_set(*, actor_id: int | None, budget: Budget, alerts: Collection[Rung], now: datetime) -> None:
    """Replaces the budget's alerts; what else its ladder does stays. The caller has checked the right.

    Raises:
        Refused: as `ladder_set`.
    """
    kept = [each for each in rungs_of(budget) if each.action != Guardrail.Action.NOTIFY]
    ladder_set(actor_id=actor_id, budget=budget, rungs=[*kept, *alerts], now=now)


def main_alert_move(*, actor_id: int | None, budget: Budget, before: int, now: datetime) -> None:
    """Makes the budget notify at its `warn_percent`, in place of the alert at the share `before`."""
    rungs = rungs_of(budget)
    wanted = (Guardrail.Measure.COMMITTED, budget.warn_percent, Guardrail.Action.NOTIFY)
    if any(each.key == wanted for each in rungs):
        return
    replaced = (Guardrail.Measure.COMMITTED, before, Guardrail.Action.NOTIFY)
    old = next((each for each in rungs if each.key == replaced), None)
    moved = Rung(*wanted, old.audience, old.people) if old else Rung(*wanted)
    rest = [each for each in rungs if each.key != replaced]
    ladder_set(actor_id=actor_id, budget=budget, rungs=[*rest, moved], now=now)


def rungs_of(budget: Budget) -> list[Rung]:
    """The budget's ladder as it is."""
    return [
        Rung(row.measure, row.percent, row.action, row.audience, tuple(row.people))
        for row in Guardrail.objects.filter(budget=budget)
    ]
