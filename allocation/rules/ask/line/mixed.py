"""Mixed requests in one line: `2 h100 + 4 l40s 6h`. Each ` + ` before a class begins a group.

A group ends at the first word that is no part of a shape. What remains of the line is read as a
request of the first group, and each group as a request of its own; all words keep their positions.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from allocation.rules.ask.line.tokens import plain, tokens_of
from allocation.rules.ask.words.document import MAX_GROUPS, AskGroup
from allocation.rules.ask.words.names import Names
from allocation.rules.ask.words.parsed import Parsed, Problem

Line = tuple[str, tuple[str, ...]]
"""The line without its further groups, and a line for each of these."""

_PLUS = re.compile(r"(?<=\s)\+\s*(?=\S)")
_SHAPE_WORDS = (
    "COUNT NUMX XNUM CLASS OR PROFILE MIG SLICE GB VRAM CORES EACH RAM GPU TOGETHER NOISE WHOLE "
    "SHARE ANY PLACE OTHER UNKNOWN"
)
_SHAPE = frozenset(_SHAPE_WORDS.split())
_NAMED = frozenset({"CLASS", "OTHER", "ANY"})
_ONE_OF_ALL = {"share": "a share", "workload": "a kind of work", "pin": "a pin"}


def mixed_split(text: str, names: Names) -> Line | None:
    """The line of the first group and those of the others; None if there is one group."""
    pluses = list(_PLUS.finditer(plain(text)))
    if not pluses:
        return None
    rest, others = text, []
    for number, plus in enumerate(pluses):
        until = pluses[number + 1].start() if number + 1 < len(pluses) else len(text)
        end = _group_end(" " * plus.end() + text[plus.end() : until], names)
        if end is None:
            return None
        others.append(" " * plus.end() + text[plus.end() : end] + " " * (len(text) - end))
        rest = rest[: plus.start()] + " " * (end - plus.start()) + rest[end:]
    return rest, tuple(others)


def _group_end(line: str, names: Names) -> int | None:
    """Where the words of the group at the end of the line are over; None: it names no class, so it
    is no group (`+ 3h`)."""
    end, kinds = 0, set[str]()
    for token in tokens_of(line, names):
        if token.type not in _SHAPE:
            break
        kinds.add(token.type)
        end = int(token.end_pos or end)
    is_counted = line.lstrip()[:1].isdigit() and "UNKNOWN" in kinds
    return end if kinds & _NAMED or is_counted else None


def mixed_read(read: Callable[[str], Parsed], line: Line) -> Parsed:
    """The meaning of all groups together. Repairs are left out: they would lose the groups."""
    first, *others = map(read, (line[0], *line[1]))
    if first.missing is None and not first.problems and not first.classes:
        first = replace(first, missing=Problem(0, 0, "no_class", "Name a GPU class."))
    problems = [*first.problems, *(each for other in others for each in other.problems)]
    problems += _problems(first, others, line)
    return replace(
        first,
        count=first.count or 1,
        groups=tuple(_group(other) for other in others),
        parts=tuple(
            sorted(
                (part for each in (first, *others) for part in each.parts),
                key=lambda part: (part.start, part.field),
            )
        ),
        noise=tuple(span for each in (first, *others) for span in each.noise),
        problems=tuple(replace(each, repairs=()) for each in problems),
        missing=None if problems or not first.missing else replace(first.missing, repairs=()),
    )


def _group(other: Parsed) -> AskGroup:
    name = other.classes[0] if other.classes else ""
    return AskGroup(
        name, other.count or 1, other.profile, other.cores, other.memory,
        other.together or "any", other.required,
    )  # fmt: skip


def _problems(first: Parsed, others: list[Parsed], line: Line) -> Iterator[Problem]:
    whole = (0, len(line[0].rstrip()))
    spans = [whole, *((len(text) - len(text.lstrip()), len(text.rstrip())) for text in line[1])]
    if len(spans) > MAX_GROUPS:
        yield Problem(*whole, "not_a_list", f"A request can have at most {MAX_GROUPS} groups.")
    seen: set[str] = set()
    for parsed, span in zip((first, *others), spans, strict=True):
        if len(parsed.classes) != 1:
            yield Problem(*span, "no_class", "Name one GPU class for each group.")
        elif parsed.classes[0] in seen:
            name = parsed.classes[0]
            sentence = f"Two groups name {name}. Add their counts together."
            yield Problem(*span, "class_twice", sentence)
        seen.update(parsed.classes)
        for name, words in _ONE_OF_ALL.items():
            if getattr(parsed, name):
                sentence = f"A request with several groups can't have {words}."
                yield Problem(*span, "not_in_groups", sentence)
