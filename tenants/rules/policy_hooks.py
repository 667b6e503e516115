"""What a policy hook may answer: read strictly, so that no answer means two things. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

from tenants.platform.text import first_invisible

MESSAGE_MAX = 300
TIER_MAX = 40
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_FIELDS = {"decision", "message", "tier", "window"}
_YEARS = range(2000, 2200)
"""Those of every time in a request."""


class BadAnswer(Exception):
    """The answer is not valid; the message is a sentence for people."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a hook says about one request. An admitted one may get another tier (a slug), and a
    window in which all of it must be."""

    is_admitted: bool
    message: str = ""
    tier: str = ""
    not_before: datetime | None = None
    deadline: datetime | None = None

    @property
    def has_window(self) -> bool:
        """Whether it narrows the window."""
        return self.not_before is not None or self.deadline is not None

    @property
    def is_change(self) -> bool:
        """Whether the request is admitted in another form."""
        return bool(self.tier) or self.has_window


ADMITTED = Decision(is_admitted=True)


def decisions_read(body: bytes, count: int) -> tuple[Decision, ...]:
    """Returns a decision for each of `count` requests: one object is for all of them, `decisions`
    has one for each. Raises BadAnswer."""
    data = _parse(body)
    if not isinstance(data, dict):
        raise BadAnswer("The answer is not a JSON object.")
    if "decisions" not in data:
        return (_decision(data),) * count
    each = data["decisions"]
    if len(data) != 1 or not isinstance(each, list) or len(each) != count:
        raise BadAnswer(f"`decisions` must be the only field, with one entry for each of {count}.")
    return tuple(map(_decision, each))


def _parse(body: bytes) -> object:
    try:
        return json.loads(body.decode(), object_pairs_hook=_object, parse_constant=_constant)
    except (ValueError, RecursionError):
        raise BadAnswer("The answer is not valid JSON in UTF-8.") from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadAnswer("The answer has the same field twice.")
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(name)


def _decision(data: object) -> Decision:
    if not isinstance(data, Mapping):
        raise BadAnswer("A decision is not a JSON object.")
    if unknown := data.keys() - _FIELDS:
        raise BadAnswer(f"There is no field {min(unknown)[:40]!r}.")
    decision = data.get("decision")
    if decision not in ("admit", "deny"):
        raise BadAnswer("`decision` is neither `admit` nor `deny`.")
    message, tier = _text(data, "message", MESSAGE_MAX), _text(data, "tier", TIER_MAX)
    since, until = _window(data.get("window"))
    found = Decision(decision == "admit", message, tier, since, until)
    if not found.is_admitted and not message:
        raise BadAnswer("A denial needs a `message`.")
    if not found.is_admitted and found.is_change:
        raise BadAnswer("A denial changes neither tier nor window.")
    return found


def _text(data: Mapping[str, Any], name: str, most: int) -> str:
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > most or first_invisible(value):
        raise BadAnswer(f"`{name}` is not text of at most {most} visible characters.")
    return value.strip()


def _window(value: object) -> tuple[datetime | None, datetime | None]:
    if value is None:
        return None, None
    if not isinstance(value, Mapping) or not value or value.keys() - {"not_before", "deadline"}:
        raise BadAnswer("`window` has other fields than `not_before` and `deadline`.")
    return _time(value, "not_before"), _time(value, "deadline")


def _time(data: Mapping[str, Any], name: str) -> datetime | None:
    value = data.get(name)
    if value is None:
        return None
    text = value.upper() if isinstance(value, str) and _TIME.fullmatch(value) else ""
    try:
        found = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadAnswer(f"`{name}` is not a time such as 2026-11-24T09:00:00Z.") from None
    if found.year not in _YEARS:
        raise BadAnswer(f"`{name}` is not between the years {_YEARS[0]} and {_YEARS[-1]}.")
    return found
