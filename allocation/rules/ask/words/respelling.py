"""Words that are read as others: German ones, and days with names.

`2 h100 heute 14 Uhr für 3 Std` is read as `2 h100 today 14:00 for 3 hours`. The grammar has English
words only; every character of the line that it reads knows where it stands in the line as typed.
"""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import count

_DAYS = {
    "montag": "monday",
    "dienstag": "tuesday",
    "mittwoch": "wednesday",
    "donnerstag": "thursday",
    "freitag": "friday",
    "samstag": "saturday",
    "sonnabend": "saturday",
    "sonntag": "sunday",
}
_MONTHS = {
    "januar": "january",
    "jänner": "january",
    "februar": "february",
    "märz": "march",
    "mai": "may",
    "juni": "june",
    "juli": "july",
    "oktober": "october",
    "dezember": "december",
}
_NUMBERS = dict(
    zip(
        ["zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"],
        map(str, range(2, 13)),
        strict=True,
    )
)
_DAY = "|".join(_DAYS)
_MONTH_WORDS = r"(?:jan|jän|feb|mar|mär|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])"
_SHORT = dict(zip(["mo", "di", "mi", "do", "fr", "sa", "so"], dict.fromkeys(_DAYS.values()), strict=True))
_SHORT_DAY = rf"(?:{'|'.join(_SHORT)})\.?"
_ENGLISH_DAY = r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*"

