"""The one-line ask: `2 h100 6h today same nvlink`. What is not understood is never guessed."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from allocation.errors import AskError
from allocation.rules.ask_beside import read_beside, read_share
from allocation.rules.ask_parsed import Catalogue, Parsed
from allocation.rules.ask_pin import read_pin
from allocation.rules.ask_reader import Reader, names_of, tokens_of
from allocation.rules.ask_repeat import (
    read_every,
    read_hours,
    read_rule,
    read_times,
    read_until,
    recurrence_said,
)
from allocation.rules.ask_shapes import (
    profile_classes,
    read_any,
    read_class,
    read_count,
    read_filler,
    read_profile,
    read_together,
    read_workload,
)
from allocation.rules.ask_windows import (
    read_at,
    read_deadline,
    read_duration,
    read_from,
    read_now,
)

LONGEST_TEXT = 200
_SPACES = "\t\u00a0\u202f"


def parse_ask(text: str, *, catalogue: Catalogue, now: datetime, zone: ZoneInfo) -> Parsed:
    """Reads one line. `now` is aware; words of time are meant in `zone`.

    AskError only for text that is no request at all: too long, or with control characters.
    """
    if len(text) > LONGEST_TEXT:
        sentence = f"A request is at most {LONGEST_TEXT} characters long."
        raise AskError("text_too_long", sentence, "request")
    if any(not char.isprintable() and char not in _SPACES for char in text):
        raise AskError("control_characters", "A request is one line of plain text.", "request")
    reader = Reader(tokens_of(text), names_of(catalogue), catalogue, now.astimezone(UTC), zone)
    at = 0
    while at < len(reader.tokens):
        used = next((used for rule in _RULES if (used := rule(reader, at))), 0)
        if not used:
            reader.unknown.append(reader.span(at, 1))
        at += used or 1
    return _parsed(reader)


def _parsed(reader: Reader) -> Parsed:
    said: dict[str, Any] = reader.said
    classes = _classes(reader)
    deadline = said.get("deadline")
    if deadline is None and "start_by" in said and "starts" not in said:
        # A day is when it starts; the window's end is that day's and the time it takes.
        deadline = said["start_by"] + timedelta(seconds=said.get("duration", 0))
    starts = said.get("starts")
    not_before = said.get("not_before") if starts is None or "day" not in said else None
    _check_window(reader, starts, not_before, deadline)
    repeat = recurrence_said(reader)
    return Parsed(
        count=said.get("count"),
        classes=classes,
        profile=said.get("profile"),
        together=said.get("together"),
        required=said.get("required", False),
        duration=said.get("duration"),
        starts=starts,
        not_before=not_before,
        deadline=deadline,
        workload=said.get("workload"),
        repeat=repeat,
        parts=tuple(sorted(reader.parts, key=lambda part: (part.start, part.field))),
        unknown=_joined(reader.unknown),
        problems=tuple(sorted(reader.problems, key=lambda each: (each.start, each.code))),
        share=said.get("share"),
        cores=said.get("cores", 0),
        memory=said.get("memory", 0),
        pin=said.get("pin", ()),
    )


def _classes(reader: Reader) -> tuple[str, ...]:
    """The classes named, or all that can make the slice that was named."""
    said: dict[str, Any] = reader.said
    profile = said.get("profile")
    named: tuple[str, ...] | None = said.get("classes")
    if profile is None:
        return named or ()
    able = profile_classes(reader, profile)
    if named is None:
        return able
    fitting = tuple(slug for slug in named if slug in able)
    if not fitting:
        sentence = f"{' or '.join(named)} has no slice {profile}."
        reader.trouble("impossible_profile", sentence, reader.spans["profile"])
    return fitting


def _check_window(
    reader: Reader,
    starts: datetime | None,
    not_before: datetime | None,
    deadline: datetime | None,
) -> None:
    seconds = reader.said.get("duration")
    if starts is not None and (not_before is not None or deadline is not None):
        sentence = "A window is either exact, or has an earliest start and a deadline."
        reader.trouble("window_twice", sentence, reader.spans["starts"])
    elif deadline is not None and isinstance(seconds, int):
        first = max(not_before or reader.now, reader.now)
        if deadline < first + timedelta(seconds=seconds):
            span = reader.spans.get("deadline") or reader.spans["not_before"]
            sentence = "There is less time before the deadline than the booking is long."
            reader.trouble("deadline_unreachable", sentence, span)


def _joined(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Unknown words next to each other as one span."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start - joined[-1][1] <= 1:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return tuple(joined)


_RULES: tuple[Callable[[Reader, int], int], ...] = (
    read_every,
    read_rule,
    read_until,
    read_times,
    read_hours,
    read_workload,
    read_beside,
    read_share,
    read_count,
    read_class,
    read_any,
    read_profile,
    read_together,
    read_duration,
    read_now,
    read_from,
    read_deadline,
    read_at,
    read_pin,
    read_filler,
)
