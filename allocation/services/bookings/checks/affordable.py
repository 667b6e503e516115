"""Lesser changes of a booking that its money is enough for."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

from allocation.rules.ask import AskDocument
from allocation.rules.changes import Target
from allocation.services.bookings.checks.remedies import shares_within, with_remedies
from tenants.platform.errors import Refused

_MINUTE = 60


def with_lesser(refused: Refused, old: Target, new: Target, try_it: Callable[[Target], object]) -> Refused:
    """Returns the refusal of a change for money that is short, with lesser changes that `try_it`
    does not refuse."""
    lesser = list(_lesser(refused, old, new))
    if not lesser:
        return refused

    def try_ask(tier: str, ask: AskDocument) -> object:
        return try_it(replace(new, ask=ask, tier=tier))

    return with_remedies(replace(refused, alternatives=lesser), new.ask, new.tier, try_ask)


def seconds_within(more: int, left: Decimal, needs: Decimal) -> Iterator[int]:
    """Yields how much longer a booking may get, in whole minutes, if `more` seconds need more money
    than is left."""
    shares = shares_within(left, needs)
    yield from filter(None, (int(more * share) // _MINUTE * _MINUTE for share in shares))


def _lesser(refused: Refused, old: Target, new: Target) -> Iterator[dict[str, Any]]:
    if refused.code != "budget_exceeded":
        return
    left, needs = (Decimal(refused.numbers.get(name, 0)) for name in ("left", "needs"))
    for seconds in seconds_within(new.ask.duration - old.ask.duration, left, needs):
        yield {"duration": old.ask.duration + seconds}
    more = new.ask.count - old.ask.count
    if more > 1 and 0 < left < needs and not new.ask.groups and int(more * left / needs):
        yield {"count": old.ask.count + int(more * left / needs)}
