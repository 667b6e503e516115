"""Charts over time that the browser fetches after the page: the queue, pauses, quota use, and what GPUs
that were booked and not used cost.

Each has one statement, bounded by the days. A wait, a pause and an unused hour are those of the figures.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from urllib.parse import urlencode
from uuid import UUID

from django.db import connection

from allocation.features.insights.cards import bookings_address
from allocation.features.insights.charts import LEAST_STEPS, Bars, bars_of, days_of
from allocation.features.insights.figures import PAUSES, Whose, steps_of
from allocation.features.insights.readings import OF_BOOKING, READINGS
from allocation.features.insights.services import (
    OWN_NOUNS,
    SITE_NOUNS,
    Question,
    own_figures,
    owner_shown,
    question_read,
    span_read,
)
from allocation.points import BookingCard
from allocation.queries.bookings.money.demand_hours import RUNS, WAITED
from allocation.queries.bookings.money.held_use import DEVICES
from allocation.queries.fleet.catalogue import class_labels
from allocation.queries.fleet.use_hours import use_summed_until
from billing.price_books import currency_latest
from billing.rules import UNITS_PER_GPU, money_text
from tenants.access import Actor
from tenants.lab_queries import guarantees_now
from tenants.models import GpuClass, LabQuota, Quota, Tenant, User

TEMPLATE = "insights/over_time.html"
SHADES = ("p-1", "p-2", "p-3", "p-4", "p-5")
OTHERS = ("others", "p-unknown")
ZERO = Decimal(0)
HOUR = Decimal(3600)
_MOST_ROWS = 20
# A span counts in each day for the part of it that is in the day.
_BY_DAY = """
CROSS JOIN LATERAL generate_series(
  date_trunc('day', greatest(x.since, %(starts)s) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC',
  least(x.until, %(ends)s) - '1 microsecond'::interval, '1 day'::interval) AS s(at)
CROSS JOIN LATERAL (SELECT extract(epoch FROM
  least(x.until, %(ends)s, s.at + '1 day'::interval) - greatest(x.since, %(starts)s, s.at)) AS seconds) d
WHERE x.since < least(x.until, %(ends)s) AND x.until > %(starts)s
GROUP BY 1, 2
"""
_DAY = "(s.at AT TIME ZONE 'UTC')::date"
# An array, because PostgreSQL takes a join for rare and reads all bookings once for each class.
_QUEUE = f"""
SELECT x.gpu_class, {_DAY}, sum(d.seconds), sum(d.seconds * x.gpus)
FROM (SELECT w.* FROM ({WAITED}) w
  WHERE w.gpu_class = ANY(ARRAY(SELECT slug FROM tenants_gpuclass WHERE kind = 'gpu'))) x
{_BY_DAY}
"""  # noqa: S608 (our own text)
# As quotas count: units, and no rented machines.
_USE = f"""
SELECT x.name, {_DAY}, sum(d.seconds * x.units)
FROM (
  SELECT t.slug || '/' || g.gpu_class_id AS name, a.units, lower(a.period) AS since,
    coalesce(upper(a.period), %(ends)s) AS until
  FROM allocation_allocation a
  JOIN allocation_gpu g ON g.id = a.gpu_id
  JOIN tenants_gpuclass c ON c.slug = g.gpu_class_id AND c.kind = 'gpu'
  JOIN allocation_booking b ON b.id = a.booking_id AND b.pool = ''
  JOIN tenants_tenant t ON t.id = b.tenant_id
  WHERE a.state = ANY(%(states)s) AND NOT a.abandoned AND a.period && tstzrange(%(starts)s, %(ends)s)
    AND (%(tenant)s::uuid IS NULL OR b.tenant_id = %(tenant)s)
    AND (%(projects)s::uuid[] IS NULL OR b.project_id = ANY(%(projects)s))) x
{_BY_DAY}
"""  # noqa: S608
# The price of a booking is that of all its GPUs together.
_IDLE = f"""
SELECT u.username, r.day, coalesce(sum(r.unused * r.whole), 0),
  coalesce(sum(r.unused * b.price_per_hour / {DEVICES}), 0), sum(r.seconds * r.whole)
FROM ({READINGS}) r
JOIN allocation_booking b ON b.id = r.booking_id
JOIN tenants_user u ON u.id = b.owner_id
GROUP BY 1, 2
"""  # noqa: S608
Sums = Mapping[tuple[date, str], tuple[Decimal, ...]]
"""By the first day of a step and the name of a noun."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """GPUs of a class that an owner is guaranteed today, and its limit; None: without a limit."""

    guaranteed: Decimal
    limit: Decimal | None


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """The quota use of a class or an organisation over the days; a share is in percent, None: of nothing."""

    label: str
    href: str
    mean: Decimal
    most: Decimal
    most_day: date
    guaranteed: Decimal
    limit: Decimal | None

    @property
    def share(self) -> Decimal | None:
        """The mean as a share of the guarantee."""
        return 100 * self.mean / self.guaranteed if self.guaranteed else None

    @property
    def share_of_limit(self) -> Decimal | None:
        """The mean as a share of the limit."""
        return 100 * self.mean / self.limit if self.limit else None


@dataclass(frozen=True, slots=True)
class PersonRow:
    """What a person's booked and unused GPUs cost at the plain prices of the bookings."""

    label: str
    hours: Decimal
    price: str
    percent: Decimal


@dataclass(frozen=True, slots=True)
class DayRow:
    """The charts of a step as numbers."""

    day: date
    days: str
    waiting: Decimal
    gpus: Decimal
    pauses: int
    lost_hours: Decimal
    in_use: Decimal
    share: Decimal | None
    idle_hours: Decimal
    idle_price: Decimal


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars with their title, what they count, and the list behind them."""

    slug: str
    title: str
    note: str
    bars: Bars


class OverTime:
    """The sums of a question about somebody's work, by the first day of each step."""

    def __init__(self, whose: Whose, question: Question, now: datetime) -> None:
        """Keeps what is asked; each figure is read when it is called."""
        self.whose, self.now = whose, now
        self.begins = steps_of(question.days, question.step)
        self.starts = question.days.first_second
        self.ends = max(self.starts, min(question.days.last_second, now.astimezone(UTC)))
        self.facts = whose.facts | {"starts": self.starts, "ends": self.ends}

    def queue(self) -> Sums:
        """Bookings that wait, and the GPUs that they ask for, on average over each step, by class."""
        return self._means(self._read(_QUEUE, states=RUNS))

    def pauses(self) -> Sums:
        """Pauses, and the hours of work that they made people repeat, by class."""
        found = self._read(PAUSES.format(name=OF_BOOKING["class"]))
        return {key: (count, lost / HOUR) for key, (count, lost) in found.items()}

    def quota_use(self) -> Sums:
        """GPUs in use on average over each step as quotas count them, by `organisation/class`."""
        units = self._means(self._read(_USE, states=RUNS))
        return {key: (each / UNITS_PER_GPU,) for key, (each,) in units.items()}

    def idle(self) -> Sums:
        """Unused GPU-hours, their price, and the hours with readings, by the person's account."""
        until = use_summed_until()
        found = self._read(_IDLE, summed_until=until, waited_classes=[], waited_hours=[], grams=None)
        return {key: tuple(each / HOUR for each in sums) for key, sums in found.items()}

    def seconds(self, begins: date) -> Decimal:
        """How many seconds of a step have been; at least one."""
        number = self.begins.index(begins) + 1
        after = self.begins[number] if number < len(self.begins) else None
        ends = datetime(after.year, after.month, after.day, tzinfo=UTC) if after else self.ends
        since = datetime(begins.year, begins.month, begins.day, tzinfo=UTC)
        return max(Decimal(1), Decimal(str((min(ends, self.ends) - since).total_seconds())))

    def guarantees(self) -> dict[str, Guarantee]:
        """What is guaranteed today, by `organisation/class`: of the organisation, the project or the lab;
        nothing for several projects."""
        of, dated = self.whose.of, guarantees_now(self.now)
        if of and of.mine:
            # Those of several projects need not hold at the same time as one number.
            return {}
        rows: Iterable[tuple[UUID, str, str, int, int | None]]
        quotas, columns = Quota.objects.all(), ("gpu_class_id", "guaranteed_units", "borrow_limit_units")
        if of and of.lab:
            labs = LabQuota.objects.filter(lab=of.lab).exclude(gpu_class__kind=GpuClass.Kind.HOST)
            rows = labs.values_list("lab_id", "tenant__slug", *columns)
        else:
            project = of.project if of else None
            if self.whose.tenant_id:
                quotas = quotas.filter(tenant_id=self.whose.tenant_id)
            quotas = quotas.filter(project=project).exclude(gpu_class__kind=GpuClass.Kind.HOST)
            rows = quotas.values_list("project_id" if project else "tenant_id", "tenant__slug", *columns)
        found = {}
        for owner, tenant, name, units, above in rows:
            sure = dated.get((owner, name), units)
            limit = None if above is None else Decimal(sure + above) / UNITS_PER_GPU
            found[f"{tenant}/{name}"] = Guarantee(Decimal(sure) / UNITS_PER_GPU, limit)
        return found

    def _read(self, statement: str, **more: object) -> Sums:
        found: dict[tuple[date, str], tuple[Decimal, ...]] = {}
        with connection.cursor() as cursor:
            cursor.execute(statement, self.facts | more)
            for name, day, *values in cursor.fetchall():
                key = self.begins[bisect_right(self.begins, day) - 1], name or ""
                had = found.get(key, (ZERO,) * len(values))
                found[key] = tuple(a + Decimal(b) for a, b in zip(had, values, strict=True))
        return found

    def _means(self, sums: Sums) -> Sums:
        return {key: tuple(each / self.seconds(key[0]) for each in values) for key, values in sums.items()}


def over_time_card(actor: Actor | None, query: Mapping[str, str], now: datetime) -> BookingCard | None:
    """The charts over the days of the page, for those whose figures it shows; None: nothing happened."""
    question = _question(query, SITE_NOUNS if actor is None else OWN_NOUNS, now)
    whose = own_figures(actor, owner_shown(actor, query.get("project", "")), question) if actor else Whose()
    sums = OverTime(whose, question, now)
    queue, pauses, use = sums.queue(), sums.pauses(), sums.quota_use()
    idle = sums.idle() if actor else {}
    if not (queue or pauses or use or idle):
        return None
    labels, guarantees = class_labels(), sums.guarantees()
    currency = currency_latest() if actor else ""
    people = _names_of(name for _, name in idle)
    quota_parts = _quota_parts(sums.begins, use, guarantees)
    begins = _from_first(sums.begins, (queue, pauses, use, idle))
    charts = [
        *_queue_charts(sums, begins, queue, labels),
        *_pause_charts(begins, pauses, labels),
        *_quota_chart(begins, quota_parts),
        *_idle_chart(begins, idle, people, currency),
    ]
    owner = whose.of.owner if whose.of else ""
    rows = bookings_address(actor, owner)
    card = {
        "question": question,
        "last_day": question.days.ends - timedelta(days=1),
        "is_site": actor is None,
        "rows": rows,
        "charts": charts,
        "no_pauses": not pauses,
        "quotas": _quota_rows(sums, use, guarantees, is_site=actor is None),
        "people": _people(idle, people, currency),
        "unused": sum((each[0] for each in idle.values()), ZERO),
        "measured": sum((each[2] for each in idle.values()), ZERO),
        "currency": currency,
        "days": _day_rows(sums, queue, pauses, quota_parts, idle),
    }
    return BookingCard(TEMPLATE, card)


def _question(query: Mapping[str, str], nouns: tuple[str, ...], now: datetime) -> Question:
    """The same days and steps as the page has."""
    span = span_read(query.get("weeks", ""), query.get("month", ""), now)
    return question_read(span.days.starts, span.days.ends, "class", span.step, nouns, now)


def _names_of(usernames: Iterable[str]) -> dict[str, str]:
    return {each.username: each.display_name for each in User.objects.filter(username__in=set(usernames))}


def _from_first(begins: Sequence[date], found: Iterable[Sums]) -> Sequence[date]:
    """The steps of all charts: from the first in which something happened on."""
    first = min(day for sums in found for day, _ in sums)
    return begins[min(begins.index(first), max(0, len(begins) - LEAST_STEPS)) :]


def _stack(
    sums: Sums, part: int, begins: Sequence[date], names: Mapping[str, str], unit: str, places: int = 1
) -> Bars:
    """Bars of one of the sums: the largest nouns, and all others together."""
    totals: dict[str, Decimal] = defaultdict(Decimal)
    for (_, name), values in sums.items():
        totals[name] += values[part]
    order = sorted((name for name, total in totals.items() if total), key=lambda name: (-totals[name], name))
    shown = order[: len(SHADES)]
    keys = [(names.get(name, name) or "none", css) for name, css in zip(shown, SHADES, strict=False)]
    keys += [OTHERS] if len(order) > len(shown) else []
    columns = {day: [ZERO] * len(keys) for day in begins}
    for (day, name), values in sums.items():
        if values[part]:
            columns[day][shown.index(name) if name in shown else -1] += values[part]
    return bars_of(keys, [*columns.items()], unit, places=places, is_cut=False)


def _queue_charts(
    sums: OverTime, begins: Sequence[date], queue: Sums, labels: Mapping[str, str]
) -> list[Chart]:
    if not queue:
        return []
    found = []
    titles = (
        ("over-queue", "Bookings waiting", "bookings"),
        ("over-queue-gpus", "GPUs of waiting bookings", "GPUs"),
    )
    for part, (slug, title, unit) in enumerate(titles):
        bars = _stack(queue, part, begins, labels, unit, 2)
        seconds = sum(sums.seconds(day) for day in sums.begins)
        mean = sum(values[part] * sums.seconds(day) for (day, _), values in queue.items()) / seconds
        found.append(Chart(slug, title, "on average", replace(bars, text=f"{mean:,.2f} {unit} on average")))
    return found


def _pause_charts(begins: Sequence[date], pauses: Sums, labels: Mapping[str, str]) -> list[Chart]:
    if not pauses:
        return []
    count = _stack(pauses, 0, begins, labels, "pauses", 0)
    lost = _stack(pauses, 1, begins, labels, "h")
    return [
        Chart("over-pauses", "Pauses", "when the GPUs were free", count),
        *(
            [Chart("over-repeated", "Hours of work repeated", "after these pauses", lost)]
            if lost.keys
            else []
        ),
    ]


def _quota_parts(
    begins: Sequence[date], use: Sums, guarantees: Mapping[str, Guarantee]
) -> dict[date, list[Decimal]]:
    """GPUs of each step: within guarantees, above them, of classes without a quota, and guaranteed only."""
    found = {day: [ZERO] * 4 for day in begins}
    for day, parts in found.items():
        for name in {*guarantees, *(name for at, name in use if at == day)}:
            (used,) = use.get((day, name), (ZERO,))
            quota = guarantees.get(name)
            if quota is None:
                parts[2] += used
                continue
            within = min(used, quota.guaranteed)
            parts[0] += within
            parts[1] += used - within
            parts[3] += quota.guaranteed - within
    return found


def _quota_chart(begins: Sequence[date], parts: Mapping[date, Sequence[Decimal]]) -> list[Chart]:
    if not any(any(each[:3]) for each in parts.values()):
        return []
    keys = (
        ("within the guarantee", "p-1"),
        ("above it", "p-2"),
        ("without a quota", "p-4"),
        ("guaranteed, not in use", "p-unknown"),
    )
    has = [number for number in range(len(keys)) if any(each[number] for each in parts.values())]
    columns = [(day, [each[number] for number in has]) for day, each in parts.items() if day in begins]
    bars = bars_of([keys[number] for number in has], columns, "GPUs", is_cut=False)
    within = 100 * sum(each[0] for each in parts.values())
    sure = sum(each[0] + each[3] for each in parts.values())
    text = f"{within / sure:.0f} % of what is guaranteed was in use" if sure else "no guarantee"
    return [Chart("over-quota-use", "Use of the guarantee", "GPUs on average", replace(bars, text=text))]


def _idle_chart(begins: Sequence[date], idle: Sums, people: Mapping[str, str], currency: str) -> list[Chart]:
    bars = _stack(idle, 1, begins, people, currency, 2)
    return (
        [Chart("over-idle", "Price of unused GPUs, by person", f"in {currency}", bars)] if bars.keys else []
    )


def _quota_rows(
    sums: OverTime, use: Sums, guarantees: Mapping[str, Guarantee], *, is_site: bool
) -> list[QuotaRow]:
    """By class, for operators by organisation; the most in use first."""
    totals: dict[str, dict[date, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    quotas: dict[str, list[Guarantee]] = defaultdict(list)
    part = 0 if is_site else 1
    for (day, name), (mean,) in use.items():
        totals[name.split("/")[part]][day] += mean
    for name, quota in guarantees.items():
        quotas[name.split("/")[part]].append(quota)
    labels = dict(Tenant.objects.values_list("slug", "name")) if is_site else class_labels()
    seconds = sum(sums.seconds(day) for day in sums.begins)
    days = urlencode({"from": sums.begins[0], "to": sums.ends.date()})
    rows = []
    for name in {*totals, *quotas}:
        by_day, mine = totals.get(name, {}), quotas.get(name, [])
        day = max(sums.begins, key=lambda each: by_day.get(each, ZERO))
        limits = [each.limit for each in mine]
        row = QuotaRow(
            label=labels.get(name, name),
            href=f"/ops/bookings?{urlencode({'tenant': name})}&{days}" if is_site else "",
            mean=sum((each * sums.seconds(at) for at, each in by_day.items()), ZERO) / seconds,
            most=by_day.get(day, ZERO),
            most_day=day,
            guaranteed=sum((each.guaranteed for each in mine), ZERO),
            limit=sum((each for each in limits if each is not None), ZERO)
            if limits and None not in limits
            else None,
        )
        if row.mean or row.guaranteed:
            rows.append(row)
    return sorted(rows, key=lambda row: (-row.mean, -row.guaranteed, row.label))[:_MOST_ROWS]


def _people(idle: Sums, people: Mapping[str, str], currency: str) -> list[PersonRow]:
    """The people whose unused GPUs cost most first."""
    hours: dict[str, Decimal] = defaultdict(Decimal)
    price: dict[str, Decimal] = defaultdict(Decimal)
    for (_, name), (unused, cost, _) in idle.items():
        hours[name] += unused
        price[name] += cost
    total = sum(price.values(), ZERO)
    order = sorted(
        (name for name in hours if hours[name]), key=lambda name: (-price[name], -hours[name], name)
    )
    return [
        PersonRow(
            label=people.get(name, name),
            hours=hours[name],
            price=money_text(price[name], currency),
            percent=100 * price[name] / total if total else ZERO,
        )
        for name in order[:_MOST_ROWS]
    ]


def _day_rows(
    sums: OverTime, queue: Sums, pauses: Sums, parts: Mapping[date, Sequence[Decimal]], idle: Sums
) -> list[DayRow]:
    """All charts as numbers, the newest step first."""
    spans = days_of(sums.begins)

    def total(found: Sums, day: date, part: int) -> Decimal:
        return sum((values[part] for (at, _), values in found.items() if at == day), ZERO)

    rows = []
    for day in reversed(sums.begins):
        within, above, without, spare = parts[day]
        sure = within + spare
        rows.append(
            DayRow(
                day=day,
                days=spans[day],
                waiting=total(queue, day, 0),
                gpus=total(queue, day, 1),
                pauses=int(total(pauses, day, 0)),
                lost_hours=total(pauses, day, 1),
                in_use=within + above + without,
                share=100 * within / sure if sure else None,
                idle_hours=total(idle, day, 0),
                idle_price=total(idle, day, 1),
            )
        )
    return rows
