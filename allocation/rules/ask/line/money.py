"""Parts of the line about money: the lowest price, and what a rented machine may cost."""

import re
from collections.abc import Sequence

from lark import Token

from allocation.errors import AskError
from allocation.rules.ask.words.document import cost_of
from allocation.rules.ask.words.parsed import NOT_UNDERSTOOD
from allocation.rules.ask.words.reading import Reading, span_of
from tenants.platform.coded import coded
from tenants.platform.text import currency_named


def read_cheapest(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `cheapest`: the lowest price among the options."""
    reading.set_value("cheapest", "cheapest", "the cheapest that fits", span_of(*tokens))


def read_burst(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `may burst up to EUR 60`: machines may be rented for it for so much."""
    span, currency = span_of(*tokens), reading.catalogue.currency
    amount = re.findall(r"-?\d+(?:\.\d+)?", str(tokens[0]))[-1]
    meaning = f"may burst up to {currency} {amount}"
    if currency_named(tokens[0]) not in ("", currency):
        why, repairs = coded("ask_currency", currency=currency), reading.replacements(span, meaning)
        reading.add_problem(NOT_UNDERSTOOD, why, span, repairs)
        return
    try:
        reading.set_value("most_cost", cost_of(amount), meaning, span)
    except AskError as error:
        reading.add_problem(error.code, error.text, span)
