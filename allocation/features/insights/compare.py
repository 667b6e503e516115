"""Two chosen periods side by side, as pages show them, with what else changed in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from allocation.features.insights.compared import compared, days_words
from allocation.features.insights.figures import Figures, Whose, sum_of
from allocation.features.insights.rule_changes import RuleChange, changes_seen, rule_changes, together
from allocation.features.insights.services import (
    Question,
    own_figures,
    owner_shown,
    owners_of,
    periods_read,
    rows_of,
)
from allocation.words.refusals import refusal_text
from billing.price_books import currency_latest
from billing.rules import Period
from tenants.access import Actor
from tenants.models import Tenant
from tenants.platform.errors import Refused, invalid

DAYS = ("from", "to", "against_from", "against_to")
USUAL = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Column:
    """A period: its days, its figures, and what else changed in it."""

    question: Question
    total: Figures
    changes: Sequence[RuleChange]

    @property
    def words(self) -> str:
        """Its days, as in "18 – 24 Nov 2026"."""
        return days_words(self.question.days)


def own_comparison(actor: Actor, asked: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """Returns what the page has of two periods of a project, a lab or the organisation.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    owner = owner_shown(actor, asked.get("project", ""))
    whose: list[Whose] = []

    def columns(periods: tuple[Question, Question]) -> list[Column]:
        whose.append(own_figures(actor, owner, periods[0]))
        return [_column(whose[0], each, changes_seen(actor, each.days), now) for each in periods]

    context = _context(asked, columns, currency_latest(), now)
    of = whose[0].of
    return context | {
        "whose": (of.name if of else "") or Tenant.objects.get(id=actor.tenant_id).name,
        "owners": owners_of(actor),
        "owner": owner,
        "shows_changes": actor.leads_any,
        "back": f"/t/{actor.tenant_slug}/insights",
    }


def site_comparison(asked: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """Returns what the page has of two periods of all organisations together."""

    def columns(periods: tuple[Question, Question]) -> list[Column]:
        return [_column(Whose(), each, rule_changes(None, each.days), now) for each in periods]

    context = _context(asked, columns, "", now)
    return context | {
        "whose": "All organisations",
        "owners": (),
        "shows_changes": True,
        "back": "/ops/insights",
    }


def _context(
    asked: Mapping[str, str],
    columns: Callable[[tuple[Question, Question]], list[Column]],
    currency: str,
    now: datetime,
) -> dict[str, Any]:
    """The two periods, or those of now with the refusal of what was asked for."""
    refusal = None
    try:
        periods = periods_read(_days_asked(asked, now), now)
    except Refused as found:
        refusal, periods = found, periods_read(_days_asked({}, now), now)
    one, other = columns(periods)
    days = (one.question.days, other.question.days)
    return {
        "refusal": refusal,
        "columns": (one, other),
        "compared": compared(one.total, other.total, days, currency),
        "fields": _fields(asked, days),
        "usual": _usual(asked, days, now),
    }


def _column(whose: Whose, question: Question, changes: Sequence[RuleChange], now: datetime) -> Column:
    total = sum_of(found for _, _, found in rows_of(whose, question, now))
    return Column(question, total, together(changes))


def _days_asked(asked: Mapping[str, str], now: datetime) -> list[date | None]:
    """The begins and ends of the periods; at first this week and the one before."""
    days = [_day(asked, name) for name in DAYS]
    if any(days):
        return days
    ends = now.astimezone(UTC).date() + timedelta(days=1)
    return [ends - USUAL, ends, None, None]


def _day(asked: Mapping[str, str], name: str) -> date | None:
    text = asked.get(name, "").strip()
    if not text:
        return None
    try:
        found = date.fromisoformat(text)
    except ValueError:
        raise invalid("bad_period", refusal_text("kpi_period"), name) from None
    # A person names the last day, REST the first one after it.
    return found + timedelta(days=1) if name in ("to", "against_to") and found < date.max else found


def _fields(asked: Mapping[str, str], days: tuple[Period, Period]) -> list[tuple[str, str, str]]:
    one, other = days
    values = (one.starts, one.ends - timedelta(days=1), other.starts, other.ends - timedelta(days=1))
    labels = ("Days from", "Days to", "Compared with, from", "Compared with, to")
    typed = (asked.get(name, "") for name in DAYS)
    found = zip(DAYS, labels, values, typed, strict=True)
    return [(name, label, text or value.isoformat()) for name, label, value, text in found]


def _usual(
    asked: Mapping[str, str], days: tuple[Period, Period], now: datetime
) -> list[tuple[str, str, bool]]:
    """Usual pairs of periods: a name, the query, and whether it is the one that is shown."""
    ends = now.astimezone(UTC).date() + timedelta(days=1)
    month = (ends - timedelta(days=1)).replace(day=1)
    last = (month - timedelta(days=1)).replace(day=1)
    pairs = [(f"{weeks} week{'s' * (weeks > 1)}", *_weeks_before(ends, weeks)) for weeks in (1, 4)]
    pairs.append(("Last month", Period(last, month), Period((last - timedelta(days=1)).replace(day=1), last)))
    found = []
    for label, one, other in pairs:
        ends_at = [str(each.ends - timedelta(days=1)) for each in (one, other)]
        values = (str(one.starts), ends_at[0], str(other.starts), ends_at[1])
        query = {"project": asked.get("project", "")} | dict(zip(DAYS, values, strict=True))
        found.append((label, urlencode(query), (one, other) == days))
    return found


def _weeks_before(ends: date, weeks: int) -> tuple[Period, Period]:
    length = timedelta(weeks=weeks)
    return Period(ends - length, ends), Period(ends - 2 * length, ends - length)