# A regular expression of whole words, and what they are read as. The first that matches counts.
_WORDS: tuple[tuple[str, str], ...] = (
    (r"sweep of", "array of"),
    (r"(?:at the )?earliest(?: at| from)?(?= \d)|frühestens(?: ab| um)?", "not before"),
    (r"but(?= (?:not before|no earlier|only after|after) )", "please"),
    (r"whichever(?: one)? is (?:free |available )?(?:first|earlier|earliest|sooner|soonest)", "please"),
    (r"(?:for|für|fuer) (?:an?|one|1|eine) (?:week|woche)(?= (?:from|ab|vom|von) )", "for 7 days"),
    (r"(?:die |eine )?ganze woche", "7 days"),
    (r"24/7|around the clock|rund um die uhr", "nonstop"),
    (r"gpu[- ]stunden?", "gpu-hours"),
    (r"kurz(?= ein)|fertig(?! bis)", "please"),
    (rf"/(?= (?:\d+ ?(?:h|d|min)\b|{_ENGLISH_DAY}|{_DAY}|today|tomorrow|heute|morgen))", ","),
    (r"(?:tonight|this evening|heute nacht|heute abend)(?: at| um)? (?:midnight|mitternacht)", "midnight"),
    (r"midnight tonight|(?:heute )?um mitternacht(?= heute)", "midnight"),
    (r"before(?= (?:the )?(?:end|last day) of )", "by"),
    (r"later(?= (?:today|tonight|this ))", "please"),
    (r"heute(?= in (?:an?|eine[mr]|zwei|drei|\d+) )", "please"),
    (
        r"(?:(?:an?|eine?) )?(?:¾|3/4|dreiviertel|three quarters)(?: of)?(?: an?)?[ -]?(?:hour|stunden?)",
        "45 minutes",
    ),
    (r"(?:for )?(?:the )?(?:rest|remainder) of (?:the day|today)", "until end of day"),
    (r"(?:for )?(?:the )?(?:rest|remainder) of (?:the|this) week", "until end of week"),
    (
        r"(?<!\dh )(?<!hours )(?<!hour )(?<!days )(?<!day )(?:or )?(?:otherwise|else|failing that)|"
        r"or,? if not(?: available| free)?",
        "or",
    ),
    (
        r"(?:auf|im|in) (?:einem|demselben|dem selben|dem gleichen|selben|gleichen) (?:rack|schrank)",
        "same rack",
    ),
    (r"im (?:selben|gleichen) (?:knoten|rechner|server)", "same node"),
    (r"max\.", "max"),
    (r"min\.(?= )", "min"),
    (r"ende (?:der|dieser) woche", "end of week"),
    (r"ende (?:der )?(?:nächsten|nächster|kommender|kommenden) woche", "end of next week"),
    (r"ende (?:des|dieses) (?:tages)", "end of day"),
    (r"ende (?:des|dieses) monats", "end of the month"),
    (r"ende (?:des|dieses) jahres|jahresende", "end of the year"),
    (r"monatsende", "end of the month"),
    (r"ende (?:des )?(?:nächsten|kommenden) monats", "end of next month"),
    (r"ende (?:des )?(?:nächsten|kommenden) jahres", "end of next year"),
    # `end 31 jan` names the end of something, `until end jan` that of a month.
    (rf"ende(?: des)?(?=\s+{_MONTH_WORDS}[a-zä]*)", "end of"),
    (
        rf"(?:(?<=until )|(?<=till )|(?<=by ))(?:the )?end(?=\s+{_MONTH_WORDS}[a-z]*\.?(?!\s+\d\d?\b))",
        "end of",
    ),
    (r"(?:ein )?viertel(?= (?:gpu|[a-z]+\d))", "quarter"),
    (r"(?:ein )?drittel(?= (?:gpu|[a-z]+\d))", "third"),
    (r"during (?:the day|(?:office|business|working) hours)", "between 9:00 and 17:00"),
    (r"at the end of(?= (?:the |this |next )?(?:week|month|year))", "by end of"),
    (r"(?:zero|null)(?= (?:gpus?|[a-z]+\d))", "0"),
    (r"ein paar", "a few"),
    (rf"vor(?= (?:dem )?(?:\d|{_DAY}))", "before"),
    (rf"nach(?= (?:dem )?(?:\d|{_DAY}))", "after"),
    (r"nicht vor", "not before"),
    (r"nicht|keine?[nrm]?", "not"),
    (r"außer", "except"),
    (r"ohne", "without"),
    (r"mindestens|wenigstens", "at least"),
    (r"höchstens", "at most"),
    (r"alle[ns]?(?= (?:gpus?|[a-z]+\d))", "all"),
    (r"(?:at\s+)?first thing(?: in the morning)?", "in the morning"),
    (r"(?:christmas|xmas) eve|(?:am )?heiligabend", "24 dec"),
    (r"(?:am )?(?:ersten?|1\.) weihnachts(?:feier)?tag", "25 dec"),
    (r"boxing day|(?:am )?(?:zweiten?|2\.) weihnachts(?:feier)?tag", "26 dec"),
    (r"(?:am )?nikolaus(?:tag)?", "6 dec"),
    (r"christmas(?: day)?|xmas|(?:an )?weihnachten", "25 dec"),
    (r"new year'?s eve|nye|(?:an )?s[iy]lvester", "31 dec"),
    (r"new year(?:'?s)?(?: day)?|(?:an |am )?neujahr(?:stag)?", "1 jan"),
    (r"übermorgen|uebermorgen", "day after tomorrow"),
    (r"heute (?:früh|frueh|morgen|vormittag)", "this morning"),
    (r"heute nachmittag", "this afternoon"),
    (r"heute abend", "this evening"),
    (r"heute nacht", "tonight"),
    (r"heute", "today"),
    (r"gestern", "yesterday"),
    (r"(?:am|in der)\s+(?:morgen|früh)|morgens", "in the morning"),
    (r"(?<=tag)\s(?:morgen|früh)|(?<=jeden)\s+morgen|(?<=morgen)\s+früh|früh|vormittags?", " morning"),
    (r"morgen", "tomorrow"),
    (r"(?:am )?nachmittags?", "in the afternoon"),
    (r"(?:am )?abends?", "in the evening"),
    (r"über nacht|ueber nacht|die ganze nacht", "overnight"),
    (r"(?:in der )?nachts?", "night"),
    (r"(?:am )?mittags?", "12:00"),
    (r"mitternacht", "midnight"),
    (r"ganztägig|ganztags|(?:den )?ganzen tag", "all day"),
    (r"(?:das |dieses )?ganzen?s? wochenende", "all weekend"),
    (r"wochenende", "weekend"),
    # In English, `am` is a half of the day.
    (
        rf"am(?=\s+(?:{_DAY}|wochenende|\d{{1,2}}\.|(?:nächste|naechste|kommende)[nr]|diese[mn]))",
        "on",
    ),
    (r"eineinhalb|anderthalb", "1.5"),
    (r"zweieinhalb", "2.5"),
    (r"dreieinhalb", "3.5"),
    (r"(?:ein(?:e|en|er)? )?viertelstunde", "15 minutes"),
    (r"(?:ein(?:e|en|er|es)? )?halbe[nrs]?(?: h)?", "half a"),
    (r"stunden|std\.?", "hours"),
    (r"stunde", "hour"),
    (r"minuten?", "minutes"),
    (r"werktags|wochentags", "every weekday"),
    (r"werktag", "weekday"),
    (r"tagen?", "days"),
    (r"tag", "day"),
    (r"wochen", "weeks"),
    (r"woche", "week"),
    (r"monaten?", "months"),
    (r"monat", "month"),
    (r"nächste[nrsm]?|naechste[nrsm]?", "next"),
    (r"kommende[nrsm]?", "coming"),
    (r"diese[nrsm]?", "this"),
    (r"jede[nrsm]? (?:zweite[nrsm]?|2\.)", "every second"),
    (r"jede[nrsm]? (?:dritte[nrsm]?|3\.)", "every third"),
    (r"jede[nrsm]?|alle(?=\s+(?:zwei|drei|vier|\d))", "every"),
    (r"täglich", "daily"),
    (r"wöchentlich", "weekly"),
    (r"monatlich", "monthly"),
    (r"spätestens(?: bis)?|fertig bis", "by"),
    (r"bis(?: (?:einschließlich|inklusive))?(?: zum)?", "until"),
    (r"ab(?: dem)?|von|vom", "from"),
    (r"um", "at"),
    (
        r"im(?=\s+(?:januar|februar|märz|april|mai|juni|juli|august|september|oktober|november|dezember))",
        "in",
    ),
    (r"zwischen", "between"),
    (r"und", "and"),
    (r"oder", "or"),
    (r"für|fuer", "for"),
    (r"mit", "with"),
    (r"so (?:bald|früh|schnell) wie möglich|schnellstmöglich|baldmöglichst|möglichst bald", "asap"),
    (r"sofort|jetzt", "now"),
    (r"irgendwann|jederzeit", "anytime"),
    (r"egal welche[rs]?|irgend(?:ein|eine)", "any"),
    (r"(?:am )?(?:günstigste[nrs]?|billigste[nrs]?)", "cheapest"),
    (r"auf (?:einem|demselben|dem selben|dem gleichen) (?:knoten|rechner|server)", "same node"),
    (r"(?:grafik)?karten?|stück", "gpus"),
    (r"scheiben?", "slice"),
    (r"(?:cpu-|prozessor)?kerne?n?", "cores"),
    (r"arbeitsspeicher|hauptspeicher", "ram"),
    (r"mal", "times"),
    (r"(?:ich|wir) (?:brauchen?|möchten?|benötigen?)|(?:ich|wir) hätten? gerne?", "please"),
    (r"noch(?= heute)|bitte|danke|hallo|buche|reserviere|lang|gib mir", "please"),
    (r"ein(?:e|en|er|es)?", "a"),
    (r"der|die|das|den|dem", "the"),
)
_OF_MONTHS = {f"{month}s": name for month, name in _MONTHS.items()}
_NAMED = {
    **_DAYS,
    **{f"{day}s": f"{name}s" for day, name in _DAYS.items()},
    **_MONTHS,
    **_OF_MONTHS,
    **_NUMBERS,
}


