"""The one-line request: `2 h100 6h today same nvlink`. The parts can be in any order. Every word
has exactly one meaning, or the request is refused at that word.

`2 h100 + 4 l40s 6h`: each ` + ` before a class begins a group, which ends at the first word that is
no part of a shape. What remains of the line is read as a request of the first group, and each group
as a request of its own; all words keep their positions.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from lark import Lark, Token, Tree, UnexpectedInput
from lark.lexer import Lexer

from allocation.errors import AskError
from allocation.rules.ask.line.arrays import array_check
from allocation.rules.ask.line.repairs import missing_part_of, repairs_useful, words_refuse
from allocation.rules.ask.line.shape import SHAPE_RULES, classes_of
from allocation.rules.ask.line.text import moment_text
from allocation.rules.ask.line.tokens import plain, tokens_of
from allocation.rules.ask.when.series import SERIES_RULES, series_end, series_of
from allocation.rules.ask.when.series_days import series_days
from allocation.rules.ask.when.when import when_resolve
from allocation.rules.ask.when.when_parts import WHEN_PARTS, When, when_add
from allocation.rules.ask.words.document import MAX_GROUPS, MIN_DURATION_SECONDS, AskGroup
from allocation.rules.ask.words.names import Names, names_of
from allocation.rules.ask.words.parsed import Catalogue, Parsed, Problem, Repair
from allocation.rules.ask.words.reading import Reading
from tenants.platform.coded import coded

MAX_TEXT_LENGTH = 200
_SPACES = "\t\u00a0\u202f"

# A list of parts in any order. The rules of the parts refuse a part that occurs twice, and combine
# a day and a time into one window wherever they are.
GRAMMAR = r"""
start: part*
?part: count | classes | anything | profile | slice | memory | share | filler | cores | ram
     | together | workload | tier | project | cheapest | burst | place | data
     | zone | not_zone | storage | scratch
     | duration | coming | asap | anytime | in_time | plain | hours | overnight
     | earliest | begin | until | deadline | window | between | whole_day | whole_span
     | repeat | rrule | times | array | parallel | noise

count: COUNT | NUMX | XNUM
classes: CLASS (OR CLASS)*
anything: ANY
profile: PROFILE
slice: MIG | SLICE
memory: (GB | VRAM) EACH?
share: SHARE
filler: GPU
cores: CORES EACH?
ram: RAM EACH?
together: TOGETHER
workload: WORKLOAD
tier: TIER
project: PROJECT
cheapest: CHEAPEST
burst: BURST
place: PLACE
zone: ZONE
not_zone: NOTZONE
storage: STORAGE
scratch: SCRATCH
data: DATA

duration: LENGTH
coming: NEXTLENGTH
asap: ASAP
anytime: ANYTIME
in_time: INTIME
hours: HOURS
overnight: OVERNIGHT
plain: moment
earliest: FROM moment
begin: START moment
until: UNTIL moment
deadline: BY moment
window: moment _to moment | FROM moment _to moment | START moment _to moment
between: BETWEEN moment AND moment | BETWEEN HOURS
_to: TO | DASH | UNTIL
moment: (DAY | CLOCK | PART | TONIGHT | INSTANT | SPAN | MONTH | DAYEND)+
whole_day: WHOLEDAY
whole_span: WHOLESPAN

repeat: REPEAT
rrule: RRULE
times: TIMES
array: ARRAY
parallel: PARALLEL
noise: NOISE | AND

