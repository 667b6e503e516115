"""What turn-round adds to the core: the delay of starts, and a card on the page of a node."""

from datetime import datetime
from uuid import UUID

from allocation.features.turn_round.services import start_delays, turn_rounds
from allocation.points import NODE_CARDS, START_DELAYS, BookingCard


def turn_round_card(node: UUID, now: datetime) -> BookingCard | None:
    """Returns the card of a node on which bookings followed each other."""
    rows = turn_rounds(now, node).get(node)
    return BookingCard("turn_round/card.html", {"rows": rows}) if rows else None


NODE_CARDS.append(turn_round_card)
START_DELAYS.append(start_delays)
