"""Alerts of budgets with named recipients and a history."""

from tenants.platform.wall import no_right, protect, tenant_key, updates_only

# Who sets a ladder, and the worker that looks at all of them, write what is reached and when it is left.
RIGHTS = (
    protect("billing_budgetalert", grants="SELECT, INSERT, UPDATE (cleared_at)")
    + tenant_key("billing_budgetalert", "budget_id", "billing_budget")
    + no_right("DELETE", "billing_budgetalert")
    + updates_only({"billing_budgetalert": "cleared_at"})
)

SQL = RIGHTS