def _clock(found: re.Match[str]) -> str:
    """`14 uhr`, `14.30 uhr`, `14 uhr 30` as `14:30`. German hours are those of the whole day."""
    hour, minute = re.findall(r"\d+", found[0])[:2] if re.search(r"\d\D+\d", found[0]) else (found[0], "0")
    return f"{int(re.sub(r'[^0-9]', '', hour)):02}:{int(minute):02}"


def _clocks(found: re.Match[str]) -> str:
    """`1 bis 4 uhr` as `01:00 until 04:00`: both hours are those of the whole day."""
    first, word, last = re.split(r"\s*(-|bis|und)\s*", found[0].removesuffix("uhr").rstrip(), maxsplit=1)
    hour, minute = (*re.findall(r"\d+", last), "0")[:2]
    joint = {"-": "-", "bis": " until ", "und": " and "}[word]
    return f"{int(first):02}:00{joint}{int(hour):02}:{int(minute):02}"


def _decimal(found: re.Match[str]) -> str:
    """`0,25 h100` as `0.25 h100`."""
    return found[0].replace(",", ".")


def _hours(found: re.Match[str]) -> str:
    """`14h-16h30` as `14:00-16:30`."""
    ends = re.findall(r"(\d{1,2})h(\d\d)?", found[0])
    return "-".join(f"{hour}:{minute or '00'}" for hour, minute in ends)


