"""Phrases that people type, with their meaning or refusal: read from a table."""

import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from allocation.rules.ask import Catalogue, ClassEntry, Parsed, TierEntry, parse_ask
from allocation.rules.ask.line.text import duration_text

FOLDER = Path(__file__).with_name("corpus")
ZONE = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 18, 9, 0, tzinfo=UTC)  # a Wednesday, 10:00 in Berlin
SLICES = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
SMALL_SLICES = ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
SITE = Catalogue(
    (
        ClassEntry("h100", "H100 80 GB", ("h100-80gb",), 81_559, SLICES),
        ClassEntry("a100", "A100 80 GB", ("a100-80gb",), 81_920, SLICES),
        ClassEntry("a100-40", "A100 40 GB", ("a100-40gb",), 40_960, SMALL_SLICES),
        ClassEntry("l40s", "L40S 48 GB", ("l40s",), 46_068, ()),
    ),
    ("inference", "training"),
    (
        TierEntry("assured", "Assured", pausable=False),
        TierEntry("standard", "Standard", pausable=True),
        TierEntry("spot", "Spot", pausable=True),
    ),
    (("folding", "Protein folding"), ("docking", "Docking")),
)


def read(text: str) -> Parsed:
    """The phrase at the corpus's site and time."""
    return parse_ask(text, catalogue=SITE, now=NOW, zone=ZONE)


def corpus(name: str) -> Iterator[tuple[str, str]]:
    """(phrase, meaning) of a table."""
    with (FOLDER / name).open(encoding="utf-8", newline="") as lines:
        yield from ((row[0], row[1]) for row in csv.reader(lines, delimiter="\t") if row)


def meaning_of(parsed: Parsed, text: str) -> str:
    """`2 h100; 6h; at Fri 20 Nov 22:00`, or what is refused where, and the lines offered."""
    wrong = parsed.problems or ((parsed.missing,) if parsed.missing else ())
    if wrong:
        return "! " + " & ".join(
            f"{each.code} “{text[each.start : each.end]}” → "
            + (" | ".join(repair.text for repair in each.repairs) or "nothing")
            for each in wrong
        )
    return "; ".join(_said(parsed))


def _said(parsed: Parsed) -> Iterator[str]:
    shape = parsed.profile or (f"{parsed.share / 1000:g}" if parsed.share else "")
    yield " ".join(filter(None, [str(parsed.count or 1), shape, "|".join(parsed.classes)]))
    yield duration_text(parsed.duration or 0)
    for word, moment in (
        ("at", parsed.starts),
        ("from", parsed.not_before),
        ("by", parsed.deadline),
    ):
        if moment is not None:
            yield f"{word} {moment.astimezone(ZONE):%a %d %b %H:%M}"
    if parsed.together:
        yield f"{'same' if parsed.required else 'preferably same'} {parsed.together}"
    yield from (f"on {name}" for name in parsed.pin)
    yield from [f"{parsed.cores} cores"] * bool(parsed.cores)
    yield from [f"{parsed.memory} GiB"] * bool(parsed.memory)
    yield from [f"tier {parsed.tier}"] * bool(parsed.tier)
    yield from [f"project {parsed.project}"] * bool(parsed.project)
    yield from [f"kind {parsed.workload}"] * bool(parsed.workload)
    yield from ["cheapest"] * parsed.cheapest
    if parsed.repeat is not None:
        yield parsed.repeat.text