%declare COUNT NUMX XNUM CLASS OR ANY PROFILE MIG SLICE GB VRAM SHARE GPU CORES EACH RAM TOGETHER
%declare WORKLOAD TIER PROJECT CHEAPEST BURST PLACE DATA LENGTH NEXTLENGTH ASAP ANYTIME INTIME HOURS
%declare OVERNIGHT
%declare FROM START UNTIL BY BETWEEN AND TO DASH DAY CLOCK PART TONIGHT INSTANT SPAN MONTH
%declare ZONE NOTZONE STORAGE SCRATCH
%declare DAYEND WHOLEDAY WHOLESPAN REPEAT RRULE TIMES ARRAY PARALLEL NOISE
"""


class _Tokens(Lexer):
    """A lexer for tokens that exist already."""

    def __init__(self, lexer_conf: object) -> None:
        """Ignores the configuration."""

    def lex(self, lexer_state: Any, parser_state: object = None) -> Iterator[Token]:  # noqa: ANN401 (Lark passes on what it was given)
        """The tokens, unchanged."""
        return iter(lexer_state)


_PARSER = Lark(GRAMMAR, parser="lalr", lexer=_Tokens)


def parse_ask(text: str, *, catalogue: Catalogue, now: datetime, zone: ZoneInfo) -> Parsed:
    """Parses one line. `now` is aware, and local times are in `zone`.

    Problems are part of the result. Raises AskError only for text that is too long or has control
    characters.
    """
    if len(text) > MAX_TEXT_LENGTH:
        why = coded("ask_long", max_text_length=MAX_TEXT_LENGTH)
        raise AskError("text_too_long", why, "request")
    if any(not char.isprintable() and char not in _SPACES for char in text):
        raise AskError("control_characters", coded("ask_one_line"), "request")

    def read(line: str) -> Parsed:
        return _read(Reading(line, catalogue, names_of(catalogue), now.astimezone(UTC), zone))

    mixed = _mixed(text, read, names_of(catalogue))
    if mixed is not None:
        return mixed
    parsed = read(text)
    wrong = parsed.problems or ((parsed.missing,) if parsed.missing else ())
    if not wrong:
        return parsed
    apart = _two_requests(text, read) if parsed.problems else None
    helped = (apart,) if apart else repairs_useful(wrong, read, MAX_TEXT_LENGTH)
    return replace(parsed, problems=helped) if parsed.problems else replace(parsed, missing=helped[0])


def _mixed(text: str, read: Callable[[str], Parsed], names: Names) -> Parsed | None:
    """The meaning of `2 h100 + 4 l40s 6h`, and of `2 h100 and 4 l40s 6h` if it is a whole request."""
    mixed = mixed_split(text, names)
    if mixed is not None:
        return mixed_read(read, mixed)
    in_words = mixed_split(_AND.sub(lambda found: "+".ljust(len(found[0])), text), names)
    both = mixed_read(read, in_words) if in_words is not None else None
    return both if both is not None and not both.problems and not both.missing else None


def _two_requests(text: str, read: Callable[[str], Parsed]) -> Problem | None:
    """The problem of `1 h100 2h and 1 a100 3h`, in which both are whole requests."""
    for between in islice(_BETWEEN_REQUESTS.finditer(text), MOST_SPLITS):
        both = (text[: between.start()].strip(), text[between.end() :].strip())
        if all(each and (found := read(each)).missing is None and not found.problems for each in both):
            why = coded("ask_two_requests")
            return Problem(0, len(text), "said_twice", why, tuple(Repair(each, each) for each in both))
    return None


def _read(reading: Reading) -> Parsed:
    """The meaning of the line, with all repairs for its problems."""
    trees, refused = _trees(tokens_of(reading.text, reading.names))
    when = When(repeats=any(tree.data in ("repeat", "rrule") for tree in trees))
    for tree in trees:
        _part(reading, when, tree)
    if when.repeats:
        series_days(reading, when)
    series_end(reading, when)
    if "which_half" not in {problem.code for problem in reading.problems}:
        when_resolve(reading, when)
    words_refuse(reading, refused)
    return _parsed(reading)


def _part(reading: Reading, when: When, tree: Tree[Token]) -> None:
    name = str(tree.data)
    if name in WHEN_PARTS:
        when_add(reading, when, tree)
        return
    tokens = [token for token in tree.children if isinstance(token, Token)]
    (SHAPE_RULES.get(name) or SERIES_RULES[name])(reading, tokens)


def _trees(tokens: list[Token]) -> tuple[list[Tree[Token]], list[Token]]:
    """(The parts, the tokens that belong to no part).

    Where the grammar can't continue, the part that was begun is refused and parsing restarts after
    it.
    """
    trees: list[Tree[Token]] = []
    refused: list[Token] = []
    at = 0
    while at < len(tokens):
        found, stop = _tree(tokens[at:])
        if found is not None:
            trees += found
            return trees, refused
        whole = stop
        while whole:
            found, _ = _tree(tokens[at : at + whole])
            if found is not None:
                trees += found
                break
            whole -= 1
        end = max(stop, whole + 1)
        refused += tokens[at + whole : at + end]
        at += end
    return trees, refused


def _tree(tokens: list[Token]) -> tuple[list[Tree[Token]] | None, int]:
    """The parts, or None and the number of tokens that could be parsed."""
    try:
        tree = _PARSER.parse(tokens)
    except UnexpectedInput as error:
        bad = getattr(error, "token", None)
        stop = next((n for n, token in enumerate(tokens) if token is bad), len(tokens))
        return None, stop
    return [child for child in tree.children if isinstance(child, Tree)], len(tokens)


def _parsed(reading: Reading) -> Parsed:
    values: dict[str, Any] = reading.values
    classes = classes_of(reading)
    deadline = values.get("deadline")
    if deadline is None and "start_by" in values and "starts" not in values:
        # A day limits the start: the deadline is the end of that day plus the duration.
        length = timedelta(seconds=values.get("duration", 0))
        deadline = values["start_by"] + length
        if "is_inside" in values and values["not_before"] + length <= values["start_by"]:
            deadline = values["start_by"]
    _check_window(reading, deadline)
    array_check(reading)
    # A series may begin later than its words say.
    repeat = series_of(reading)
    parsed = Parsed(
        count=values.get("count"),
        classes=classes,
        profile=values.get("profile"),
        together=values.get("together"),
        required=values.get("required", False),
        duration=values.get("duration"),
        starts=values.get("starts"),
        not_before=values.get("not_before"),
        deadline=deadline,
        workload=values.get("workload"),
        repeat=repeat,
        parts=tuple(sorted(reading.parts, key=lambda part: (part.start, part.field))),
        problems=tuple(reading.problems),
        noise=tuple(reading.noise),
        share=values.get("share"),
        cores=values.get("cores", 0),
        memory=values.get("memory", 0),
        host="host" in values,
        pin=values.get("pin", ()),
        most_cost=values.get("most_cost"),
        tier=values.get("tier"),
        project=values.get("project"),
        cheapest="cheapest" in values,
        array=values.get("array"),
        parallel=values.get("parallel"),
        ends=values.get("ends"),
        ends_in=str(reading.zone) if "ends" in values else None,
        zones=values.get("zones", ()),
        not_zones=values.get("not_zones", ()),
        storage=values.get("storage"),
        scratch=values.get("scratch", 0),
        data=values.get("data", ()),
    )
    return parsed if parsed.problems else replace(parsed, missing=missing_part_of(reading, parsed))


def _check_window(reading: Reading, deadline: datetime | None) -> None:
    values: dict[str, Any] = reading.values
    seconds, starts = values.get("duration"), values.get("starts")
    not_before = values.get("not_before")
    if starts is not None and (not_before is not None or deadline is not None):
        why = coded("ask_window_twice")
        reading.add_problem("window_twice", why, reading.spans["starts"])
    elif deadline is not None:
        first = max(not_before or reading.now, reading.now)
        least = seconds if isinstance(seconds, int) else MIN_DURATION_SECONDS
        if deadline < first + timedelta(seconds=least):
            names = ("deadline", "start_by", "not_before")
            span = next(reading.spans[name] for name in names if name in reading.spans)
            why = coded("ask_deadline_short") if seconds else coded("ask_deadline_backward")
            choices = _deadline_repairs(reading, first, least) if deadline > reading.now else []
            reading.add_problem("deadline_unreachable", why, span, choices)


def _deadline_repairs(reading: Reading, first: datetime, seconds: int) -> list[Repair]:
    """The line with the first deadline that its duration can meet."""
    if "deadline" not in reading.spans:
        return []
    five = timedelta(minutes=5)
    late = (first + timedelta(seconds=seconds) + five).astimezone(reading.zone)
    late -= timedelta(minutes=late.minute % 5, seconds=late.second, microseconds=late.microsecond)
    return reading.replacements(reading.spans["deadline"], f"by {moment_text(late, reading.zone)}")


Line = tuple[str, tuple[str, ...]]
"""The line without its further groups, and a line for each of these."""

# `2 h100 and 1 l40s`: only where the line with a plus is a request.
_AND = re.compile(r"(?<=\s)(?:and|und|plus)(?=\s+\d{1,3}\s*x?\s*[a-z])", re.IGNORECASE)
_BETWEEN_REQUESTS = re.compile(r"\s*;\s*|\s+(?:and\s+then|and|then|und|dann|\+)\s+|,\s+", re.IGNORECASE)
MOST_SPLITS = 6
_PLUS = re.compile(r"(?<=\s)\+\s*(?=\S)")
_SHAPE_WORDS = (
    "COUNT NUMX XNUM CLASS OR PROFILE MIG SLICE GB VRAM CORES EACH RAM GPU TOGETHER NOISE WHOLE "
    "SHARE ANY PLACE OTHER UNKNOWN"
)
_SHAPE = frozenset(_SHAPE_WORDS.split())
_NAMED = frozenset({"CLASS", "OTHER", "ANY"})
_ONE_OF_ALL = ("share", "workload", "pin")


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
        first = replace(first, missing=Problem(0, 0, "no_class", coded("ask_no_class")))
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
        name,
        other.count or 1,
        other.profile,
        other.cores,
        other.memory,
        other.together or "any",
        other.required,
    )


def _problems(first: Parsed, others: list[Parsed], line: Line) -> Iterator[Problem]:
    whole = (0, len(line[0].rstrip()))
    spans = [whole, *((len(text) - len(text.lstrip()), len(text.rstrip())) for text in line[1])]
    if len(spans) > MAX_GROUPS:
        yield Problem(*whole, "not_a_list", coded("ask_groups_most", max_groups=MAX_GROUPS))
    seen: set[str] = set()
    for parsed, span in zip((first, *others), spans, strict=True):
        if len(parsed.classes) != 1:
            yield Problem(*span, "no_class", coded("ask_group_class"))
        elif parsed.classes[0] in seen:
            name = parsed.classes[0]
            why = coded("ask_class_twice", name=name)
            yield Problem(*span, "class_twice", why)
        seen.update(parsed.classes)
        for name in _ONE_OF_ALL:
            if getattr(parsed, name):
                why = coded(f"ask_group_{name}")
                yield Problem(*span, "not_in_groups", why)
