"""Functions shared by the writers of the ledger, and the close of its months."""

from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection, transaction

from billing.models import Account, Budget, ClosedMonth
from billing.queries import BudgetFigures, budget_figures_of
from billing.rules import midnight, month_after
from billing.words import refusal_text
from tenants.access import Actor, require_tenant_admin
from tenants.audit import actor_record
from tenants.platform.errors import Refused

OVERSPENT = "account_never_overspent"
# Late reports of nodes are settled before a month can be closed.
SETTLING = timedelta(days=1)


def account_of(tenant_id: UUID | None, kind: str, currency: str) -> Account:
    """The tenant's `source` or `spend` account, created on first use; None: the platform's."""
    facts: dict[str, Any] = {"tenant_id": tenant_id, "kind": kind, "currency": currency}
    account, _ = Account.objects.get_or_create(**facts)
    return account


def current_figures(budget: Budget) -> BudgetFigures:
    """The budget's figures as they are now."""
    return budget_figures_of([budget.id])[budget.id]


def constraint_of(error: IntegrityError) -> str | None:
    """The name of the violated constraint, as PostgreSQL reports it."""
    diagnosis = getattr(error.__cause__, "diag", None)
    return getattr(diagnosis, "constraint_name", None)


def month_close(*, actor: Actor, month: date, now: datetime) -> ClosedMonth:
    """Closes the tenant's month. Later corrections appear in the month in which they are made.

    `month` is its first day.

    Raises:
        Refused: `not_allowed`, `month_not_over` or `month_closed`.
    """
    require_tenant_admin(actor)
    ends = month_after(month)
    earliest = midnight(ends) + SETTLING
    if now < earliest:
        raise Refused(
            "month_not_over",
            refusal_text(
                "month_not_over",
                month=f"{month:%B %Y}",
                day=earliest.day,
                earliest=f"{earliest:%b %Y}",
            ),
            owner="operator",
            frees_at=earliest,
        )
    with transaction.atomic():
        with connection.cursor() as cursor:
            # Waits for transfers that are being written.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 5))", [str(actor.tenant_id)])
        closed, is_new = ClosedMonth.objects.get_or_create(
            tenant_id=actor.tenant_id,
            starts=month,
            defaults={"ends": ends, "closed_at": now, "closed_by_id": actor.user_id},
        )
        if not is_new:
            raise Refused("month_closed", refusal_text("month_closed", month=f"{month:%B %Y}"))
        detail = {"month": f"{month:%Y-%m}"}
        actor_record(actor, "month.close", ("month", f"{month:%Y-%m}"), now, detail)
    return closed
