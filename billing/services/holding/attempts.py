"""Holds of many references of which some are refused: by the budgets, or by rungs of ladders.

The database looks at rungs with the commit of new holds. The turn of the ladders marks a rung that
is reached. While no rung that decides about new bookings is marked, a booking reads no figures:
with its hold it sends shares that must not be reached. If one is, another booking has just crossed
it, and the transaction is undone and done again with each row in its turn, where the figures are
read under the lock of the account.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import partial
from uuid import UUID

from django.db import IntegrityError, transaction

from billing.models import Guardrail, Transfer
from billing.services.holding.shares import BudgetShare
from billing.services.holding.shortages import budget_exceeded
from billing.services.ledger import OVERSPENT, constraint_of
from tenants.platform.errors import Refused
from tenants.platform.rows import statement_later

Parts = dict[UUID, list[BudgetShare]]
Kind = tuple[tuple[UUID, Decimal, date, tuple[UUID, ...]], ...]
"""What of shares decides whether the budgets can pay them."""
DECIDING = (Guardrail.Action.NO_BOOKINGS, Guardrail.Action.APPROVAL)
"""What rungs do with new bookings."""

_GUARD = "SELECT billing_rungs_unreached(%s::uuid[], %s::bool[], %s::int[], %s::numeric[])"


class Stopped(Exception):
    """A rung of a ladder refuses the holds that were just written."""

    def __init__(self, refusal: Refused) -> None:
        """Takes the refusal."""
        super().__init__(refusal.code)
        self.refusal = refusal


def holds_place_each(
    parts: Parts, holds: Sequence[Transfer], stop: Callable[[Parts], object] | None
) -> dict[UUID, Refused]:
    """Holds each reference that the budgets can pay, in order; returns the refused ones. `stop`
    raises Stopped if a rung refuses holds that are written.

    They are tried in halves: all of a half fit exactly if each fits after those before it. Shares
    that were refused once are refused again without a statement, because holds only add up. If the
    rows end older holds of these references, too, each refusal is found anew.
    """
    only_add_up = all(hold.kind == "hold" for hold in holds)
    mine: dict[UUID, list[Transfer]] = {reference: [] for reference in parts}
    for hold in holds:
        if hold.reference is not None:
            mine[hold.reference].append(hold)
    refused: dict[UUID, Refused] = {}
    known: dict[Kind, Refused] = {}
    queue = [list(parts)]
    while queue:
        some = [each for each in queue.pop() if not _is_known(each, parts, known, refused)]
        if not some:
            continue
        rows = [hold for reference in some for hold in mine[reference]]
        why = _attempt({each: parts[each] for each in some}, rows, stop)
        if why is None:
            continue
        if len(some) == 1:
            refused[some[0]] = why()
            if only_add_up:
                known[_kind(parts[some[0]])] = refused[some[0]]
            continue
        middle = len(some) // 2
        queue += [some[middle:], some[:middle]]
    return refused


def _attempt(
    parts: Parts, holds: Sequence[Transfer], stop: Callable[[Parts], object] | None
) -> Callable[[], Refused] | None:
    """Writes the holds in a savepoint. Returns how to say why not; None: they are written."""
    try:
        with transaction.atomic():
            Transfer.objects.bulk_create(holds)
            if stop is not None:
                stop(parts)
    except IntegrityError as error:
        if constraint_of(error) != OVERSPENT:
            raise
        return partial(budget_exceeded, next(iter(parts.values())))
    except Stopped as stopped:
        refusal = stopped.refusal
        return lambda: refusal
    return None


def _kind(shares: Sequence[BudgetShare]) -> Kind:
    return tuple(
        (each.budget.id, each.amount, each.day, tuple(limit.id for limit in each.limits)) for each in shares
    )


def _is_known(
    reference: UUID,
    parts: Mapping[UUID, Sequence[BudgetShare]],
    known: Mapping[Kind, Refused],
    refused: dict[UUID, Refused],
) -> bool:
    """Whether the same shares were refused before; then it is refused, too."""
    why = known.get(_kind(parts[reference]))
    if why is not None:
        refused[reference] = why
    return why is not None


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
