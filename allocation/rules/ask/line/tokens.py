"""The tokens of a request. Spelling is tolerant, meaning is not.

A token covers one or more words ("half a day", "A100 80 GB"). All other words are UNKNOWN tokens,
which no rule of the grammar accepts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from lark import Token

from allocation.rules.ask.words.names import OTHER_GPUS, Names, key_of
from allocation.rules.ask.words.numbers import LENGTH, ONE_LENGTH, WORD_NUMBER
from allocation.rules.ask.words.times import (
    CLOCK,
    DATE,
    INSTANT,
    MONTH_DATE,
    ORDINAL_DAY,
    WEEKDAY,
    WORKDAY,
    clock_read,
)

_NUM = rf"(?:\d{{1,6}}|{WORD_NUMBER})"
_ARTICLE = r"(?:\s+(?:an?|the))?"
_WEEKDAY_LIST = rf"{WEEKDAY}(?:(?:[\s,&]+|\s+and\s+){WEEKDAY})*"
_NTH = r"(?:\d{1,2}(?:st|nd|rd|th)|first|second|third|fourth|fifth|last)"
_MONTH_DAY = rf"(?:the\s+)?{_NTH}(?:\s+(?:{WORKDAY}|{WEEKDAY}|day))?"
_HOW_OFTEN = rf"(?:other|{_NUM}|second|third)"
_THING = r"(?:gpu|node|machine|host|server|box)"
_PLACE_LEAD = r"(?:only\s+)?on|pin(?:ned)?(?:\s+to)?|(?:at|in)(?=\s+node\s)|(?=node\s)"
_COURTESY = (
    r"(?:i|we)(?:'d|\s+would)?\s+(?:like|need|want|love)(?:\s+to)?"
    r"(?:\s+(?:book|have|get|reserve|use|run\s+on))?",
    r"(?:can|could|may)\s+(?:i|we|you)(?:\s+please)?"
    r"(?:\s+(?:have|get|book|reserve|use|give(?:\s+(?:me|us))?))?",
    r"(?:book|reserve|get|give|grab|schedule)(?:\s+(?:me|us))?|gimme|nvidia(?=\s+(?:gpu|card))",
    r"(?:need|want|please|pls|plz|thanks|thank\s+you|thx|hi|hello|hey)",
    r"(?:a|an|the|for|of|with|and|using|plus|that\s+is|just|either|(?:duration|length)(?:\s+of)?)",
)

# The first pattern that matches one or more whole words is the token.
_TERMINALS: tuple[tuple[str, str], ...] = (
    ("RRULE", r"rrule:\S+"),
    ("WORKLOAD", r"kind:[^\s,;]+"),
    ("INSTANT", INSTANT),
    ("DAY", rf"{DATE}|{MONTH_DATE}"),
    ("REPEAT", rf"(?:every|each)\s+(?:{WORKDAY}|(?:{_HOW_OFTEN}\s+)?{_WEEKDAY_LIST})"),
    (
        "REPEAT",
        rf"(?:on\s+)?(?:the\s+)?{_NTH}\s+(?:{WORKDAY}|{WEEKDAY})\s+(?:of\s+)?"
        r"(?:every|each|the)\s+month",
    ),
    (
        "REPEAT",
        rf"(?:every|each)\s+(?:{_HOW_OFTEN}\s+)?months?\s+on\s+"
        rf"{_MONTH_DAY}(?:(?:[\s,]+|\s+and\s+){_MONTH_DAY})*",
    ),
    (
        "REPEAT",
        rf"(?:every|each)\s+(?:{_HOW_OFTEN}\s+)?weeks?"
        rf"(?:\s+(?:on\s+)?(?:{WORKDAY}|{_WEEKDAY_LIST}))?",
    ),
    ("REPEAT", rf"(?:every|each)\s+(?:{_HOW_OFTEN}\s+)?(?:days?|months?)|daily|weekly|monthly"),
    ("REPEAT", rf"(?:on\s+)?(?:{WORKDAY}s|{WEEKDAY}s(?:(?:[\s,&]+|\s+and\s+){WEEKDAY}s)*)"),
    (
        "QUANT",
        r"up\s+to|at\s+(?:most|least)(?=\s+\w+\s+(?!gi?b))(?!\s+\d+\s*gi?b)|max(?:imum)?(?:\s+of)?|"
        r"(?:no\s+)?(?:more|less|fewer)\s+than|min(?:imum)?(?:\s+of)?(?=\s+\w+\s+(?!gi?b))(?!\s+\d+\s*gi?b)",
    ),
    ("NODES", rf"(?:(?:{_NUM}|an?|the)\s+)?(?:(?:whole|full|entire|complete)\s+)?nodes?(?:\s+of)?"),
    ("CLOCKWORDS", rf"(?:half\s+past|quarter\s+(?:past|to))\s+{_NUM}"),
    ("TIMES", rf"{_NUM}\s+(?:times|dates|occurrences)"),
    (
        "DAY",
        rf"in\s+(?:{_NUM}|an?)\s+(?:days?|weeks?)|(?:{_NUM}|an?)\s+(?:days?|weeks?)\s+from\s+now",
    ),
    ("INTIME", rf"in\s+(?:{LENGTH})|{ONE_LENGTH}\s+from\s+now"),
    ("WITHIN", rf"(?:within|(?:in|during|over)\s+the\s+next)\s+(?:the\s+next\s+)?(?:{LENGTH})"),
    (
        "ASAP",
        r"(?:(?:from|starting|start|beginning)\s+)?(?:(?:right\s+)?now(?:\s+on)?|asap|a\.s\.a\.p|as\s+soon\s+as\s+possible|immediately|"
        r"(?:right|straight)\s+away|at\s+once|first\s+available|earliest(?:\s+possible)?|"
        r"next\s+available|soonest|as\s+early\s+as\s+possible|earliest\s+start)",
    ),
    (
        "ANYTIME",
        r"(?:at\s+)?any\s?time|whenever|sometime|at\s+some\s+point|no\s+rush|"
        r"flexible(?:\s+(?:start|time))?",
    ),
    ("WHOLEDAY", rf"all(?:\s+of)?(?=\s+(?:today|tomorrow|{WEEKDAY})(?:\s|$))"),
    ("WHOLEDAY", r"(?:for\s+)?(?:all|(?:the\s+)?(?:whole|entire|full))\s+day(?:\s+long)?"),
    (
        "WHOLESPAN",
        r"(?:for\s+|over\s+)?(?:all|(?:the\s+)?(?:whole|entire|full))\s+(?:of\s+)?"
        r"(?:the\s+)?(?:(?:next|this|coming)\s+)?(?:week(?:end)?|month)(?:\s+long)?|"
        r"(?:over|for|through)\s+the\s+(?:next\s+|coming\s+)?weekend|"
        r"the\s+whole\s+(?:next\s+|coming\s+)?week(?:end)?",
    ),
    (
        "SPAN",
        r"(?:(?:on|at|in|during)\s+)?(?:the\s+)?"
        r"(?:(?:this|next|coming|this\s+coming|early\s+next|late\s+next)\s+)?weekend|"
        r"(?:(?:during|in|some\s?time)\s+)?(?:the\s+)?(?:week\s+after\s+next|(?:this|next|the\s+coming|the\s+next)"
        r"\s+(?:week|month))",
    ),
    (
        "DAY",
        rf"day\s+after\s+tomorrow|the\s+day\s+after\s+tomorrow|today|tomorrow|tmrw|tmr|tmw|"
        rf"tomo|2morrow|(?:(?:next|this|coming|this\s+coming|the\s+coming)\s+)?{WEEKDAY}"
        rf"(?:\s+(?:next|this)\s+week)?|{ORDINAL_DAY}",
    ),
    ("YESTERDAY", rf"yesterday|last\s+(?:night|week|{WEEKDAY})"),
    ("TONIGHT", r"tonight|tonite|this\s+(?:morning|afternoon|evening)"),
    (
        "OVERNIGHT",
        r"overnight|(?:all|over|through|for)\s+(?:the\s+)?night(?:\s+long)?|"
        r"(?:the\s+)?(?:whole|entire)\s+night",
    ),
    (
        "DAYEND",
        r"(?:the\s+)?end\s+of\s+(?:the\s+|this\s+)?(?:day|week)|eod|eow|cob|"
        r"close\s+of\s+business",
    ),
    ("PART", r"(?:in\s+the\s+|during\s+the\s+|at\s+)?(?:morning|afternoon|evening|night)"),
    (
        "TOGETHER",
        r"(?:(?:prefer(?:ably)?|ideally)\s+)?(?:all\s+)?(?:(?:on|in|within)\s+)?(?:the\s+)?"
        r"(?:same\s+(?:gpu|nvlink(?:\s+domain)?|domain|node|machine|host|server|box|rack)|"
        r"(?:one|a\s+single|single)\s+(?:node|machine|host|server|box|rack|nvlink\s+domain))",
    ),
    ("TOGETHER", r"(?:(?:prefer(?:ably)?|ideally)\s+)?(?:nvlink(?:ed)?(?:\s+domain)?)"),
    ("LENGTH", LENGTH),
    (
        "SHARE",
        rf"(?:a\s+)?half(?!\s+a\s+dozen)(?:\s+of)?{_ARTICLE}|three\s+quarters(?:\s+of)?{_ARTICLE}|"
        rf"(?:an?\s+|one\s+)?(?:quarter|third|eighth)(?:\s+of)?{_ARTICLE}|"
        rf"(?:[½¼¾⅓⅔⅛]|[1235]/[2348])(?:\s+of)?{_ARTICLE}|"
        rf"\d{{1,2}}\s?%(?:\s+of)?{_ARTICLE}|0?\.\d{{1,3}}(?:\s+of)?{_ARTICLE}",
    ),
    (
        "VRAM",
        r"(?:with\s+)?(?:>=|≥|=>|at\s+least|min(?:imum)?)?\s*\d{1,4}\s*gi?b?"
        r"\s+(?:of\s+)?(?:vram|gpu\s+(?:memory|ram|mem)|hbm)",
    ),
    (
        "RAM",
        r"(?:(?:>=|≥|=>|at\s+least|min(?:imum)?)\s*)?\d{1,6}\s*(?:gi?b?)?\s*(?:of\s+)?"
        r"(?:host\s+|system\s+|main\s+)?(?:ram|memory|mem)",
    ),
    ("CORES", rf"{_NUM}\s*-?(?:host\s+|cpu\s+)?(?:cores?|cpus?|vcpus?)"),
    (
        "GB",
        r"(?:(?:>=|≥|=>|at\s+least|min(?:imum)?)\s*\d{1,4}\s*gi?b?|\d{1,4}\s*gi?b?\s*\+|"
        r"\d{1,4}\s*gi?b?\s+or\s+more|\d{1,4}\s*gi?b?)",
    ),
    ("CLOCK", CLOCK),
    ("XNUM", rf"x\s*{_NUM}"),
    ("NUMX", rf"{_NUM}[x*](?=\s|[a-z0-9])|{_NUM}\s+[x*](?=\s|[a-z])|\d{{1,6}}x"),
    ("DEC", r"\d{1,5}[.,]\d{1,3}"),
    ("NUM", _NUM),
    ("APART", r"together|close\s+together|connected"),
    (
        "CHEAPEST",
        r"(?:the\s+)?cheapest(?:\s+(?:possible|option|way|one))?|as\s+cheap(?:ly)?\s+as\s+"
        r"possible|(?:at\s+the\s+)?lowest\s+(?:price|cost)",
    ),
    (
        "ANY",
        r"any(?:thing|one)?(?:\s+(?:free|available))?(?:\s+(?:kind|type)(?:\s+of)?)?"
        r"(?:\s+(?:class|model))?|whichever|whatever(?:\s+is)?(?:\s+(?:free|available))?",
    ),
    ("MIG", r"mig(?:\s+(?:slices?|instances?|partitions?|profiles?))?"),
    ("SLICE", r"(?:gpu\s+)?(?:slices?|instances?|partitions?)"),
    (
        "GPU",
        r"(?:graphics\s+cards?|gpus?|cards?|devices?|accelerators?|graphics|pieces?|pcs?|units?)",
    ),
    ("WHOLE", r"(?:whole|full|entire|complete)"),
    ("EACH", r"each|per\s+(?:gpu|card|device|slice)"),
    ("FROM", r"not\s+before|no\s+earlier\s+than|not\s+earlier\s+than|as\s+of|from|after"),
    ("START", r"(?:start|begin)(?:s|ing|ning)?(?:\s+(?:at|on|from))?"),
    (
        "BY",
        r"(?:(?:must\s+|needs?\s+|has\s+|have\s+)?(?:to\s+)?(?:be\s+)?(?:done|finish(?:ed|ing)?|ready|completed?)\s+)?(?:by|before)|"
        r"no[t]?\s+later\s+than|latest(?:\s+by)?|deadline:?|due(?:\s+(?:by|on))?",
    ),
    (
        "UNTIL",
        r"(?:and\s+)?(?:until|till|'?til|thru|through|(?:end|finish)(?:s|ing|es)?"
        r"(?:\s+(?:at|on))?)",
    ),
    ("BETWEEN", r"between|in\s+between"),
    ("TO", r"to"),
    ("DASH", r"--?|->"),
    ("AT", r"at(?=\s|$)|@"),
    ("OR", r"or|/|\|"),
    ("AND", r"and|&"),
    ("NEXT", r"(?:the\s+)?(?:next|coming)"),
    ("THIS", r"this"),
    ("NOISE", "|".join(_COURTESY)),
)
_END = r"(?=[\s,;!?()&|/]|[.:](?:\s|$)|$)"
# Tokens that can end at a dash, as in `9-17` and `mon-wed`.
_DASHED = r"(?=[\s,;!?()&|/-]|[.:](?:\s|$)|$)"
_ENDS = dict.fromkeys(("NUM", "CLOCK", "DAY", "INSTANT", "DEC", "LENGTH"), _DASHED)
_ENDS |= {"NUMX": "", "DASH": "", "OR": "", "AT": "", "CLASS": rf"(?:{_END}|(?=x\s?\d))"}
_SKIP = re.compile(r"(?:[\s,;!?()]|[.:](?=\s|$))+")
_WORD = re.compile(r"[^\s,;!?()]+?(?=[\s,;!?()]|[.:](?:\s|$)|$)")
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*(?:/\d{1,3})?(?=[\s,;!?()|]|$)")
_SPLIT = {"–": "-", "—": "-", "−": "-", "×": "x", "’": "'", "\u00a0": " ", "\u202f": " "}
_COUNTED = frozenset({"CLASS", "OTHER", "PROFILE", "MIG", "SLICE", "GPU", "ANY", "GB", "VRAM"})
_HOUR_H = re.compile(r"([01]?\d|2[0-3])h(\d\d)?")
_LEADS = frozenset({"AT", "FROM", "START", "BY", "UNTIL", "BETWEEN", "TO", "DASH"})


def plain(text: str) -> str:
    """The text in lower case with plain dashes and spaces. Every character keeps its position."""
    lowered = (char.lower() if len(char.lower()) == 1 else char for char in text)
    return "".join(_SPLIT.get(char, char) for char in lowered)


def tokens_of(text: str, names: Names) -> list[Token]:
    """The tokens of a line in order. They cover everything except spaces and punctuation."""
    line = plain(text)
    return _with_roles(line, list(_scan(line, names)))


def token_of(kind: str, line: str, start: int, end: int) -> Token:
    """A token with its position."""
    return Token(kind, line[start:end], start_pos=start, end_pos=end)


@lru_cache(maxsize=256)
def _named(classes: str, profiles: str, tiers: str, projects: str) -> re.Pattern[str]:
    """The pattern for the names of one catalogue, which take precedence over other words."""
    tier = rf"(?:(?:on|in|as|using)\s+)?(?:the\s+)?(?:tier[:\s]+)?(?:{tiers})(?:\s+tier)?"
    project = (
        rf"(?:(?:for|in|on|under)\s+)?(?:the\s+)?"
        rf"(?:project[:\s]+)?(?:{projects})(?:\s+project)?"
    )
    unknown = r"(?:(?:for|in|on|under)\s+)?(?:the\s+)?project[:\s]+[\w.-]+"
    return _pattern(
        (
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


_WORDS = _pattern((*_TERMINALS[:1], ("OTHER", OTHER_GPUS), *_TERMINALS[1:]))


@dataclass(frozen=True, slots=True)
class _Scanner:
    """Matches names first, then words."""

    named: re.Pattern[str]

    def match(self, line: str, at: int) -> re.Match[str] | None:
        """The token that begins at this position, if any."""
        return self.named.match(line, at) or _WORDS.match(line, at)


def _scan(line: str, names: Names) -> Iterator[Token]:
    scanner = _Scanner(_named(names.classes, names.profiles, names.tiers, names.projects))
    at = 0
    while at < len(line):
        skipped = _SKIP.match(line, at)
        if skipped:
            at = skipped.end()
            continue
        token = _place(line, at, names, scanner) or _match(line, at, scanner)
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
    rf"(?P<lead>{_PLACE_LEAD})\s*(?<![a-z])(?:(?P<kind>{_THING})\s+)*(?:(?P<number>\d{{1,3}})\s+(?:of|on|in)\s+)?"
)
_MORE = re.compile(r"\s+(?:or|and)\s+(?:gpu\s+(?P<number>\d{1,3})\s+(?:of|on|in)\s+)?|\s*\|\s*")


def _place(line: str, at: int, names: Names, scanner: _Scanner) -> Token | None:
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
    return _merged(line, tokens)


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
        is_number = is_open and (
            kinds[2] == "LENGTH" or (of_gpus and (has_length or kinds[1] == "OR"))
        )
        if is_either or is_number:
            yield token_of("RANGE", line, tokens[at].start_pos or 0, tokens[at + 2].end_pos or 0)
            at += 3
            continue
        yield tokens[at]
        at += 1


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
    if is_hour and (
        before in ("DAY", "PART", "TONIGHT") or after in ("DASH", "TO", "UNTIL", "PART")
    ):
        return _as("CLOCK", token)
    return token


def _as(kind: str, token: Token) -> Token:
    return Token(kind, token.value, start_pos=token.start_pos, end_pos=token.end_pos)


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
    plain_name = re.sub(
        rf"^(?:(?:for|on|in|as|using|under)\s+)?(?:the\s+)?(?:{lead}[:\s]+)?", "", text
    )
    return key_of(re.sub(rf"\s+{lead}$", "", plain_name))
