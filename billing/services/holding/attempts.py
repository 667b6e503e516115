"""Holds of many references of which some are refused: which of them the budgets can pay."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import partial
from uuid import UUID

from django.db import IntegrityError, transaction

from billing.models import Transfer
from billing.services.holding.shares import BudgetShare
from billing.services.holding.shortages import budget_exceeded
from billing.services.ledger import OVERSPENT, constraint_of
from tenants.platform.errors import Refused

Parts = dict[UUID, list[BudgetShare]]
Kind = tuple[tuple[UUID, Decimal, date, tuple[UUID, ...]], ...]
"""What of shares decides whether the budgets can pay them."""


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
    that were refused once are refused again without a statement, because holds only add up.
    """
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
            refused[some[0]] = known[_kind(parts[some[0]])] = why()
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
        (each.budget.id, each.amount, each.day, tuple(limit.id for limit in each.limits))
        for each in shares
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
