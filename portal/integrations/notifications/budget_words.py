"""What the rung of a budget's ladder says to people."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from billing.rules import Period, money_text, period_text
from billing.services.guardrails import MEASURED

LADDER_ACTIONS = {
    "approval": "New bookings wait for an approval",
    "cheaper": "Waiting work on several classes takes the cheapest of them; the project's page"
    " offers a cheaper class for what has one",
    "no_borrowing": "Bookings start only on GPUs within guarantees; what runs stays",
    "pause": "What runs is paused after its notice, and no booking starts",
    "drain": "No booking starts; what runs stays",
    "no_bookings": "It takes no new bookings; bookings stay",
}


def budget_headline(said: Mapping[str, Any]) -> str:
    """The headline, from the payload of the rung's message."""
    return f"Budget of {said['name']}: {said['percent']} % {MEASURED[said['measure']]}"


def budget_sentences(said: Mapping[str, Any]) -> tuple[str, ...]:
    """The figures, and what the rung does."""
    period = Period(date.fromisoformat(said["starts"]), date.fromisoformat(said["ends"]))
    amount, spent, held, left = (
        money_text(Decimal(said[name]), said["currency"])
        for name in ("amount", "spent", "held", "left")
    )
    sentence = (
        f"At least {said['percent']} % of the budget for {period_text(period)} are"
        f" {MEASURED[said['measure']]}: {spent} spent, {held} held by bookings,"
        f" {left} left of {amount}."
    )
    if said["action"] in LADDER_ACTIONS:
        return (sentence, f"{LADDER_ACTIONS[said['action']]} until the share is lower.")
    return (sentence,)
