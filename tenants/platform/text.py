"""Invisible characters, typed numbers, currencies and formulas: one rule for pages, REST, names and files."""

import re
import unicodedata

from tenants.platform.words import refusal_text

# Control, format (including direction), surrogate, private-use and line-breaking characters: text
# with one of them differs from what people see, or cannot be stored.
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
# Joiners are needed in some scripts and between the parts of an emoji.
_JOINERS = "\u200c\u200d"
_MOST_DIGITS = 18
FIRST_CURRENCY = "EUR"
"""The currency of a site whose first price book names none, and of the shipped prices."""
CURRENCIES = {
    "EUR": "€",
    "USD": "$",
    "GBP": "£",
    **dict.fromkeys(("CHF", "SEK", "NOK", "DKK", "PLN", "CZK", "CAD", "AUD", "NZD", "SGD", "INR"), ""),
}
"""Currencies with cents, and their symbols."""
CURRENCY_PATTERN = "|".join([*CURRENCIES, *(re.escape(each) for each in CURRENCIES.values() if each)])
# What a spreadsheet reads as the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def currency_named(text: str) -> str:
    """The first currency that a text names by its code or symbol; "" when there is none."""
    found = re.search(rf"(?<![a-z])(?:{CURRENCY_PATTERN})(?![a-z])", text, re.IGNORECASE)
    if found is None:
        return ""
    codes = {symbol: code for code, symbol in CURRENCIES.items() if symbol}
    return codes.get(found[0], found[0].upper())


def currency_sentence(currency: str) -> str:
    """What is said about an amount in another currency."""
    return refusal_text("amount_currency", currency=currency)


def first_invisible(text: str) -> str:
    """The first invisible character; "" when there is none."""
    if text.isascii() and text.isprintable():
        return ""
    return next((one for at, one in enumerate(text) if _is_invisible(text, at)), "")


def without_invisible(text: str) -> str:
    """The text without invisible characters; a line break or a tab becomes a space."""
    spaced = " ".join(text.splitlines()).replace("\t", " ")
    return "".join(one for at, one in enumerate(spaced) if not _is_invisible(spaced, at))


def invisible_sentence(character: str) -> str:
    """The sentence that refuses text with this character."""
    return refusal_text("invisible_character", point=f"{ord(character):04X}")


def _is_invisible(text: str, at: int) -> bool:
    one = text[at]
    if one in _JOINERS:
        return text[at - 1 : at].isascii() or text[at + 1 : at + 2].isascii()
    return unicodedata.category(one) in _INVISIBLE_CATEGORIES or _is_noncharacter(ord(one))


def _is_noncharacter(point: int) -> bool:
    return point & 0xFFFE == 0xFFFE or 0xFDD0 <= point <= 0xFDEF


def whole_number(text: str) -> int | None:
    """The whole number that a person typed in ASCII digits; None for anything else, and for more
    digits than a column holds."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_number else None


def csv_plain(value: str) -> str:
    """The value of a CSV file as a spreadsheet shows it: a formula gets an apostrophe."""
    return f"'{value}" if value.lstrip(" ").startswith(_FORMULA) else value