def _days(found: re.Match[str]) -> str:
    """`montag-freitag`, `montag bis freitag`, `mo-fr`, and `mo` before hours."""
    days = re.findall(rf"{_DAY}|{'|'.join(_SHORT)}", found[0])
    return "-".join({**_SHORT, **_DAYS}[each] for each in days)


def _halves(found: re.Match[str]) -> str:
    """`drei und eine halbe stunde` as `3.5 hours`."""
    number = found[0].split()[0]
    return f"{_NUMBERS.get(number, number)}.5 hours"


def _day_of_month(found: re.Match[str]) -> str:
    """`den 3.` as `the 3th`, which is read as any day with a number."""
    return f"the {re.sub(r'[^0-9]', '', found[0])}th"


def _clock_in_words(found: re.Match[str]) -> str:
    """`six pm` as `6 pm`, and `nine to five` as `9 to 5`."""
    return re.sub(_HOUR_WORD, lambda hour: str(_HOURS_IN_WORDS.index(hour[0]) + 1), found[0])


def _part_of_day(found: re.Match[str]) -> str:
    """`freitagnachmittag` as `friday afternoon`."""
    day = next(each for each in _DAYS if found[0].startswith(each))
    return f"{_DAYS[day]} {_PARTS[found[0].removeprefix(day).removesuffix('s')]}"


def _days_together(found: re.Match[str]) -> str:
    """`mo mi fr` as `monday,wednesday,friday`."""
    return ",".join({**_SHORT, **_DAYS}.get(day, day) for day in re.findall(r"[a-z]+", found[0]))


def _half_of_clock(found: re.Match[str]) -> str:
    """`quarter past 3 pm` as `15:15`."""
    *words, hour, half = re.findall(r"[a-z]+|\d+", found[0])
    number = int(hour) if hour.isdecimal() else _HOURS_IN_WORDS.index(hour) + 1
    number = number % 12 + 12 * (half == "pm")
    minutes = number * 60 + (30 if words[0] == "half" else 15 if words[-1] == "past" else -15)
    return f"{minutes // 60 % 24:02}:{minutes % 60:02}"


def _length_added(found: re.Match[str]) -> str:
    """`19:30 +6h` as `19:30 for 6h`."""
    return found[0].replace("+", "for ")


def _part_of_hour(found: re.Match[str]) -> str:
    """`halb drei` as `half past 2`, `viertel nach drei`, `viertel vor drei`, `dreiviertel drei`."""
    *words, hour = found[0].split()
    number = int(_NUMBERS.get(hour, hour if hour.isdecimal() else "1"))
    if words == ["halb"]:
        return f"half past {(number - 2) % 12 + 1}"
    return f"quarter {'past' if words[-1] == 'nach' else 'to'} {number}"


_PARTS = {
    "früh": "morning",
    "morgen": "morning",
    "vormittag": "morning",
    "mittag": "12:00",
    "nachmittag": "afternoon",
    "abend": "evening",
    "nacht": "night",
}
_HOURS_TEXT = "one two three four five six seven eight nine ten eleven twelve"
_HOURS_IN_WORDS = _HOURS_TEXT.split()
_HOUR_WORD = rf"\b(?:{'|'.join(_HOURS_IN_WORDS)})\b"
_NAMED_DAY = r"(?:tomorrow|today|on |mon|tue|wed|thu|fri|sat|sun|for |$)"


