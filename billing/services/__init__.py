"""The only writers of money. Each call is one transaction or joins the caller's."""

from billing.services.budgets import budget_set
from billing.services.holds import (
    hold_move,
    hold_place,
    hold_release,
    hold_settle,
    hold_settle_part,
)
from billing.services.prices import price_book_publish, price_param

__all__ = [
    "budget_set",
    "hold_move",
    "hold_place",
    "hold_release",
    "hold_settle",
    "hold_settle_part",
    "price_book_publish",
    "price_param",
]
