"""Problems with words that have no meaning, and corrected lines that repair them."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from lark import Token

from allocation.rules.ask.line.ambiguous import (
    refuse,
    refuse_bare_number,
    refuse_clock_or_length,
    refuse_clock_words,
    refuse_comma,
    refuse_fraction,
    refuse_gpu_hours,
    refuse_hour_h,
    refuse_money,
    refuse_past,
    refuse_range,
    refuse_week_number,
    refuse_week_of_month,
    refuse_within,
)
from allocation.rules.ask.line.arrays import refuse_gpus_or_dates, refuse_product, refuse_runs_or_gpus
from allocation.rules.ask.words.names import key_of
from allocation.rules.ask.words.numbers import NUMBER_WORDS, number_of
from allocation.rules.ask.words.parsed import Parsed, Problem, Repair
from allocation.rules.ask.words.reading import Reading, Span, span_of
from allocation.rules.ask.words.times import month_words
from tenants.platform.coded import coded

_WITHOUT = "without “"
MAX_READ = 8_000
"""Characters of lines that are read for the repairs of one: 99 in 100 lines of people need 1,100."""
MAX_REPAIRS = 4
MAX_GUESSES = 3
MAX_TRIALS = 8
_LENGTHS = ("1h", "4h", "1d")
_DENIALS_TEXT = "not no never without except unless nor avoid don't dont if but exclude excluding cannot"
_DENIALS = frozenset(_DENIALS_TEXT.split())
_OTHER_VERBS_TEXT = (
    "cancel extend release move stop delete remove show list why when undo end pause "
    "resume change reschedule shorten prolong where who how what"
)
_OTHER_VERBS = frozenset(_OTHER_VERBS_TEXT.split())
_PAUSABLE = re.compile(r"(?:pre-?empt[ai]ble|interruptible|pausable|low[\s-]?priority|scavenger)")
_GUARANTEED = re.compile(
    r"(?:guaranteed|reserved|uninterruptible|dedicated|"
    r"(?:not?|non|never|cannot|can't)[\s-]?(?:be\s+)?(?:interrupt|paus|pre-?empt)\w*)"
)
_VAGUE = {
    "some": ("1", "2", "4"),
    "few": ("2", "3", "4"),
    "several": ("2", "4", "8"),
    "many": ("4", "8"),
    "multiple": ("2", "4", "8"),
    "all": ("2", "4", "8"),
    "both": ("2",),
}
_SECONDS = re.compile(r"(?:for\s+)?(\d+)\s*s(?:ec(?:ond)?s?)?", re.IGNORECASE)
_MORE_HOURS = re.compile(r"(\d+)\+\s*(h|hours?)")
_NOT_MISSPELLED = frozenset({"easter", "ostern", "pfingsten"})
_A_MINUTE = 60
_NUMBER_FIRST = re.compile(r"[\W_]*\d")
_MACHINE = re.compile(r"(?=\S*\d)[a-z][a-z0-9_.]*-[a-z0-9_.-]+(?:/\d+)?")
_NUMBER_OF_NODES = re.compile(r"(\S+)\s+nodes")
_EACH = re.compile(r"\b(?:each|per\s+node)\b", re.IGNORECASE)
_MONTHS = re.compile(r"(?:for\s+)?(?:(\d{1,2}|an?|one)\s*)?months?")
_NUMBERED = re.compile(
    r"\s*\b(?:\d{1,3}|one|two|three|four|eight|eine?|zwei|drei|vier|acht)\s*x?\s*[a-z]+\d\S*\s*(?:$|(?=\s|or\b|oder\b))",
    re.IGNORECASE,
)
_GLUED = re.compile(r"\d+[a-z]+\d\w*")
_SEVENTH = re.compile(r"(?:(?:an?|one)\s+seventh|1/7|seventh)")
_SYNONYMS = {
    "soon": "asap",
    "urgent": "asap",
    "lunchtime": "12:00",
    "lunch": "13:00",
    "breakfast": "9:00",
    "dinner": "20:00",
}
# Words that change the meaning of a request, so that no repair leaves them out.
_KEPT_TEXT = "or every each / | hundred thousand first second third last all both end week nonstop"
_KEPT = frozenset(_KEPT_TEXT.split())
_LEADS = {
    "FROM": "from 14:00",
    "START": "starting 14:00",
    "BY": "by fri 18:00",
    "UNTIL": "until 18:00",
    "BETWEEN": "2h between 9:00 and 17:00",
    "AT": "at 14:00",
    "TO": "9:00 to 17:00",
    "DASH": "9:00-17:00",
    "OR": "h100 or a100",
    "EACH": "16 cores each",
    "NEXT": "next week",
    "WHOLE": "all day fri",
    "THIS": "this weekend",
}


def words_refuse(reading: Reading, tokens: Sequence[Token]) -> None:
    """Adds a problem for each token that no part of the grammar accepts."""
    if tokens and tokens[0].lower() in _OTHER_VERBS and "classes" not in reading.values:
        # The rest of the line is not a request for GPUs.
        reading.problems.clear()
        why = coded("ask_only_books")
        refuse(reading, (span_of(*tokens)[0], len(reading.text.rstrip())), why, [])
        return
    loose: list[Token] = []
    for token in tokens:
        if token.type == "EACH" and "array" in reading.values:
            # `20 jobs of 1 l40s 30m each`: what an array says of each run.
            continue
        special = _SPECIAL.get(token.type)
        if special is not None:
            special(reading, token)
        else:
            loose.append(token)
    for run in _runs(loose):
        _unknown(reading, run)


def _runs(tokens: Sequence[Token]) -> list[list[Token]]:
    """Adjacent tokens, grouped."""
    runs: list[list[Token]] = []
    for token in tokens:
        if runs and (token.start_pos or 0) - (runs[-1][-1].end_pos or 0) <= 1:
            runs[-1].append(token)
        else:
            runs.append([token])
    return runs


def _unknown(reading: Reading, tokens: Sequence[Token]) -> None:
    span = span_of(*tokens)
    text = reading.words(span)
    words = [word for token in tokens for word in token.lower().split()]
    tiers = _known(reading, span, text.lower())
    if _DENIALS.intersection(words) and not tiers:
        why = coded("ask_denial", text=text)
        refuse(reading, span, why, _other_classes(reading, span))
        return
    if either := _either(reading, span):
        refuse(reading, span, coded("ask_incomplete", text=text, example=_LEADS["OR"]), either)
        reading.problems[:] = [each for each in reading.problems if each.code != "said_twice"]
        return
    repairs = _known(reading, span, text.lower()) + _vague(reading, tokens)
    repairs += _spelled(reading, tokens)
    if tokens[0].type in _LEADS:
        why = coded("ask_incomplete", text=text, example=_LEADS[tokens[0].type])
    else:
        why = coded("ask_word", text=text)
    if not _KEPT.intersection(words) and not _is_amount(reading, text):
        repairs.append(Repair(f"{_WITHOUT}{text}”", reading.replaced(reading.with_noise(span), "")))
    refuse(reading, span, why, repairs)


def _either(reading: Reading, span: Span) -> list[Repair]:
    """Repairs of `2 h100 or 4 a100`, whose classes have numbers of their own: each of the two."""
    before = _NUMBERED.search(reading.text, 0, span[0])
    after = _NUMBERED.match(reading.text, span[1])
    if reading.words(span).lower() not in ("or", "oder") or before is None or after is None:
        return []
    halves = ((span[0], after.end()), (before.start(), span[1]))
    return [Repair(line, line) for line in (" ".join(reading.replaced(each, "").split()) for each in halves)]


def _other_classes(reading: Reading, span: Span) -> list[Repair]:
    """`not a100`: the other classes."""
    start, end = reading.spans.get("classes", (0, 0))
    denied = reading.values.get("classes")
    if not isinstance(denied, tuple) or not span[1] <= start <= span[1] + 1:
        return []
    others = [each.slug for each in reading.catalogue.classes if each.slug not in denied]
    return reading.replacements((span[0], end), " or ".join(others)) if others else []


def _is_amount(reading: Reading, text: str) -> bool:
    """Whether words begin with a number, or can be the length that the line lacks. A line without them
    would ask for something else."""
    if not NUMBER_WORDS.keys().isdisjoint(text.lower().split()):
        return True
    # No booking is as short as seconds, so the shortest usual lengths are offered for them.
    has_number = any(char.isdigit() for char in text) and not _SECONDS.fullmatch(text)
    return has_number and ("duration" not in reading.values or bool(_NUMBER_FIRST.match(text)))


def _spelled(reading: Reading, tokens: Sequence[Token]) -> list[Repair]:
    """Repairs for misspelled words."""
    repairs: list[Repair] = []
    for token in tokens[:MAX_GUESSES]:
        word = token.lower().rstrip(".:")
        if token.type != "UNKNOWN" or len(word) < 3 or word in _NOT_MISSPELLED:
            continue
        repairs += _unglued(reading, token)
        # Of `2h100` no other name is meant, and one would leave the number out.
        if not _GLUED.fullmatch(word):
            repairs += reading.replacements(span_of(token), *reading.spelling_guesses(word))
    return repairs


def _unglued(reading: Reading, token: Token) -> list[Repair]:
    """Repairs for words without a space: `2h100`, `6hours2d`."""
    if re.fullmatch(r"~\d\S*", token):
        return reading.replacements(span_of(token), token[1:])
    found = re.fullmatch(r"(\d+)([a-z]\w*)", token)
    if not found:
        return []
    return reading.replacements(span_of(token), f"{found[1]} {found[2]}")


def _known(reading: Reading, span: Span, text: str) -> list[Repair]:
    """Repairs for names that other systems and people use."""
    wanted = None
    if _GUARANTEED.search(text):
        wanted = False
    elif _PAUSABLE.search(text):
        wanted = True
    words = [tier.slug for tier in reading.catalogue.tiers if wanted is not None and tier.pausable == wanted]
    words += _amounts(reading, text)
    words += [f"kind:{kind}" for kind in reading.catalogue.workloads if kind in text.split()]
    found = reading.replacements(reading.with_noise(span), *words)
    machine = re.sub(r"^(?:in|at)\s+", "", text)
    if _MACHINE.fullmatch(machine):
        found += reading.replacements(span, f"on {machine}")
    for name, clock in _SYNONYMS.items():
        at = text.find(name)
        if at >= 0:
            place = span[0] + at
            found += reading.replacements((place, place + len(name)), clock)
    return found


def _amounts(reading: Reading, text: str) -> Iterator[str]:
    """Yields lengths, days and slices that words with a number or a month can mean."""
    if months := _MONTHS.fullmatch(text):
        yield f"{30 * (int(months[1]) if (months[1] or '').isdecimal() else 1)}d"
    if (seconds := _SECONDS.fullmatch(text)) and int(seconds[1]) >= _A_MINUTE:
        yield f"{-(-int(seconds[1]) // _A_MINUTE)}m"
    if more := _MORE_HOURS.fullmatch(text):
        yield f"{more[1]}h"
    yield from month_words(text, reading.today)
    if _SEVENTH.fullmatch(text):
        yield from _smallest_slices(reading)


def _smallest_slices(reading: Reading) -> Iterator[str]:
    """Yields the first slice of each class that is named, or of all classes."""
    named = reading.values.get("classes")
    for entry in reading.catalogue.classes:
        if entry.profiles and (not isinstance(named, tuple) or entry.slug in named):
            yield entry.profiles[0]


def _vague(reading: Reading, tokens: Sequence[Token]) -> list[Repair]:
    for token in tokens:
        if token.lower() in _VAGUE:
            span = reading.with_noise(span_of(token))
            return reading.replacements(span, *_VAGUE[token.lower()])
    return []


def _other_gpu(reading: Reading, token: Token) -> None:
    """A known GPU that the fleet does not have."""
    span = span_of(token)
    entries = reading.catalogue.classes
    labels = ", ".join(entry.label for entry in entries)
    said = key_of(token)
    # Of L40 the L40S is meant; an H100 instead of it would change what was asked for.
    alike = [entry for entry in entries if key_of(entry.label).startswith(said)]
    entries = tuple(alike) or entries
    repairs = [
        Repair(entry.label, reading.replaced(span, entry.label.lower())) for entry in entries[:MAX_REPAIRS]
    ]
    why = coded("ask_other_gpu", gpu=reading.words(span), labels=labels)
    refuse(reading, span, why, repairs)


def _quantity(reading: Reading, token: Token) -> None:
    """`up to 4 h100`: a booking has an exact number of GPUs."""
    span = span_of(token)
    repair = Repair(f"{_WITHOUT}{reading.words(span)}”", reading.replaced(span, ""))
    refuse(reading, span, coded("ask_exact_number"), [repair])


def _nodes(reading: Reading, token: Token) -> None:
    """`a full node of h100`: the grammar does not know how many GPUs a node has, or on how many
    nodes `4 h100 on 2 nodes` are."""
    span = span_of(token)
    said = _NUMBER_OF_NODES.search(token)
    nodes, count = number_of(said[1]) if said else 1, reading.values.get("count")
    if nodes > 1 and isinstance(count, int):
        refuse(reading, span, coded("ask_node_number"), [_on_any_nodes(reading, span, nodes, count)])
        return
    why = coded("ask_whole_node")
    repairs = [
        Repair(f"{number} on one node", f"{reading.replaced(span, str(number))} same node")
        for number in (4, 8)
    ]
    refuse(reading, span, why, repairs)


def _on_any_nodes(reading: Reading, span: Span, nodes: int, count: int) -> Repair:
    """`4 h100 on 2 nodes` without the nodes; `2 nodes with 4 h100 each` has the GPUs of both."""
    total = count * nodes if _EACH.search(reading.text) else count
    line = reading.text
    edits = ((span, " "), (reading.spans["count"], f" {total} "))
    for (start, end), words in sorted(edits, reverse=True):
        line = f"{line[:start]}{words}{line[end:]}"
    return Repair(f"{total} GPUs", " ".join(_EACH.sub("", line).split()))


def _no_project(reading: Reading, token: Token) -> None:
    whys = coded("ask_no_project", project=token.split()[-1]), "ask_no_project_of"
    reading.add_no_such(span_of(token), whys, "project", reading.catalogue.projects)


def _no_zone(reading: Reading, token: Token) -> None:
    whys = coded("ask_no_zone", zone=re.split(r"[:\s]+", token)[-1]), "ask_no_zone_of"
    lead = "not in" if token.startswith("not") else "in"
    reading.add_no_such(span_of(token), whys, lead, reading.catalogue.zones)


def _apart(reading: Reading, token: Token) -> None:
    repairs = reading.replacements(span_of(token), "same node", "same nvlink", "same rack")
    refuse(reading, span_of(token), coded("ask_apart"), repairs)


_SPECIAL: dict[str, Callable[[Reading, Token], None]] = {
    "OTHER": _other_gpu,
    "DEC": refuse_fraction,
    "NUM": refuse_bare_number,
    "GPUHOURS": refuse_gpu_hours,
    "NOPROJECT": _no_project,
    "NOZONE": _no_zone,
    "YESTERDAY": refuse_past,
    "CLOCKHOURS": refuse_clock_or_length,
    "WITHIN": refuse_within,
    "MONEY": refuse_money,
    "WEEKNUMBER": refuse_week_number,
    "APART": _apart,
    "RANGE": refuse_range,
    "QUANT": _quantity,
    "NODES": _nodes,
    "HOURH": refuse_hour_h,
    "CLOCKWORDS": refuse_clock_words,
    "COMMALENGTH": refuse_comma,
    "MONTHWEEK": refuse_week_of_month,
    "RUNSORGPUS": refuse_runs_or_gpus,
    "GPUSORDATES": refuse_gpus_or_dates,
    "PRODUCT": refuse_product,
}


def missing_part_of(reading: Reading, parsed: Parsed) -> Problem | None:
    """The missing part of a line without problems."""
    text = " ".join(reading.text.split())
    end = len(reading.text)
    if not parsed.classes:
        number = parsed.count or 1
        repairs = [
            Repair(entry.label, f"{text} {entry.slug}") for entry in reading.catalogue.classes[:MAX_REPAIRS]
        ]
        repairs.append(Repair("any GPU", f"{text} any"))
        what = "GPU" if number == 1 else "GPUs"
        why = coded("ask_class_or_any", what=what)
        return Problem(0, end, "no_class", why, tuple(repairs))
    if parsed.duration is None:
        repairs = [Repair(length, f"{text} {length}") for length in _LENGTHS]
        if "start_by" in reading.values:
            whole = re.sub(r"\b((?:this |next )?weekend)\b", r"all \1", text, flags=re.IGNORECASE)
            whole = f"{text} all day" if whole == text else whole
            repairs.insert(0, Repair("all of it", whole))
        return Problem(0, end, "no_duration", coded("ask_duration"), tuple(repairs))
    return None


def repairs_useful(
    problems: Sequence[Problem], read: Callable[[str], Parsed], longest: int
) -> tuple[Problem, ...]:
    """The problems in order, with the repairs that leave a line without a problem or a missing part.

    A repair that leaves other problems is completed by the first repairs of those. Only where no line
    is complete, its missing part is added, and at last the repairs with the fewest problems are kept.
    So many lines are read as have `MAX_READ` characters together: the problems after them have no repairs.
    """
    ordered = sorted(problems, key=lambda each: (each.start, each.code))
    reader = _Reader(read, longest, len(problems))
    found, whole, filled = list[Problem](), list[Problem](), list[Problem]()
    for problem in ordered:
        try:
            helped = reader.helped(problem)
        except _EnoughRead:
            helped = (replace(problem, repairs=()),) * 3
        for problems_of, each in zip((found, whole, filled), helped, strict=True):
            problems_of.append(each)
    offered = (each for each in (whole, filled) if any(problem.repairs for problem in each))
    return tuple(next(offered, found))


class _EnoughRead(Exception):
    """Lines of `MAX_READ` characters were read."""


class _Reader:
    """Reads lines with repairs, each once."""

    def __init__(self, read: Callable[[str], Parsed], longest: int, most: int) -> None:
        """`most` is the number of problems without repairs."""
        self._read, self._longest, self._most = read, longest, most
        self._known: dict[str, Parsed] = {}
        self._characters = 0

    def helped(self, problem: Problem) -> tuple[Problem, Problem, Problem]:
        """The problem with the repairs that leave the fewest problems, with those of whole requests, and
        with those to which a missing part is added. Raises _EnoughRead."""
        trials = problem.repairs[:MAX_TRIALS]
        good = {each.text: each for each in trials if self._leaves(each) < self._most}
        least = min(map(self._leaves, good.values()), default=0)
        best = [each for each in good.values() if self._leaves(each) == least][: MAX_REPAIRS + 1]
        lines = [[*_complete(each, self._once, self._longest)] for each in best]
        meant = zip(best, lines, strict=True)
        whole = (more for each, kept in meant if _has_words(each, kept) for more in kept[:1])
        found = replace(problem, repairs=tuple(best))
        return found, _with(problem, whole), _with(problem, chain.from_iterable(lines))

    def _once(self, line: str) -> Parsed:
        if line not in self._known:
            self._characters += len(line)
            if self._characters > MAX_READ:
                raise _EnoughRead
            self._known[line] = self._read(line)
        return self._known[line]

    def _leaves(self, repair: Repair) -> int:
        is_line = 0 < len(repair.text) <= self._longest
        return len(self._once(repair.text).problems) if is_line else self._most


def _has_words(repair: Repair, lines: Sequence[Repair]) -> bool:
    """Whether the repair says what words mean, or is a request without them. What lacks a part
    without the words is offered only where nothing else is left."""
    return repair in lines or not repair.label.startswith(_WITHOUT)


def _with(problem: Problem, repairs: Iterable[Repair]) -> Problem:
    """The problem with these repairs, each line once."""
    once = {each.text: each for each in repairs}
    return replace(problem, repairs=tuple(once.values())[: MAX_REPAIRS + 1])


def _complete(repair: Repair, read: Callable[[str], Parsed], longest: int) -> Iterator[Repair]:
    """Yields the repair, or the lines with what its line needs to be a request."""
    line = _repaired(repair, read, longest)
    if line is not None:
        yield from _filled(line, read, longest)


def _repaired(repair: Repair, read: Callable[[str], Parsed], longest: int) -> Repair | None:
    """The repair, and where its line has other problems, the first repairs of those; None where
    they do not help. The line may lack a part."""
    line = repair.text
    for _ in range(MAX_TRIALS):
        problems = read(line).problems
        if not problems:
            return repair if line == repair.text else Repair(line, line)
        texts = [each.text for problem in problems for each in problem.repairs[:MAX_GUESSES]]
        fits = (text for text in texts if 0 < len(text) <= longest)
        following = next((text for text in fits if len(read(text).problems) < len(problems)), None)
        if following is None:
            return None
        line = following
    return None


def _filled(repair: Repair, read: Callable[[str], Parsed], longest: int) -> Iterator[Repair]:
    """Yields the lines with what this line lacks: its class, then its duration."""
    missing = read(repair.text).missing
    if missing is None:
        yield repair
        return
    for each in missing.repairs:
        if len(each.text) > longest:
            continue
        more = read(each.text)
        # A repair that leaves the same part missing does not help, also not when it is repeated.
        if not more.problems and (more.missing is None or more.missing.code != missing.code):
            yield from _filled(Repair(each.text, each.text), read, longest)
