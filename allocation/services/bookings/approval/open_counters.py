"""Ends counter-offers of requests that are over, or that ask for something else by now."""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from allocation.models import CounterOffer


def counters_replace(approvals: Iterable[UUID], now: datetime) -> None:
    """Ends the open counter-offers of these requests: nobody can accept them any more."""
    rows = CounterOffer.objects.filter(approval__in=list(approvals), state=CounterOffer.State.OPEN)
    rows.update(state=CounterOffer.State.REPLACED, answered=now)