def _of_slurm(found: re.Match[str]) -> str:
    """`--gres=gpu:h100:4` as `4 h100`, `--gpus=4` as `x4`, and `--gpus-per-node=4` as `x4 same node`."""
    name, _, number = found[0].rpartition(":")
    if name:
        return f"{number} {name.rpartition(':')[2]}"
    return f"x{re.findall(r'[0-9]+', number)[0]}{' same node' * ('per-node' in number)}"


def _of_setting(found: re.Match[str]) -> str:
    """`gpus=4` as `x4`, `hours=2` as `2 hours`, `h100=2` as `2 h100`."""
    name, _, number = found[0].partition("=")
    return f"x{number}" if name in ("gpus", "count") else f"{number} {name}"


def _of_duration(found: re.Match[str]) -> str:
    """`--time=02:30:00` and `PT2H30M` as `2h30m`. Slurm's `--time=02:30` is of minutes and seconds."""
    if found[0].startswith("pt"):
        return found[0].removeprefix("pt")
    hours, minutes, seconds = map(int, re.findall(r"\d+", found[0]))
    minutes += hours * 60 + (seconds > 0)
    return f"{minutes}m"


def _number_of_times(found: re.Match[str]) -> str:
    """`5mal`, `fünfmal`, `twice` as `5 times`. `twice a week` is a rule of its own."""
    word = found[0].removesuffix("mal")
    return f"{_NUMBERS.get(word) or {'twice': '2', 'thrice': '3'}.get(word, word)} times"


def _days_of_month(found: re.Match[str]) -> str:
    """`24.-26.12.` as `24.12.-26.12.`."""
    first, last, month = re.findall(r"\d+", found[0])
    return f"{first}.{month}.-{last}.{month}."


def _instant(found: re.Match[str]) -> str:
    """`2026-12-24 10:00z` as one instant."""
    return re.sub(r"\s+", "t", found[0])


