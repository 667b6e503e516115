"""Which characters text may hold: one rule for pages, REST and names."""

import unicodedata

# Controls, halves of a pair, private and line-breaking characters, and those that change direction
# or can't be seen: text that holds one is not what it looks like, or can't be stored.
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
# They join letters of some scripts, and the parts of an emoji.
_JOINERS = "\u200c\u200d"


def first_invisible(text: str) -> str:
    """The first character that can't be seen as itself; "" when there is none."""
    if text.isascii() and text.isprintable():
        return ""
    return next((one for at, one in enumerate(text) if _is_invisible(text, at)), "")


def without_invisible(text: str) -> str:
    """The text without what can't be seen; a line break or a tab becomes a space."""
    spaced = " ".join(text.splitlines()).replace("\t", " ")
    return "".join(one for at, one in enumerate(spaced) if not _is_invisible(spaced, at))


def invisible_sentence(character: str) -> str:
    """Why text with this character is refused."""
    return f"The character U+{ord(character):04X} can't be seen and is not allowed. Type it again."


def _is_invisible(text: str, at: int) -> bool:
    one = text[at]
    if one in _JOINERS:
        return text[at - 1 : at].isascii() or text[at + 1 : at + 2].isascii()
    return unicodedata.category(one) in _INVISIBLE_CATEGORIES or _is_noncharacter(ord(one))


def _is_noncharacter(point: int) -> bool:
    return point & 0xFFFE == 0xFFFE or 0xFDD0 <= point <= 0xFDEF
