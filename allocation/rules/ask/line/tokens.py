"""The tokens of a request. Spelling is tolerant, meaning is not.

A token covers one or more words ("half a day", "A100 80 GB"). All other words are UNKNOWN tokens,
which no rule of the grammar accepts.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from lark import Token

from allocation.rules.ask.line.terminals import (
    PLACE_LEAD,
    SERIES_TERMINALS,
    TERMINALS,
    THING,
)
from allocation.rules.ask.words.names import OTHER_GPUS, Names, key_of
from allocation.rules.ask.words.respelling import Respelled, respelled
from allocation.rules.ask.words.times import MONTH_NAMED, clock_read

_END = r"(?=[\s,;!?()&|/]|[.:](?:\s|$)|$)"
# Tokens that can end at a dash, as in `9-17` and `mon-wed`.
_DASHED = r"(?=[\s,;!?()&|/-]|[.:](?:\s|$)|$)"
_ENDS = dict.fromkeys(("NUM", "CLOCK", "DAY", "INSTANT", "DEC", "LENGTH"), _DASHED)
_ENDS |= {"NUMX": "", "DASH": "", "OR": "", "AT": "", "CLASS": rf"(?:{_END}|(?=[x*:]\s?\d))"}
_SKIP = re.compile(r"(?:[\s,;!?()]|[.:](?=\s|$))+")
_WORD = re.compile(r"[^\s,;!?()]+?(?=[\s,;!?()]|[.:](?:\s|$)|$)")
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*(?:/\d{1,3})?(?=[\s,;!?()|]|$)")
_SPLIT = {"–": "-", "—": "-", "−": "-", "×": "x", "’": "'", "\u00a0": " ", "\u202f": " "}
_EACH_NIGHT = "nightly"
_NIGHTLY = re.compile(r"\bnightly\b")
_NIGHTS = re.compile(r"\b(?:every|each) night\b")
_HOURS = re.compile(r"\d(?:\s?[ap]m)?\s?(?:-|to|until|till)\s?\d")
# Hours that mean the evening after `every night`: `8-10`.
_EVENING = re.compile(
    r"(?<![\d:.])(?:[6-9]|1[01])(?:[:.]\d\d)?\s?(?:-|to|until|till)\s?\d{1,2}(?!\d)"
    rf"(?!\s*{MONTH_NAMED})"
)
_OF_MONTH = re.compile(rf"(?:the\s+)?(\d{{1,2}})(?:st|nd|rd|th)?\.?\s+(?:of\s+)?({MONTH_NAMED})")
_IN_MONTH = re.compile(rf"({MONTH_NAMED})\s+(?:the\s+)?(\d{{1,2}})(?:st|nd|rd|th)?")
_OF_DAY = re.compile(r"(?:the\s+)?(\d{1,2})(?:st|nd|rd|th)?")
_COUNTED = frozenset({"CLASS", "OTHER", "PROFILE", "MIG", "SLICE", "GPU", "ANY", "GB", "VRAM"})
_HOUR_H = re.compile(r"([01]?\d|2[0-3])h(\d\d)?")
_LEADS = frozenset({"AT", "FROM", "START", "BY", "UNTIL", "BETWEEN", "TO", "DASH"})


def plain(text: str) -> str:
    """The text in lower case with plain dashes, spaces and digits. Every character keeps its position."""
    lowered = (char.lower() if len(char.lower()) == 1 else char for char in text)
    return "".join(_SPLIT.get(char, _digit(char)) for char in lowered)


def _digit(char: str) -> str:
    """The character, or the digit that it is in another script: rules read digits of one script."""
    return char if char.isascii() or not char.isdecimal() else str(unicodedata.decimal(char))


def tokens_of(text: str, names: Names) -> list[Token]:
    """The tokens of a line in order. They cover everything except spaces and punctuation."""
    typed = respelled(plain(text), names.words)
    line = _nights_as_days(typed.line)
    tokens = list(_scan(line, names, _WORDS))
    repeats = any(token.type in ("REPEAT", "RRULE") or token == _EACH_NIGHT for token in tokens)
    if repeats:
        tokens = _every_night(_scan(line, names, _WORDS_OF_SERIES))
    _share_month(tokens)
    if repeats:
        _times_of_dates(tokens)
    return [_as_typed(token, typed) for token in _with_roles(line, tokens)]


def _as_typed(token: Token, typed: Respelled) -> Token:
    """The token at its place in the line as typed."""
    start, end = typed.place(token.start_pos or 0, token.end_pos or 0)
    return Token(token.type, token.value, start_pos=start, end_pos=end)


def _nights_as_days(line: str) -> str:
    """The line with `every day` in place of `every night` if hours say which: `every night 22-6`.
    Every character keeps its position."""
    if not _HOURS.search(line) or _EVENING.search(line):
        return line
    line = _NIGHTS.sub(lambda found: "every day".ljust(len(found[0])), line)
    return _NIGHTLY.sub("daily  ", line)


def _every_night(tokens: Iterable[Token]) -> list[Token]:
    """The tokens with `daily` and `night` in place of `nightly`. A part of the day stands next to
    the hours before it: the night of `8-10 every night in february` is not one of February."""
    found: list[Token] = []
    for token in tokens:
        if token == _EACH_NIGHT:
            found += [_read_as("REPEAT", token, "daily"), _read_as("PART", token, "night")]
        else:
            found.append(token)
        hours = [each.type for each in found[-3:]]
        if hours[1:] == ["REPEAT", "PART"] and hours[0] in ("NUM", "CLOCK"):
            found[-2:] = found[:-3:-1]
    return found


def _times_of_dates(tokens: list[Token]) -> None:
    """Reads `5x` and `x5` of a series as a number of dates where another number counts its GPUs, and
    asks where it can be either: `h100 every mon 9-17 5x`."""
    counted = [at for at in range(len(tokens)) if tokens[at].type in ("NUM", "NUMX", "XNUM", "SHARE", "DEC")]
    of_gpus = [at for at in counted if _counts_gpus(tokens, at)]
    for at in counted:
        if tokens[at].type not in ("NUMX", "XNUM"):
            continue
        if at not in of_gpus[:1]:
            tokens[at] = _as("TIMES" if of_gpus else "GPUSORDATES", tokens[at])


def _counts_gpus(tokens: list[Token], at: int) -> bool:
    """Whether the number at this place stands next to what it counts: `2 h100`, `h100 x2`."""
    before = tokens[at - 1].type if at else ""
    if tokens[at].type == "XNUM" and before in _COUNTED:
        return True
    return before not in _LEADS and _next_kind(tokens, at) in _COUNTED


def _share_month(tokens: list[Token]) -> None:
    """Gives both days of `1-6 feb`, `1st to 6th of february` and `feb 1-6` their month."""
    for at, (first, to, last) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False)):
        before = tokens[at - 1].type if at else ""
        is_to = to.type == "DASH" or to.value in ("to", "through", "thru")
        is_until = to.type == "UNTIL" and first.type == "DAY"
        is_between = to.type == "AND" and before == "BETWEEN"
        # The 18 of `10-18 until 31 jan` is an hour.
        if not (is_to or is_until or is_between) or before in ("DASH", "TO", "UNTIL", "AT"):
            continue
        day, of_month = _OF_DAY.fullmatch(first), _OF_MONTH.fullmatch(last)
        if day and of_month and int(day[1]) <= int(of_month[1]):
            tokens[at] = _read_as("DAY", first, f"{day[1]} {of_month[2]}")
        day, of_month = _OF_DAY.fullmatch(last), _IN_MONTH.fullmatch(first)
        if day and of_month and int(of_month[2]) <= int(day[1]):
            tokens[at + 2] = _read_as("DAY", last, f"{day[1]} {of_month[1]}")


def _read_as(kind: str, token: Token, value: str) -> Token:
    return Token(kind, value, start_pos=token.start_pos, end_pos=token.end_pos)


def token_of(kind: str, line: str, start: int, end: int) -> Token:
    """A token with its position."""
    return Token(kind, line[start:end], start_pos=start, end_pos=end)


@lru_cache(maxsize=256)
def _named(classes: str, profiles: str, tiers: str, projects: str, zones: str) -> re.Pattern[str]:
    """The pattern for the names of one catalogue, which take precedence over other words."""
    tier = rf"(?:(?:on|in|as|using)\s+)?(?:the\s+)?(?:tier[:\s]+)?(?:{tiers})(?:\s+tier)?"
    project = (
        rf"(?:(?:for|in|on|under)\s+)?(?:the\s+)?"
        rf"(?:project[:\s]+)?(?:{projects})(?:\s+project)?"
    )
    unknown = r"(?:(?:for|in|on|under)\s+)?(?:the\s+)?project[:\s]+[\w.-]+"
    zone = rf"(?:the\s+)?(?:zones?[:\s]+)?(?:{zones})(?:\s+zone)?"
    each = rf"{zone}(?:(?:\s*[,/|]\s*|\s+(?:or|and|nor)\s+)(?:in\s+)?{zone})*"
    return _pattern(
        (
            ("NOTZONE", rf"(?:but\s+)?(?:not\s+in|outside(?:\s+of)?|except(?:\s+in)?)\s+{each}"),
            ("ZONE", rf"(?:only\s+)?(?:in|at)\s+{each}"),
            ("NOZONE", r"(?:not\s+)?in\s+(?:the\s+)?zone[:\s]+[\w.-]+"),
            ("CLASS", classes),
            ("PROFILE", profiles),
            ("TIER", tier),
            ("PROJECT", project),
            ("NOPROJECT", unknown),
        )
    )


def _pattern(kinds: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    groups = (
        f"(?P<{kind}_{number}>(?:{pattern}){_ENDS.get(kind, _END)})"
        for number, (kind, pattern) in enumerate(kinds)
    )
    return re.compile("|".join(groups))


_FIRST_WORDS = (*TERMINALS[:1], ("OTHER", OTHER_GPUS))
_WORDS = _pattern((*_FIRST_WORDS, *TERMINALS[1:]))
_WORDS_OF_SERIES = _pattern((*_FIRST_WORDS, *SERIES_TERMINALS, *TERMINALS[1:]))


@dataclass(frozen=True, slots=True)
class _Scanner:
    """Matches names first, then words."""

    named: re.Pattern[str]
    words: re.Pattern[str]

    def match(self, line: str, at: int) -> re.Match[str] | None:
        """The token that begins at this position, if any."""
        return self.named.match(line, at) or self.words.match(line, at)


def _scan(line: str, names: Names, words: re.Pattern[str]) -> Iterator[Token]:
    named = _named(names.classes, names.profiles, names.tiers, names.projects, names.zones)
    scanner = _Scanner(named, words)
    at = 0
    while at < len(line):
        skipped = _SKIP.match(line, at)
        if skipped:
            at = skipped.end()
            continue
        token = _place(line, at, scanner) or _data(line, at, names, scanner) or _match(line, at, scanner)
        yield token
        at = int(token.end_pos or at + 1)


def _match(line: str, at: int, scanner: _Scanner) -> Token:
    found = scanner.match(line, at)
    if found and found.end() > at:
        kind = (found.lastgroup or "").rpartition("_")[0]
        return token_of(kind, line, at, at + len(found[0].rstrip()))
    word = _WORD.match(line, at)
    return token_of("UNKNOWN", line, at, word.end() if word else at + 1)


_LEAD = re.compile(
    rf"(?P<lead>{PLACE_LEAD})\s*(?<![a-z])(?:(?P<kind>{THING})\s+)*(?:(?P<number>\d{{1,3}})\s+(?:of|on|in)\s+)?"
)
_MORE = re.compile(r"\s+(?:or|and)\s+(?:gpu\s+(?P<number>\d{1,3})\s+(?:of|on|in)\s+)?|\s*\|\s*")


def _place(line: str, at: int, scanner: _Scanner) -> Token | None:
    """Matches `on n0003/2 or n0004`, `pin to node n0003`: names without another meaning."""
    lead = _LEAD.match(line, at)
    if lead is None:
        return None
    end = _name_end(line, lead.end(), scanner)
    is_named = lead["kind"] is not None
    if not end or (not is_named and line[lead.end()].isdigit()):
        # `on 2026-02-30` is a date that does not exist, not a machine.
        return None
    while (more := _MORE.match(line, end)) and (last := _name_end(line, more.end(), scanner)):
        end = last
    return token_of("PLACE", line, at, end)


_DATA_LEAD = re.compile(r"(?:with|using|near)\s+(?:the\s+)?(?P<kind>data(?:\s?sets?)?\s+)?")
_DATA_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}(?=[\s,;!?()&|]|$)")
_DATA_MORE = re.compile(r"\s*(?:,|&|\band\b)\s*(?:the\s+)?")
_DATA_END = re.compile(r"\s+data\s?sets?(?=[\s,;!?()]|$)")


def _data(line: str, at: int, names: Names, scanner: _Scanner) -> Token | None:
    """Matches `with imagenet and coco`, names of data sets that nodes have, and any name after
    `with data`. A further name after a comma without a space may be any, too."""
    lead = _DATA_LEAD.match(line, at)
    if lead is None:
        return None
    end = _data_end(line, lead.end(), names, is_any=lead["kind"] is not None)
    last = end
    while last and (more := _DATA_MORE.match(line, last)):
        last = _data_end(line, more.end(), names, is_any=more[0] == ",")
        end = last or end
    named = _DATA_END.match(line, end) if end else None
    return token_of("DATA", line, at, named.end() if named else end) if end else None


def _data_end(line: str, at: int, names: Names, *, is_any: bool) -> int:
    """The end of the name of a data set that begins at `at`; 0: there is none."""
    found = _DATA_NAME.match(line, at)
    if found is None:
        return 0
    name = found[0].rstrip(".")
    return at + len(name) if is_any or name in names.data else 0


def data_names(text: str) -> list[str]:
    """The names in the text of a DATA token."""
    lead = _DATA_LEAD.match(text)
    rest = _DATA_END.sub("", text[lead.end() if lead else 0 :])
    return [name for each in _DATA_MORE.split(rest) if (name := each.strip())]


def _name_end(line: str, at: int, scanner: _Scanner) -> int:
    """The end of the name that begins at `at`; 0 if there is none, or if it has another meaning."""
    name = _NAME.match(line, at)
    if name is None:
        return 0
    end = name.end() - line[: name.end()].endswith(".")
    meant = scanner.match(line, at)
    return 0 if meant and meant.end() >= end else end


def _with_roles(line: str, tokens: list[Token]) -> list[Token]:
    """Resolves tokens whose kind depends on their neighbours: counts, hours, `at` and `on`."""
    tokens = list(_ranges(line, tokens))
    for number, token in enumerate(tokens):
        before = tokens[number - 1].type if number else ""
        if before == "AND" and number > 2 and tokens[number - 3].type == "BETWEEN":
            before = "BETWEEN"
        after = _next_kind(tokens, number)
        if token.type == "NUM":
            tokens[number] = _number(token, before, after)
        elif token.type == "LENGTH" and before in _LEADS and _HOUR_H.fullmatch(token):
            tokens[number] = _as("HOURH", token)
        elif token.type == "SHARE" and after not in _COUNTED:
            tokens[number] = _as("UNKNOWN", token)
        elif token.type == "ARRAY" and after in _COUNTED and _is_open(line, token):
            tokens[number] = _as("RUNSORGPUS", token)
    return _merged(line, list(_products(line, tokens)))


def _is_open(line: str, token: Token) -> bool:
    """Whether the words after `array of 500` can belong to its number: `array of 500 h100`."""
    is_parted = line[token.end_pos or 0 :].lstrip().startswith((":", ","))
    return not is_parted and not re.search(r"[a-z]$", token)


def _products(line: str, tokens: list[Token]) -> Iterator[Token]:
    """Merges `500 x` and the number after it, which can be runs, or a part of one number."""
    at = 0
    while at < len(tokens):
        kinds = [token.type for token in tokens[at : at + 2]]
        if kinds in (["NUMX", "COUNT"], ["NUMX", "SHARE"]):
            yield token_of("PRODUCT", line, tokens[at].start_pos or 0, tokens[at + 1].end_pos or 0)
            at += 2
            continue
        yield tokens[at]
        at += 1


_EITHER = frozenset({"DAY", "CLOCK", "LENGTH", "TIER", "PROJECT", "PROFILE"})


def _ranges(line: str, tokens: list[Token]) -> Iterator[Token]:
    """Merges `2-4 h100` and `4-8h`, which are ambiguous numbers and not times of day."""
    has_length = any(token.type == "LENGTH" for token in tokens)
    at = 0
    while at < len(tokens):
        kinds = [token.type for token in tokens[at : at + 3]]
        is_open = kinds[:2] in (["NUM", "DASH"], ["NUM", "OR"]) and len(kinds) > 2
        after = _next_kind(tokens, at + 2)
        of_gpus = is_open and kinds[2] == "NUM" and after in _COUNTED
        is_either = kinds[1:2] == ["OR"] and kinds[:1] == kinds[2:] and kinds[0] in _EITHER
        is_number = is_open and (kinds[2] == "LENGTH" or (of_gpus and (has_length or kinds[1] == "OR")))
        if _is_number_between(tokens[at : at + 4], _next_kind(tokens, at + 3)):
            yield token_of("RANGE", line, tokens[at].start_pos or 0, tokens[at + 3].end_pos or 0)
            at += 4
            continue
        if is_either or is_number:
            yield token_of("RANGE", line, tokens[at].start_pos or 0, tokens[at + 2].end_pos or 0)
            at += 3
            continue
        yield tokens[at]
        at += 1


def _is_number_between(tokens: list[Token], after: str) -> bool:
    """Whether `between 2 and 4` counts the GPUs that follow."""
    return [each.type for each in tokens] == ["BETWEEN", "NUM", "AND", "NUM"] and after in _COUNTED


def _next_kind(tokens: list[Token], number: int) -> str:
    """The kind of the next token that is neither noise nor `whole`."""
    kinds = (each.type for each in tokens[number + 1 :])
    return next((kind for kind in kinds if kind not in ("NOISE", "WHOLE")), "")


def _number(token: Token, before: str, after: str) -> Token:
    is_hour = token.isdecimal() and clock_read(token) is not None
    if is_hour and before in _LEADS:
        return _as("CLOCK", token)
    if after in _COUNTED:
        return _as("COUNT", token)
    if after == "UNKNOWN":
        # The counted word has no meaning, so its number has none.
        return _as("UNKNOWN", token)
    if is_hour and (before in ("DAY", "PART", "TONIGHT") or after in ("DASH", "TO", "UNTIL", "PART")):
        return _as("CLOCK", token)
    return token


def _as(kind: str, token: Token) -> Token:
    return _read_as(kind, token, token.value)


_JOINED = {
    ("AT", "CLOCK"): "CLOCK",
    ("AT", "HOURS"): "HOURS",
    ("FROM", "HOURS"): "HOURS",
    ("AT", "INSTANT"): "INSTANT",
    ("AT", "DAY"): "DAY",
    ("NEXT", "LENGTH"): "NEXTLENGTH",
}
_TRIPLES: dict[tuple[str, ...], str] = {
    ("LENGTH", "AND", "LENGTH"): "LENGTH",
    ("CLOCK", "DASH", "CLOCK"): "HOURS",
    ("CLOCK", "TO", "CLOCK"): "HOURS",
    ("CLOCK", "UNTIL", "CLOCK"): "HOURS",
}
_AFTER_ON = frozenset({"DAY", "SPAN", "INSTANT"})


def _merged(line: str, tokens: list[Token]) -> list[Token]:
    """Merges prepositions such as `at`, `on` and `for` with the token that follows."""
    found: list[Token] = []
    for number in reversed(range(len(tokens))):
        token = tokens[number]
        following = found[-1] if found else None
        kind = _joint(token, following, _next_kind(tokens, number)) if following else ""
        if kind == "NOISE":
            found.append(_as("NOISE", token))
        elif kind and following is not None:
            found[-1] = token_of(kind, line, token.start_pos or 0, following.end_pos or 0)
        else:
            found.append(token)
        _triple(line, found)
    found.reverse()
    return found


def _triple(line: str, found: list[Token]) -> None:
    """Merges `1 day and 6 hours` and `9 to 17`. `found` is in reverse order."""
    kinds = tuple(each.type for each in reversed(found[-3:]))
    kind = _TRIPLES.get(kinds, "")
    if kind:
        ends = found[-3].end_pos or 0
        found[-3:] = [token_of(kind, line, found[-1].start_pos or 0, ends)]
    if [each.type for each in reversed(found[-4:])] == ["BETWEEN", "CLOCK", "AND", "CLOCK"]:
        # `between 2 and 4`: both are in one half of the day.
        ends = found[-4].end_pos or 0
        found[-4:-1] = [token_of("HOURS", line, found[-2].start_pos or 0, ends)]


def _joint(token: Token, following: Token, after: str) -> str:
    """The kind of a token merged with the next one. NOISE if the first adds no meaning, empty if
    they do not merge."""
    if token.value == "for" and following.type in ("LENGTH", "NEXTLENGTH"):
        return following.type
    if token.value == "on" and following.type in _AFTER_ON:
        return following.type
    if token.value == "on" and after in _COUNTED | {"COUNT", "SHARE"}:
        return "NOISE"
    if token.type == following.type == "LENGTH" and not following.startswith("for"):
        return "LENGTH"
    if token.type == "WHOLE" and after in ("CLASS", "GPU"):
        return "NOISE"
    return _JOINED.get((token.type, following.type), "")


def place_names(text: str) -> list[str]:
    """The names in a PLACE token, with GPUs as `node/index`."""
    lead = _LEAD.match(text)
    rest = text[lead.end() :] if lead else text
    number = lead["number"] if lead else None
    found: list[str] = []
    while True:
        more = _MORE.search(rest)
        name = rest[: more.start()] if more else rest
        node, _, index = name.rpartition("/")
        name = f"{node}/{int(index)}" if node else name
        found.append(f"{name}/{int(number)}" if number else name)
        if more is None:
            return found
        number, rest = more["number"], rest[more.end() :]


def names_key(text: str, lead: str) -> str:
    """The key of the name in a token, without the surrounding words."""
    plain_name = re.sub(rf"^(?:(?:for|on|in|as|using|under)\s+)?(?:the\s+)?(?:{lead}[:\s]+)?", "", text)
    return key_of(re.sub(rf"\s+{lead}$", "", plain_name))


_ZONE_WORDS = re.compile(r"^(?:but\s+|only\s+)*(?:not\s+in|outside(?:\s+of)?|except(?:\s+in)?|in|at)\s+")


def zone_keys(text: str) -> list[str]:
    """The keys of the names in a ZONE or NOTZONE token."""
    names = re.split(r"\s*[,/|]\s*|\s+(?:or|and|nor)\s+", _ZONE_WORDS.sub("", text))
    plain_names = (re.sub(r"^(?:in\s+)?(?:the\s+)?(?:zones?[:\s]+)?", "", name) for name in names)
    return [key_of(re.sub(r"\s+zone$", "", name)) for name in plain_names]
