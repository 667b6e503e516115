"""What bookings know of the platform's budgets: their periods and rungs, and no amount.

Row security hides the platform's budgets from tenants, so functions of the database tell these.
"""

from billing.models import Budget, Guardrail
from billing.words import refusal_text
from tenants.platform.errors import Refused


def platform_limits() -> list[Budget]:
    """The platform's budgets with their periods only; unsaved objects, by start."""
    rows = Budget.objects.raw(
        "SELECT id, account_id, starts, ends, 'platform' AS level, NULL::uuid AS tenant_id,"
        " NULL::uuid AS project_id, NULL::uuid AS campaign_id, NULL::int AS person_id,"
        " NULL::uuid AS lab_id FROM billing_platform_limits() ORDER BY starts"
    )
    return list(rows)


def platform_rungs() -> list[Guardrail]:
    """The rungs of the platform's budgets, with the periods of the budgets."""
    rows = Guardrail.objects.raw(
        "SELECT id, budget_id, measure, percent, action, reached_at, NULL::uuid AS tenant_id,"
        " starts, ends FROM billing_platform_rungs()"
    )
    budgets = {each.id: each for each in platform_limits()}
    found = list(rows)
    for rung in found:
        rung.budget = budgets[rung.budget_id]
    return found


def platform_short() -> Refused:
    """The refusal of what the platform's budget has no money for. It names no amount."""
    return Refused(
        "budget_exceeded",
        refusal_text("platform_budget_used"),
        "budget",
        param="request",
        rule="R10",
        owner="operator",
    )


def platform_stopped() -> Refused:
    """The refusal of a new booking by a rung of the platform's budget."""
    return Refused(
        "bookings_stopped",
        refusal_text("platform_budget_stopped"),
        "budget",
        param="request",
        rule="R10",
        owner="operator",
    )
