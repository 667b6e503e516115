"""Two chosen periods side by side, as pages show them, with what else changed in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from allocation.features.insights.figures import Figures, Whose, sum_of
from allocation.features.insights.rule_changes import RuleChange, changes_seen, rule_changes, together
from allocation.features.insights.services import (
    Question,
    currency_of,
    own_figures,
    owners_of,
    periods_read,
    rows_of,
)
from allocation.web.parts.times import length_words
from allocation.words.refusals import refusal_text
from billing.rules import Period, money_text
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
    def last(self) -> date:
        """Its last day."""
        return self.question.days.ends - timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """A figure of both periods, and by how much the first differs."""

    name: str
    one: str
    other: str
    difference: str


def own_comparison(actor: Actor, asked: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """Returns what the page has of two periods of a project, a lab or the organisation.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    owner = asked.get("project", "")
    whose: list[Whose] = []

    def columns(periods: tuple[Question, Question]) -> list[Column]:
        whose.append(own_figures(actor, owner, periods[0]))
        return [_column(whose[0], each, changes_seen(actor, each.days), now) for each in periods]

    context = _context(asked, columns, currency_of(actor.tenant_id), now)
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
        "rows": _rows(one.total, other.total, currency),
        "fields": _fields(asked, days),
        "is_other_length": len({each.ends - each.starts for each in days}) > 1,
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
    labels = ("First period, from", "First period, to", "Second period, from", "Second period, to")
    typed = (asked.get(name, "") for name in DAYS)
    found = zip(DAYS, labels, values, typed, strict=True)
    return [(name, label, text or value.isoformat()) for name, label, value, text in found]


def _rows(one: Figures, other: Figures, currency: str) -> list[ComparedRow]:
    rows = [
        _number("GPU-hours booked", one.gpu_hours, other.gpu_hours),
        _number("Of them measured", one.measured_gpu_hours, other.measured_gpu_hours),
        _number("Booked and unused, of the measured", one.unused_gpu_hours, other.unused_gpu_hours),
        _number("Booked and unused while somebody waited", one.dark_gpu_hours, other.dark_gpu_hours),
        _percent("Busy", one.utilisation, other.utilisation),
        _percent("Tensor cores at work", one.tensor, other.tensor),
        _percent("Memory bandwidth in use", one.bandwidth, other.bandwidth),
        _number("Energy in kWh, where measured", one.kwh, other.kwh),
        _number("Bookings that began", Decimal(one.began), Decimal(other.began), places=0),
        _length("Median wait", one.wait_p50_seconds, other.wait_p50_seconds),
        _length("Wait of 19 in 20, at most", one.wait_p95_seconds, other.wait_p95_seconds),
        _number("Pauses", Decimal(one.pauses), Decimal(other.pauses), places=0),
        _number("Hours of work repeated by pauses", one.lost_hours, other.lost_hours),
    ]
    if one.capacity is not None and other.capacity is not None:
        dark = (Decimal(str(each.capacity.dark)) for each in (one, other) if each.capacity)
        out = (Decimal(str(each.capacity.out_of_service)) for each in (one, other) if each.capacity)
        rows.append(_number("Free while somebody waited, in GPU-hours", *dark))
        rows.append(_number("GPU-hours out of service", *out))
    if currency:
        rows.append(_money("Spend", one.spend or Decimal(0), other.spend or Decimal(0), currency))
        busy = (one.price_per_busy_gpu_hour, other.price_per_busy_gpu_hour)
        rows.append(_money("Price of a fully busy GPU-hour", *busy, currency))
    return rows


def _number(name: str, one: Decimal, other: Decimal, *, places: int = 1) -> ComparedRow:
    return ComparedRow(name, f"{one:,.{places}f}", f"{other:,.{places}f}", _relative(one, other))


def _percent(name: str, one: Decimal | None, other: Decimal | None) -> ComparedRow:
    shown = ["not measured" if each is None else f"{each:.0f} %" for each in (one, other)]
    points = "–" if one is None or other is None else f"{one - other:+.0f} points"
    return ComparedRow(name, shown[0], shown[1], points)


def _length(name: str, one: int | None, other: int | None) -> ComparedRow:
    shown = ["nothing began" if each is None else _words(each) for each in (one, other)]
    if one is None or other is None:
        return ComparedRow(name, shown[0], shown[1], "–")
    if one == other:
        return ComparedRow(name, shown[0], shown[1], "0")
    sign = "+" if one > other else "\u2212"
    return ComparedRow(name, shown[0], shown[1], f"{sign}{_words(abs(one - other))}")


def _words(seconds: int) -> str:
    return length_words(seconds) if seconds else "0 min"


def _money(name: str, one: Decimal | None, other: Decimal | None, currency: str) -> ComparedRow:
    shown = ["not known" if each is None else money_text(each, currency) for each in (one, other)]
    known = one is not None and other is not None
    return ComparedRow(
        name, shown[0], shown[1], _relative(one or Decimal(0), other or Decimal(0)) if known else "–"
    )


def _relative(one: Decimal, other: Decimal) -> str:
    """By how many percent the first differs, or all of it where the second has nothing."""
    if not other:
        return f"{one:+,.1f}" if one else "0"
    return f"{100 * (one / other - 1):+,.0f} %"
