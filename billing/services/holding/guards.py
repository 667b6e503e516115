"""Rungs of ladders, looked at by the database with the commit of new holds.

The turn of the ladders marks a rung that is reached. While no rung that decides about new bookings
is marked, a booking reads no figures: with its hold it sends shares that must not be reached. If
one is, another booking has just crossed it, and the transaction is undone and done again with each
row in its turn, where the figures are read under the lock of the account.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from uuid import UUID

from billing.models import Guardrail
from billing.services.holding.shares import BudgetShare
from tenants.platform.rows import statement_later

DECIDING = (Guardrail.Action.NO_BOOKINGS, Guardrail.Action.APPROVAL)
"""What rungs do with new bookings."""

_GUARD = "SELECT billing_rungs_unreached(%s::uuid[], %s::bool[], %s::int[], %s::numeric[])"


def any_decides(rungs: Iterable[Guardrail]) -> bool:
    """Whether a rung that decides about new bookings is marked as reached."""
    return any(rung.action in DECIDING and rung.reached_at is not None for rung in rungs)


def rungs_guard(parts: Iterable[Sequence[BudgetShare]], rungs: Iterable[Guardrail]) -> None:
    """Lets the holds of these shares fail if a rung that decides is reached without them.

    A rung that takes no bookings must not be reached without any one of them, one that asks for an
    approval not without all of them. Rungs of the platform decide by their marks only.
    """
    own = _amounts(parts)
    lines = [
        (
            rung.budget.account_id,
            rung.measure != Guardrail.Measure.SPENT,
            # With more than the amount used, money that was returned counts the other way.
            min(rung.percent, 100),
            _without(rung, own[rung.budget_id]),
        )
        for rung in rungs
        if rung.action in DECIDING and rung.tenant_id is not None and own[rung.budget_id]
    ]
    if lines:
        statement_later(_GUARD, [list(column) for column in zip(*lines, strict=True)], is_last=True)


def _amounts(parts: Iterable[Sequence[BudgetShare]]) -> dict[UUID, list[Decimal]]:
    """What each booking adds to each budget."""
    found: dict[UUID, list[Decimal]] = defaultdict(list)
    for mine in parts:
        added: dict[UUID, Decimal] = defaultdict(Decimal)
        for part in mine:
            for budget in (part.budget, *part.limits):
                added[budget.id] += part.amount
        for budget_id, amount in added.items():
            found[budget_id].append(amount)
    return found


def _without(rung: Guardrail, own: Collection[Decimal]) -> Decimal:
    if rung.measure == Guardrail.Measure.SPENT:
        return Decimal(0)
    return min(own) if rung.action == Guardrail.Action.NO_BOOKINGS else sum(own, Decimal(0))
