"""Which days, steps and nouns are asked for, and whose figures they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from allocation.features.insights.figures import STEPS, Figures, Table, Whose, figures_of, steps_of, sum_of
from allocation.queries.bookings.money.statement_files import month_read, statement_read
from allocation.queries.bookings.money.statements import LAB, MINE, StatementOf
from allocation.words.refusals import refusal_text
from billing.price_books import currency_latest
from billing.rules import Period, money_text, month_of
from tenants.access import Actor
from tenants.lab_queries import labs_led, labs_read, projects_seen
from tenants.platform.errors import invalid, missing

OWN_NOUNS = ("class", "project", "person", "tier")
SITE_NOUNS = ("class", "tenant", "tier")
RANGES = {"1": "A week", "4": "4 weeks", "12": "12 weeks"}
FIRST, LAST = date(2000, 1, 1), date(2999, 12, 31)
USUAL, MOST_DAYS, MOST_STEPS = timedelta(days=28), timedelta(days=366), 100


@dataclass(frozen=True, slots=True)
class Question:
    """UTC days, in steps, by a noun."""

    days: Period
    by: str
    step: str

    @property
    def before(self) -> "Question":
        """As many days that end where these begin."""
        length = self.days.ends - self.days.starts
        return replace(self, days=Period(self.days.starts - length, self.days.starts))


@dataclass(frozen=True, slots=True)
class Span:
    """The time of a page: its parameter of the address with its value, its days, and their step."""

    name: str
    value: str
    days: Period
    step: str

    @property
    def before(self) -> Period:
        """The month before a month, else as many days that end where these begin."""
        starts = self.days.starts
        if self.name == "month":
            return month_of(starts - timedelta(days=1))
        return Period(starts - (self.days.ends - starts), starts)


def span_read(weeks: str, month: str, now: datetime) -> Span:
    """Reads the time of a page: a month such as `2026-11`, or the last weeks until now (4 unless chosen).

    Raises:
        Refused: `bad_month`.
    """
    if month:
        found = month_read(month)
        return Span("month", f"{found.starts:%Y-%m}", found, "day")
    weeks = weeks if weeks in RANGES else "4"
    ends = now.astimezone(UTC).date() + timedelta(days=1)
    return Span(
        "weeks", weeks, Period(ends - timedelta(weeks=int(weeks)), ends), "week" if weeks == "12" else "day"
    )


def spans_of(chosen: Span, now: datetime) -> list[tuple[str, Span]]:
    """The times that a page offers, with their names: weeks, the month before, this one, and a chosen one."""
    this = month_of(now.astimezone(UTC).date())
    months = {month_of(this.starts - timedelta(days=1)).starts, this.starts}
    months |= {chosen.days.starts} if chosen.name == "month" else set()
    return [
        *((label, span_read(weeks, "", now)) for weeks, label in RANGES.items()),
        *((f"{first:%B %Y}", span_read("", f"{first:%Y-%m}", now)) for first in sorted(months)),
    ]


def question_read(
    starts: date | None, ends: date | None, by: str, step: str, nouns: tuple[str, ...], now: datetime
) -> Question:
    """Reads a question; without days it is about the last four weeks until now.

    Raises:
        Refused: `bad_period` or `unknown_choice`.
    """
    if by not in nouns:
        raise invalid("unknown_choice", refusal_text("kpi_noun", nouns=", ".join(nouns)), "by")
    if step not in STEPS:
        raise invalid("unknown_choice", refusal_text("kpi_noun", nouns=", ".join(STEPS)), "step")
    if ends is None:
        ends = now.astimezone(UTC).date() + timedelta(days=1)
    if not _is_possible(ends):
        raise invalid("bad_period", refusal_text("kpi_period"), "to")
    if starts is None:
        starts = ends - USUAL
    if not _is_possible(starts):
        raise invalid("bad_period", refusal_text("kpi_period"), "from")
    days = Period(starts, ends)
    if not timedelta(0) < ends - starts <= MOST_DAYS or len(steps_of(days, step)) > MOST_STEPS:
        raise invalid("bad_period", refusal_text("kpi_period"), "from")
    return Question(days, by, step)


def periods_read(days: Sequence[date | None], now: datetime) -> tuple[Question, Question]:
    """Reads two periods, of which `days` are the begins and ends. The second is, without its begin, as
    many days just before the first, and without its end as long as the first.

    Raises:
        Refused: `bad_period`.
    """
    starts, ends, against_starts, against_ends = days
    asked = question_read(starts, ends, "class", "all", OWN_NOUNS, now)
    if against_starts is None:
        return asked, asked.before
    if not _is_possible(against_starts):
        raise invalid("bad_period", refusal_text("kpi_period"), "against_from")
    against_ends = against_ends or against_starts + (asked.days.ends - asked.days.starts)
    return asked, question_read(against_starts, against_ends, "class", "all", OWN_NOUNS, now)


def _is_possible(day: date) -> bool:
    """Whether there can be figures of a day, and others a year before and after it."""
    return FIRST <= day <= LAST


def own_figures(actor: Actor, owner: str, question: Question) -> Whose:
    """Whose figures a member gets: of a project, of a lab as `lab:physics` (its leads and tenant
    admins), of all that they have as `projects:mine`, or of all (tenant admins; for others their first
    project).

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    if owner == MINE:
        mine = tuple(projects_seen(actor, labs_led(actor)))
        if not mine:
            raise missing("project", "project")
        return Whose(actor.tenant_id, StatementOf(actor.tenant_id, question.days, mine=mine))
    return Whose(actor.tenant_id, statement_read(actor, question.days, owner))


def owner_shown(actor: Actor, asked: str) -> str:
    """Whose figures pages show: those that are asked for, or all of the person."""
    return asked or ("" if actor.is_tenant_admin or not _has_several(actor) else MINE)


def owners_of(actor: Actor) -> list[tuple[str, str]]:
    """Whose figures the person may choose, with their names."""
    everything = ("", "The whole organisation") if actor.is_tenant_admin else (MINE, "All my projects")
    return [
        *([everything] if actor.is_tenant_admin or _has_several(actor) else []),
        *((f"{LAB}{each.slug}", f"{each.name} (lab)") for each in labs_read(actor)),
        *((each.slug, each.name) for each in projects_seen(actor, labs_led(actor))),
    ]


def _has_several(actor: Actor) -> bool:
    return projects_seen(actor, labs_led(actor)).count() > 1


def rows_of(whose: Whose, question: Question, now: datetime) -> list[tuple[date, str, Figures]]:
    """The figures by step and noun: in order of time, the most GPU-hours first."""
    table: Table = figures_of(whose, question.days, question.by, question.step, now)
    rows = [(begins, name, found) for (begins, name), found in table.items()]
    return sorted(rows, key=lambda row: (row[0], -row[2].gpu_hours, row[1]))


def sums_by_name(rows: list[tuple[date, str, Figures]]) -> list[tuple[str, Figures]]:
    """The figures of the whole time by noun, the most GPU-hours first."""
    names = {name for _, name, _ in rows}
    sums = [(name, sum_of(found for _, other, found in rows if other == name)) for name in names]
    return sorted(sums, key=lambda each: (-each[1].gpu_hours, each[0]))


def spend_of_all(tenants: list[tuple[str, Figures]]) -> str:
    """What all organisations were charged, by their figures."""
    total = sum((found.spend or Decimal(0) for _, found in tenants), Decimal(0))
    return money_text(total, currency_latest()) if total else "nothing"
