"""What data sets add to the core: what nodes say of them, and a card on the page of a node."""

from datetime import datetime
from uuid import UUID

from allocation.features.datasets.services import caches_keep, data_of_node, nodes_with
from allocation.points import NODE_CARDS, NODE_DATA, NODE_TELEMETRY, BookingCard


def data_card(node: UUID, now: datetime) -> BookingCard | None:
    """Returns the card of a node that has data sets."""
    rows = data_of_node(node, now)
    return BookingCard("datasets/card.html", {"rows": rows}) if rows else None


NODE_DATA.append(nodes_with)
NODE_TELEMETRY.append(caches_keep)
NODE_CARDS.append(data_card)