_SPECIAL: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (
        r"(?:#sbatch )?--gres[= ]gpu:[a-z][a-z0-9-]*:\d+|gpu:[a-z][a-z0-9-]*:\d+|--gpus(?:-per-node)?[= ]\d+",
        _of_slurm,
    ),
    (r"(?<![;:,])(?:gpus|count|hours|minutes|days)=\d+|(?<![;:,])[a-z]+\d+=\d+(?=\s)", _of_setting),
    (r"--time[= ]\d{1,3}:\d{2}:\d{2}|pt(?=\d)(?:\d{1,4}h)?(?:\d{1,4}m)?", _of_duration),
    (r"\d{1,2}\.\d{2}\s?-\s?\d{1,2}\.\d{2}(?!\d|\.)", lambda found: found[0].replace(".", ":")),
    (r"\d{1,2}\.?\s?-\s?\d{1,2}\.\s?\d{1,2}\.", _days_of_month),
    (r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}(?::\d{2})?(?:z|\+\d{2}:\d{2})", _instant),
    (
        r"(?<!:)\d{1,2}\s?(?:-|bis)\s?\d{1,2}(?:[.:]\d{2})?\s*uhr|"
        r"(?<=zwischen )\d{1,2} und \d{1,2}(?:[.:]\d{2})?\s*uhr",
        _clocks,
    ),
    (r"\d{1,2}[.:]\d{2}\s*uhr|\d{1,2}\s*uhr\s*\d{2}(?![\d.:-])|\d{1,2}\s*uhr", _clock),
    (r"0,\d{1,3}(?= ?(?:gpu|[a-z]+\d))", _decimal),
    (r"\d{1,2}h(?:\d\d)?\s?-\s?\d{1,2}h(?:\d\d)?", _hours),
    (
        rf"(?:{_DAY})\s?(?:-|bis)\s?(?:{_DAY})|{_SHORT_DAY}\s?-\s?{_SHORT_DAY}|"
        rf"{_SHORT_DAY}(?=\s+\d{{1,2}}(?:[:.]\d\d)?\s?(?:-|uhr|bis))",
        _days,
    ),
    (
        rf"(?:(?:\d{{1,3}}|{'|'.join(_NUMBERS)})mal|twice|thrice)"
        r"(?! (?:an?|per|each|every|pro|die|im|am|jede))",
        _number_of_times,
    ),
    (rf"(?:\d{{1,2}}|{'|'.join(_NUMBERS)}) und eine halbe stunden?", _halves),
    (
        rf"{_HOUR_WORD}(?=\s?(?:[ap]\.?m\b|o'?\s?clock))|"
        rf"{_HOUR_WORD} (?:to|till|until) {_HOUR_WORD}(?=\s*{_NAMED_DAY})",
        _clock_in_words,
    ),
    (
        rf"(?:den|der|dem|am) \d{{1,2}}\.(?!\d|\s?\d{{1,2}}\.\d|\s?{_MONTH_WORDS}|\s?weihnacht)",
        _day_of_month,
    ),
    (rf"am {_SHORT_DAY}(?=\s|$)", lambda found: f"on {_days(found)}"),
    (rf"(?:{_DAY})(?:{'|'.join(_PARTS)})s?", _part_of_day),
    (
        rf"(?:{_DAY}|{_SHORT_DAY}|{_ENGLISH_DAY})(?: (?:{_DAY}|{_SHORT_DAY}|{_ENGLISH_DAY})){{2,6}}",
        _days_together,
    ),
    (
        rf"(?:half past|quarter (?:past|to)) (?:\d{{1,2}}|{'|'.join(_HOURS_TEXT.split())}) ?[ap]m",
        _half_of_clock,
    ),
    (r"\+\d+ ?(?:h|d|min|hours?)", _length_added),
    (rf"(?:halb|viertel (?:nach|vor)|dreiviertel) (?:eins|\d{{1,2}}|{'|'.join(_NUMBERS)})", _part_of_hour),
    (rf"{_ENGLISH_DAY}\s?\+\s?{_ENGLISH_DAY}", lambda found: found[0].replace("+", ",")),
    ("|".join(sorted(_NAMED, key=len, reverse=True)), lambda found: _NAMED[found[0]]),
)
_RULES: tuple[str | Callable[[re.Match[str]], str], ...] = (
    *(read_as for _, read_as in _SPECIAL),
    *(words for _, words in _WORDS),
)


def _named(number: int, pattern: str) -> str:
    # A dash before hours is one of `9-17 uhr`.
    before = r"(?<![\w./])" if _RULES[number] is _clock else r"(?<![\w./-])"
    return f"{before}(?P<r{number}>{pattern})"


_PATTERNS = (pattern for pattern, _ in (*_SPECIAL, *_WORDS))
_PATTERN = re.compile(rf"(?:{'|'.join(map(_named, count(), _PATTERNS))})(?![\w/]|-\w)")


@dataclass(frozen=True, slots=True)
class Respelled:
    """A line in the words of the grammar, and for each of its characters where it begins and ends in
    the line as typed."""

    line: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Returns where the characters [start, end) stand in the typed line."""
        return self.starts[start], self.ends[end - 1]


def respelled(line: str, own: Collection[str]) -> Respelled:
    """The line in the words of the grammar. `own`: words in the site's names, which stay."""
    text, starts, ends = "", list[int](), list[int]()
    for piece, start, end in _pieces(line, own):
        # Other words stand for all of those that they are read for.
        is_same = len(piece) == end - start
        text += piece
        starts += range(start, end) if is_same else [start] * len(piece)
        ends += range(start + 1, end + 1) if is_same else [end] * len(piece)
    return Respelled(text, tuple(starts), tuple(ends))


def _pieces(line: str, own: Collection[str]) -> Iterator[tuple[str, int, int]]:
    at = 0
    for found in _PATTERN.finditer(line):
        if any(word in own for word in re.findall(r"\w+", found[0])):
            continue
        yield line[at : found.start()], at, found.start()
        rule = _RULES[int((found.lastgroup or "r0")[1:])]
        yield (rule if isinstance(rule, str) else rule(found)), *found.span()
        at = found.end()
    yield line[at:], at, len(line)
