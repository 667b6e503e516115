"""The repeat fields of the booking panel, and the preview of a series."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from allocation.errors import AskError
from allocation.rules.ask import Repair
from allocation.rules.ask.line.text import document_text
from allocation.rules.ask.when.recurrence_words import (
    WORKDAYS,
    month_line,
    month_rule,
    recurrence_line,
    recurrence_words,
)
from allocation.rules.recurrence import Recurrence, recurrence_check
from allocation.services.bookings.requests import BookingRequest
from allocation.services.bookings.series import Repeat, Window, rule_of, series_dates
from allocation.web.bookings.request_panel.options import Repeats
from allocation.web.bookings.request_panel.request_form import ProblemShown, RequestFields
from allocation.web.parts.times import date_words
from billing.rules import money_text
from tenants.platform.coded import coded
from tenants.platform.errors import Refused
from tenants.web.parts import counted

FORTNIGHT = timedelta(days=14)
REPEATS: dict[str, Recurrence] = {
    "daily": Recurrence("DAILY"),
    "weekdays": Recurrence("WEEKLY", days=WORKDAYS),
    "weekly": Recurrence("WEEKLY"),
    "monthly": Recurrence("MONTHLY"),
}
CHOICES = (
    ("", "Once"),
    ("daily", "Every day"),
    ("weekdays", "Every weekday"),
    ("weekly", "Every week"),
    ("monthly", "Every month"),
    ("days", "Every month on …"),
)


@dataclass(frozen=True, slots=True)
class SeriesPreview:
    """The dates of a series before it is booked."""

    words: str
    count: int
    first: str
    last: str
    skipped: str
    windows: tuple[Window, ...]
    keeps_end: bool


def repeat_rule(often: str, days: str, param: str) -> Recurrence | None:
    """Returns the recurrence of a choice without its end; None for a single booking.

    Raises AskError for invalid days of the month.
    """
    return month_rule(days, param) if often == "days" else REPEATS.get(often)


def repeat_of_fields(fields: RequestFields, said: Recurrence | None, today: date) -> Recurrence | None:
    """Returns the recurrence of the fields, or the one from the text (`said`); None for a single
    booking. Without a last day it repeats for two weeks. Raises AskError for an invalid last day or
    invalid days of the month."""
    rule = repeat_rule(fields.often, fields.days, "days")
    if rule is None:
        return said if fields.often == "text" else None
    try:
        until = date.fromisoformat(fields.until) if fields.until else today + FORTNIGHT
    except ValueError:
        raise AskError("no_end", coded("repetition_end"), "until") from None
    return recurrence_check(replace(rule, until=until), "until")


def repeat_shown(rule: Recurrence | None) -> dict[str, Any]:
    """Returns the field values for a recurrence from the text."""
    plain = replace(rule, until=None, times=None) if rule else None
    often = next((name for name, each in REPEATS.items() if each == plain), "")
    days = month_line(rule) if rule and rule.interval == 1 and not often else ""
    often = often or ("days" if days else "text" if rule else "")
    choices = (*CHOICES, ("text", "As typed above")) if often == "text" else CHOICES
    return {
        "choices": choices,
        "often": often,
        "days": days.removeprefix("the "),
        "until": rule.until.isoformat() if rule and rule.until else "",
    }


def repeat_typed(fields: RequestFields) -> dict[str, Any]:
    """Returns the fields as typed, for invalid input."""
    typed = {"often": fields.often, "until": fields.until, "days": fields.days}
    return {"choices": CHOICES, **typed}


def series_text(text: str, rule: Recurrence | None) -> str:
    """Returns the text with its recurrence appended."""
    return f"{text} {recurrence_line(rule)}" if rule else text


def series_preview(request: BookingRequest, repeat: Repeat) -> tuple[BookingRequest, SeriesPreview]:
    """Returns the request for the first date and the preview of all dates. Raises Refused."""
    dates, windows = series_dates(request, repeat)
    zone, words = ZoneInfo(request.zone), recurrence_words(dates.rule)
    seen = SeriesPreview(
        words=words[0].upper() + words[1:],
        count=len(dates.starts),
        first=date_words(dates.starts[0], zone),
        last=date_words(dates.starts[-1], zone),
        skipped=", ".join(dates.skipped),
        windows=windows,
        keeps_end=repeat.keeps_end,
    )
    ask = replace(request.ask, starts=windows[0].starts, duration=windows[0].seconds)
    return replace(request, ask=ask), seen


def dates_context(
    request: BookingRequest,
    repeat: Repeat,
    refused: Refused | None,
    context: dict[str, Any],
    repeats: Repeats,
) -> dict[str, Any]:
    """Returns the options for all dates, and which dates the rules refuse."""
    options = series_options(context["options"], request, context, repeats)
    return {"options": options, "dates_refused": refused and _refused_shown(refused, request, repeat)}


def _refused_shown(refused: Refused, request: BookingRequest, repeat: Repeat) -> ProblemShown:
    """Returns the sentence of a refusal, with the line of the dates before the first that is refused."""
    line = document_text(request.ask, ZoneInfo(request.zone), says_end=repeat.keeps_end)
    lines = (
        Repair(f"{each['times']} dates", series_text(line, rule_of(each, repeat.rule)))
        for each in refused.alternatives
        if "times" in each
    )
    return ProblemShown(refused.sentence, tuple(lines))


def series_options(
    options: Iterable[dict[str, Any]],
    request: BookingRequest,
    context: dict[str, Any],
    repeats: Repeats,
) -> list[dict[str, Any]]:
    """Returns the options that keep the time of day, priced for all dates."""
    series, rule = context["series"], context["rule"]
    found = []
    for each in options:
        option = each["option"]
        if option.starts != request.ask.starts:
            continue
        total = money_text(repeats.cost(option), option.currency)
        line = document_text(option.ask, ZoneInfo(request.zone), says_end=series.keeps_end)
        found.append(
            each
            | {
                "price": total,
                "button": f"Book {counted(series.count, 'date')} for {total}",
                "value": f"{option.tier} {series_text(line, rule)}",
            }
        )
    return found
