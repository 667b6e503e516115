"""Numbers and durations in words: `two`, `1h30m`, `half a day`, `an hour and a half`."""

import re

_WORDS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen twenty"
)
NUMBER_WORDS = {
    word: number
    for number, word in enumerate(
        _WORDS.split(),
        start=1,
    )
} | {"twenty-four": 24, "thirty": 30, "thirty-two": 32, "forty": 40, "forty-eight": 48}
NUMBER_WORDS |= {"sixty": 60, "sixty-four": 64, "ninety": 90, "single": 1, "a single": 1}
NUMBER_WORDS |= {"a dozen": 12, "half a dozen": 6, "dozen": 12}
NUMBER_WORDS |= dict.fromkeys(("a couple of", "a couple", "couple of", "couple"), 2)
NUMBER_WORDS |= dict.fromkeys(("a pair of", "a pair", "pair of", "pair"), 2)

WORD_NUMBER = "|".join(
    re.escape(word).replace(r"\ ", r"\s+") for word in sorted(NUMBER_WORDS, key=len, reverse=True)
)
_ONE = rf"(?:{WORD_NUMBER}|an?)"
_UNIT = r"(?:weeks?|wks?|w|days?|d|hours?|hrs?|hr|h|minutes?|mins?|m)"
_LONG_UNIT = r"(?:weeks?|wks?|days?|hours?|hrs?|minutes?|mins?)"
_DIGITS = r"(?:\d{1,5}(?:\.\d{1,2})?|(?<![\d.])\.\d{1,2})"
_HALF_OF = r"(?:hour|day|week)"
# The h of `1 h100` is no hour.
_CHUNK = rf"{_DIGITS}-?{_UNIT}(?![a-z])|{_DIGITS}\s+{_UNIT}(?![a-z\d])"
_SMALLER_UNITS = (r"w(?:ee)?ks?|w", r"days?|d", r"hours?|hrs?|h", r"minutes?|mins?|m")
_AMOUNT_OF = rf"(?:{_DIGITS}-?(?:%(unit)s)(?![a-z])|{_DIGITS}\s+(?:%(unit)s)(?![a-z\d]))"
# `1d 6h`, but of `30 min 2h` the first only.
_DESCENDING = r"(?=[\d.])" + r"\s*".join(f"{_AMOUNT_OF % {'unit': unit}}?" for unit in _SMALLER_UNITS)
_LENGTHS_IN_WORDS = (
    rf"(?:half|½|1/2)[\s-]+(?:an?\s+)?{_HALF_OF}",
    r"(?:an?\s+)?quarter(?:\s+of)?(?:\s+an)?\s+hour",
    rf"(?:{_ONE}|\d{{1,3}})\s+{_HALF_OF}s?\s+and\s+a\s+half",
    rf"(?:{_ONE}|\d{{1,3}})\s+and\s+a\s+half\s+{_HALF_OF}s?",
    rf"\d{{1,3}}\s*(?:½|\s1/2)\s*{_UNIT}",
    r"\d:\d{2}\s*(?:hours?|hrs?|h)(?![a-z])",
    r"\d{1,3}h\d{2}",
    rf"(?:{_ONE})[\s-]+{_LONG_UNIT}",
    r"(?:an?|one)\s+fortnight",
)
LENGTH = "|".join((*_LENGTHS_IN_WORDS, rf"(?:(?:{_CHUNK})\s*)*(?:{_CHUNK})(?!\s+from\s+now)"))
"""A duration, or several that the line has one after the other."""
FIRST_LENGTH = "|".join((*_LENGTHS_IN_WORDS, _DESCENDING))
"""A duration whose units get smaller."""
# Not after `at` and `x`: the 14 of `at 14,4h` is an hour, and the 2 of `x 2,4h` a number of GPUs.
COMMA_LENGTH = rf"(?<!at\s)(?<!from\s)(?<!to\s)(?<!x\s)(?<![-x*@])\d{{1,3}},\d{{1,2}}\s?{_UNIT}(?![a-z])"
"""A duration with a decimal comma."""
ONE_LENGTH = (
    rf"(?:{_CHUNK}|(?:{_ONE})[\s-]+{_LONG_UNIT}|half[\s-]+(?:an?\s+)?{_HALF_OF}|"
    rf"(?:{_ONE}|\d{{1,3}})\s+{_HALF_OF}s?\s+and\s+a\s+half)"
)
"""A duration with one unit."""
_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "f": 1_209_600}
_LENGTH = re.compile(LENGTH)
_AMOUNT = re.compile(rf"({_DIGITS})[\s-]*({_UNIT})")
_COLON = re.compile(r"(\d{1,3})[:h](\d{2})(?:\s*(?:hours?|hrs?|h))?")
_LAST_UNIT = re.compile(r"(hour|day|week|fortnight|hrs?|wks?|minute|min|[hdwm])s?$")


def number_of(text: str) -> int:
    """A whole number in digits or in words. `a` is one."""
    if text.isdecimal():
        return int(text)
    return NUMBER_WORDS.get(" ".join(text.split()), 1)


def length_of(text: str) -> int | None:
    """The seconds of a duration, or None if the text is not a duration."""
    text = " ".join(text.lower().split())
    if not _LENGTH.fullmatch(text):
        return None
    colon = _COLON.fullmatch(text)
    if colon:
        return int(colon[1]) * 3_600 + int(colon[2]) * 60
    if text[0] in ".0123456789" and "half" not in text and "½" not in text and "1/2" not in text:
        return sum(_amount(*found) for found in _AMOUNT.findall(text))
    return _in_words(text)


def _in_words(text: str) -> int:
    unit_found = _LAST_UNIT.search(text.removesuffix(" and a half"))
    unit = _SECONDS[unit_found[1][0]] if unit_found else 0
    first = re.match(rf"\d+|{WORD_NUMBER}|an?(?=\s)", text)
    if "quarter" in text:
        return unit // 4
    if text.startswith(("half", "½", "1/2")) and not text.startswith("half a dozen"):
        return unit // 2
    number = number_of(first[0]) if first else 1
    is_more = "and a half" in text or "½" in text or "1/2" in text
    return number * unit + is_more * unit // 2


def _amount(number: str, unit: str) -> int:
    whole, _, rest = number.partition(".")
    hundredths = int(whole or 0) * 100 + int(rest.ljust(2, "0") or 0)
    return hundredths * _SECONDS[unit[0]] // 100
