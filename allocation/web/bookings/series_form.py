"""The fields of what repeats, and a series as the booking panel shows it before it is booked."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from allocation.errors import AskError
from allocation.rules.ask.when.recurrence_words import (
    WORKDAYS,
    month_line,
    month_rule,
    recurrence_line,
    recurrence_words,
)
from allocation.rules.recurrence import Recurrence, recurrence_check
from allocation.services.bookings.bookings import BookingRequest
from allocation.services.bookings.series import Repeat, series_dates
from allocation.web.bookings.request_form import RequestFields
from billing.rules import money_text

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
    ("weekdays", "Mon to Fri"),
    ("weekly", "Every week"),
    ("monthly", "Every month"),
    ("days", "Every month on …"),
)


@dataclass(frozen=True, slots=True)
class SeriesPreview:
    """All dates in words, before they are booked."""

    words: str
    count: int
    first: str
    last: str
    skipped: str


def repeat_rule(often: str, days: str, param: str) -> Recurrence | None:
    """The rule of a choice and of its days of the month, without an end; None for once.

    AskError: `days` are no days of a month.
    """
    return month_rule(days, param) if often == "days" else REPEATS.get(often)


def repeat_of_fields(
    fields: RequestFields, said: Recurrence | None, today: date
) -> Recurrence | None:
    """The rule that the fields make, or the one that the line `said`; None for once. Without a
    last day it repeats for two weeks.

    AskError: a last day that there is not, or no days of a month.
    """
    rule = repeat_rule(fields.often, fields.days, "days")
    if rule is None:
        return said if fields.often == "text" else None
    try:
        until = date.fromisoformat(fields.until) if fields.until else today + FORTNIGHT
    except ValueError:
        raise AskError("no_end", "Say the last day on which it repeats.", "until") from None
    return recurrence_check(replace(rule, until=until), "until")


def repeat_shown(rule: Recurrence | None) -> dict[str, Any]:
    """What the fields show for a rule that came from the text."""
    plain = replace(rule, until=None, times=None) if rule else None
    often = next((name for name, each in REPEATS.items() if each == plain), "")
    days = month_line(rule) if rule and rule.interval == 1 and not often else ""
    often = often or ("days" if days else "text" if rule else "")
    choices = (*CHOICES, ("text", "As the line says")) if often == "text" else CHOICES
    return {
        "choices": choices,
        "often": often,
        "days": days.removeprefix("the "),
        "until": rule.until.isoformat() if rule and rule.until else "",
    }


def repeat_typed(fields: RequestFields) -> dict[str, Any]:
    """The fields as they were typed, where they make no rule."""
    typed = {"often": fields.often, "until": fields.until, "days": fields.days}
    return {"choices": CHOICES, **typed}


def series_text(text: str, rule: Recurrence | None) -> str:
    """The line with its repetition."""
    return f"{text} {recurrence_line(rule)}" if rule else text


def series_preview(wish: BookingRequest, repeat: Repeat) -> tuple[BookingRequest, SeriesPreview]:
    """The wish for the first date, and all of them in words. Raises Refused."""
    dates = series_dates(wish, repeat)
    zone, words = ZoneInfo(wish.zone), recurrence_words(repeat.rule)
    seen = SeriesPreview(
        words=words[0].upper() + words[1:],
        count=len(dates.starts),
        first=_day(dates.starts[0], zone),
        last=_day(dates.starts[-1], zone),
        skipped=", ".join(dates.skipped),
    )
    return replace(wish, ask=replace(wish.ask, starts=dates.starts[0])), seen


def series_options(
    options: Iterable[dict[str, Any]], wish: BookingRequest, context: dict[str, Any]
) -> list[dict[str, Any]]:
    """The options that keep the time of day, priced for every date, each as a line that repeats."""
    count, rule = context["series"].count, context["rule"]
    found = []
    for each in options:
        option = each["option"]
        if option.starts != wish.ask.starts:
            continue
        total = money_text(option.price * Decimal(count), option.currency)
        found.append(
            each
            | {
                "price": total,
                "button": f"Book {count} dates for {total}",
                "value": series_text(each["value"], rule),
            }
        )
    return found


def _day(moment: datetime, zone: ZoneInfo) -> str:
    local = moment.astimezone(zone)
    return f"{local:%a} {local.day} {local:%b %H:%M}"
