"""Recurrence rules in words: for people, and as text that the one-line grammar parses."""

from collections.abc import Sequence

from allocation.errors import AskError
from allocation.rules.ask.words.times import WEEKDAY_WORDS
from allocation.rules.recurrence import Recurrence, days_in_order, nth_in_order
from tenants.platform.coded import coded

UNITS: dict[str, str] = {"DAILY": "day", "WEEKLY": "week", "MONTHLY": "month"}
WORKDAYS = (0, 1, 2, 3, 4)
WORKDAY_WORDS = ("weekday", "weekdays", "workday", "workdays")
_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
_BY_NAME = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "last": -1}


def recurrence_words(rule: Recurrence) -> str:
    """`every Mon, Wed until 31 Jan 2027`, `every 2 weeks, 10 times`."""
    last = rule.until or rule.until_at
    end = f" until {last.day} {last:%b %Y}" if last else f", {rule.times} times"
    return f"{every_words(rule)}{end}"


def recurrence_line(rule: Recurrence) -> str:
    """The rule as text that the grammar parses: in words, or as an RRULE if there are no words."""
    if rule.week_starts or rule.until_at or (_of_month(rule) and not month_line(rule)):
        return f"rrule:{rule.text}"
    end = f" until {rule.until.isoformat()}" if rule.until else f" {rule.times} times"
    return f"{every_words(rule).replace(',', '').lower()}{end}"


def every_words(rule: Recurrence) -> str:
    """The rule without its end: `every Mon, Wed`."""
    is_monthly, unit = rule.freq == "MONTHLY", UNITS[rule.freq]
    names = _of_month(rule) if is_monthly else ", ".join(_NAMES[day] for day in rule.days)
    if rule.days and rule.interval == 1 and not is_monthly:
        return f"every {'weekday' if rule.days == WORKDAYS else names}"
    often = f"every {unit}" if rule.interval == 1 else f"every {rule.interval} {unit}s"
    return f"{often} on {names}" if names else often


def month_line(rule: Recurrence) -> str:
    """`2nd Tue, last Fri`, or empty if these words would parse to another rule."""
    words = _of_month(rule).removeprefix("the ")
    found, _ = month_days_in(words.replace(",", "").lower().split())
    same = found and (found.days, found.nth, found.month_days, found.positions)
    wanted = (rule.days, rule.nth, rule.month_days, rule.positions)
    return words if same == wanted else ""


def month_rule(text: str, param: str) -> Recurrence:
    """Reads `2nd tue, last fri` or `1st and 15th` as a rule without an end. Raises AskError."""
    words = text.replace(",", " ").lower().split()
    found, used = month_days_in(words)
    if found is None or used < len(words):
        why = coded("ask_month_days")
        raise AskError("not_a_rule", why, param)
    return found


def month_days_in(words: Sequence[str]) -> tuple[Recurrence | None, int]:
    """(The rule for the days of a month at the start of the words, number of words used).

    The days are of one kind: numbered weekdays, days by number, or a working day.
    """
    nth: set[tuple[int, int]] = set()
    days: set[int] = set()
    used = at = 0
    while at < len(words):
        if words[at] in ("the", "and"):
            at += 1
            continue
        which, following = _which(words[at]), words[at + 1] if at + 1 < len(words) else ""
        weekday = WEEKDAY_WORDS.get(following.rstrip("."))
        if following in WORKDAY_WORDS and which and not (nth or days):
            return Recurrence("MONTHLY", days=WORKDAYS, positions=(which,)), at + 2
        if weekday is not None and -1 <= which <= 5 and which and not days:
            nth.add((which, weekday))
            used = at = at + 2
        elif (which > 0 or (which < 0 and following == "day")) and not nth:
            days.add(which)
            used = at = at + 1 + (which < 0)
        else:
            break
    rule = Recurrence("MONTHLY", nth=nth_in_order(nth), month_days=days_in_order(days))
    return (rule, used) if used else (None, 0)


def _which(word: str) -> int:
    """3 for `3rd` and `third`, -1 for `last`, 0 for anything else."""
    number = word[:-2]
    is_number = number.isascii() and number.isdecimal() and word == _numbered(int(number))
    return int(number) if is_number and 1 <= int(number) <= 31 else _BY_NAME.get(word, 0)


def _numbered(which: int) -> str:
    """`1st`, `22nd`, `last`, `2nd last`."""
    if which < 0:
        return "last" if which == -1 else f"{_numbered(-which)} last"
    return f"{which}{'th' if 10 < which % 100 < 14 else _ENDINGS.get(which % 10, 'th')}"


def _of_month(rule: Recurrence) -> str:
    """`the 2nd Tue, last Fri`, `the 1st, 15th, last day`, `the last weekday`. Empty for the same
    day of every month."""
    if rule.freq != "MONTHLY":
        return ""
    days = [_numbered(day) + (" day" if day < 0 else "") for day in rule.month_days]
    weekdays = [f"every {_NAMES[day]}" for day in rule.days]
    weekdays += [f"{_numbered(which)} {_NAMES[day]}" for which, day in rule.nth]
    if rule.days == WORKDAYS and not rule.nth:
        weekdays = ["weekday" if rule.positions else "every weekday"]
    words = ", ".join(weekdays or days)
    words += f" if it is the {' or '.join(days)}" if weekdays and days else ""
    if rule.positions:
        which = ", ".join(map(_numbered, rule.positions))
        return f"the {which} {'' if words == 'weekday' else 'of '}{words}"
    return f"the {words}" if words and not rule.days else words
