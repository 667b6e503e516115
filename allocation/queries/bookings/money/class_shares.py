"""What each group of a mixed booking costs, as a part of the whole."""

import json
from decimal import Decimal
from functools import lru_cache

from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument
from billing.focus import ClassShare
from billing.price_books import price_at
from tenants.platform.errors import Refused


@lru_cache(maxsize=1024)
def class_shares(ask: str, version: int, tier: str) -> tuple[ClassShare, ...]:
    """The groups of a stored request, in order, by their prices in a version of the price book.

    A published version never changes. Groups without a price count by their size.
    """
    document = AskDocument.from_json(json.loads(ask))
    units = ask_units(document)
    sizes = [Decimal(units.get(part.classes[0], 0)) for part in document.parts]
    prices = [_price(part, version, tier, units) for part in document.parts]
    weights = prices if all(prices) else sizes
    return tuple(
        ClassShare(part.classes[0], part.profile or "", weight)
        for part, weight in zip(document.parts, weights, strict=True)
    )


def _price(part: AskDocument, version: int, tier: str, units: dict[str, int]) -> Decimal:
    """What the group costs for an hour."""
    name = part.classes[0]
    try:
        price = price_at(version=version, gpu_class=name, tier=tier)
    except Refused:
        return Decimal(0)
    size = units.get(name, 0)
    return price.of(part.profile, part.count, size).rate(size).plain if size else Decimal(0)
