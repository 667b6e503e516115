"""Parses typed values: names, slugs, numbers of GPUs as exact units, durations."""

import re
import unicodedata
from collections.abc import Mapping
from datetime import time
from decimal import ROUND_UP, Decimal

from tenants.platform.errors import invalid
from tenants.platform.text import first_invisible
from tenants.words import refusal_text

UNITS_PER_GPU = 56_000
MAX_GPUS = 100_000

_GPUS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
_USERNAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{1,149}")
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def name_read(text: str, *, param: str = "name", longest: int = 80) -> str:
    """The name in Unicode normal form, with single spaces.

    Raises:
        Refused: `bad_name`, if it is empty, too long or contains invisible characters.
    """
    name = " ".join(unicodedata.normalize("NFC", text).split(" ")).strip()
    name = re.sub(" +", " ", name)
    if first_invisible(name):
        raise invalid("bad_name", refusal_text("name_invisible"), param)
    if not 1 <= len(name) <= longest:
        raise invalid("bad_name", refusal_text("name_length", longest=longest), param)
    return name


def username_read(text: str) -> str:
    """A new sign-in name. Raises Refused `bad_username`."""
    if not _USERNAME.fullmatch(text):
        raise invalid("bad_username", refusal_text("bad_username"), "username")
    return text


def slug_read(text: str, *, param: str = "slug") -> str:
    """A short name for URLs. Raises Refused `bad_slug`."""
    if not _SLUG.fullmatch(text) or len(text) > 40:
        raise invalid(
            "bad_slug",
            refusal_text("bad_slug"),
            param,
        )
    return text


def slug_of(name: str) -> str:
    """The ASCII letters and digits of a name, with hyphens between words; it may be empty."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain)[:40].strip("-")


def units_read(text: str, *, param: str) -> int:
    """The units of a number of GPUs such as "2" or "2.5".

    Raises:
        Refused: `bad_number`, also if it is not a whole number of units.
    """
    text = text.strip()
    if not _GPUS.fullmatch(text):
        raise invalid("bad_number", refusal_text("gpus_not_a_number"), param)
    units = Decimal(text) * UNITS_PER_GPU
    if units != int(units):
        raise invalid("bad_number", refusal_text("gpus_step"), param)
    if units > MAX_GPUS * UNITS_PER_GPU:
        raise invalid("bad_number", refusal_text("gpus_most", max_gpus=f"{MAX_GPUS:,}"), param)
    return int(units)


def gpus_text(units: int) -> str:
    """The number of GPUs as text with up to three decimals: 140,000 units are "2.5"."""
    text = f"{Decimal(units) / UNITS_PER_GPU:.3f}"
    return text.rstrip("0").rstrip(".")


def gpus_enough(units: int) -> str:
    """The least number of GPUs with three decimals that has so many units: of four sevenths "0.572"."""
    text = f"{(Decimal(units) / UNITS_PER_GPU).quantize(Decimal('0.001'), rounding=ROUND_UP):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:[0-9]{1,8}[dhms])+")


def seconds_read(text: str, *, param: str) -> int:
    """The seconds of a duration such as "30m", "7d" or "1h 30m". Raises Refused `bad_duration`."""
    joined = "".join(text.split())
    if joined == "0":
        return 0
    if not _DURATION.fullmatch(joined):
        raise invalid("bad_duration", refusal_text("bad_duration"), param)
    return sum(int(part[:-1]) * _SECONDS[part[-1]] for part in re.findall(r"[0-9]+[dhms]", joined))


def seconds_text(seconds: int) -> str:
    """The duration as text that `seconds_read` accepts: 5,400 is "1h 30m"."""
    parts = []
    for unit, size in _SECONDS.items():
        many, seconds = divmod(seconds, size)
        if many:
            parts.append(f"{many}{unit}")
    return " ".join(parts) or "0"


_UNIT_WORDS = {"d": "d", "h": "h", "m": "min", "s": "s"}


def seconds_words(seconds: int) -> str:
    """The duration for a reader: `28 days`, `36 h`, `1 h 30 min`."""
    days, rest = divmod(seconds, _SECONDS["d"])
    if days and not rest:
        return "24 h" if days == 1 else f"{days} days"
    if not seconds % _SECONDS["h"] and seconds:
        return f"{seconds // _SECONDS['h']} h"
    return (
        " ".join(f"{part[:-1]} {_UNIT_WORDS[part[-1]]}" for part in seconds_text(seconds).split())
        if seconds
        else "0 min"
    )


def whole_read(text: str, *, param: str) -> int:
    """A whole number in plain digits. Raises Refused `bad_number`."""
    if not re.fullmatch(r"-?[0-9]{1,9}", text.strip()):
        raise invalid("bad_number", refusal_text("whole_number"), param)
    return int(text.strip())


def number_read(text: str, *, param: str) -> Decimal:
    """A number in plain digits, with a point or without. Raises Refused `bad_number`."""
    if not re.fullmatch(r"[0-9]*\.?[0-9]*", text) or not 1 <= len(text.strip(".")) <= 20:
        raise invalid("bad_number", refusal_text("number_example"), param)
    return Decimal(text)


def clock_read(text: str, *, param: str) -> time:
    """A time of day such as 08:00. Raises Refused `bad_hours`."""
    try:
        return time.fromisoformat(text)
    except ValueError as error:
        raise invalid("bad_hours", refusal_text("clock_form"), param) from error


def names_read(text: str, *, param: str) -> list[str]:
    """Names that are separated by commas or stand in lines."""
    return [each.strip() for each in text.replace("\n", ",").split(",") if each.strip()]


def whole_sent(form: Mapping[str, str], name: str) -> int | None:
    """The whole number of a form's field; None if it is empty. Raises Refused `bad_number`."""
    text = form.get(name, "").strip()
    return whole_read(text, param=name) if text else None
