"""Statements: the sums of a month, and its lines with the facts of their bookings.

Each group of a mixed booking has its part of the whole.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Count

from allocation.models import BookingLabel
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument
from allocation.words.refusals import refusal_text
from billing.focus import ClassShare, StatementLine, Totals
from billing.models import Budget, ClosedMonth
from billing.price_books import currency_latest, price_at
from billing.rules import Period, cents_apart, cents_of
from tenants.models import Lab, Project
from tenants.platform.errors import Refused, invalid
from tenants.platform.labels import is_label_key

# Statements and no objects of the ORM: a month can have 100,000 lines.
_LINES = """
SELECT t.id, t.at, t.kind,
       coalesce('BK-' || b.number || coalesce('[' || b.array_index || ']', ''), ''),
       coalesce(b.name, ''), coalesce(p.slug, ''),
       coalesce(u.username, ''), coalesce(c.slug, ''), coalesce(nullif(t.tier, ''), b.tier_id, ''),
       coalesce(nullif(t.gpu_class, ''), b.planned_class, ''), coalesce(b.price_per_hour, 0),
       coalesce(b.price_per_hour + b.peak_surcharge, 0), t.surcharge,
       CASE t.kind WHEN 'reverse' THEN -t.amount ELSE t.amount END,
       a.currency, t.note, t.fee, coalesce(t.day, (t.at AT TIME ZONE 'UTC')::date),
       coalesce(b.ask->>'profile', ''),
       coalesce(p.labels, '{{}}') || own.labels || coalesce(b.labels, '{{}}'),
       coalesce(nullif(b.external_ref, ''), nullif(own.external_ref, ''), p.external_ref, ''),
       CASE WHEN b.ask ? 'groups' THEN b.ask::text END, b.price_version,
       (SELECT coalesce(sum(CASE e.kind WHEN 'reverse' THEN -e.amount ELSE e.amount END), 0)
        FROM billing_transfer e
        WHERE e.tenant_id = t.tenant_id AND e.reference = t.reference
          AND e.kind IN ('settle', 'charge', 'reverse') AND (e.at, e.id) < (t.at, t.id)),
       CASE WHEN b.ask ? 'host' THEN (b.ask->>'count')::int ELSE 0 END
FROM billing_transfer t
JOIN billing_account a ON a.id = t.debit_id
JOIN billing_budget own
  ON own.account_id = CASE t.kind WHEN 'reverse' THEN t.credit_id ELSE t.debit_id END
LEFT JOIN allocation_booking b ON b.id = t.reference
LEFT JOIN tenants_project p ON p.id = own.project_id
LEFT JOIN tenants_lab lab ON lab.id = p.lab_id
LEFT JOIN tenants_user u ON u.id = b.owner_id
LEFT JOIN billing_campaign c ON c.id = b.campaign_id
WHERE {which}
"""
_OF_MONTH = """t.tenant_id = %(tenant)s AND t.at >= %(starts)s AND t.at < %(ends)s
  AND t.kind IN ('settle', 'charge', 'reverse') AND t.reference IS NOT NULL
  AND (%(accounts)s::uuid[] IS NULL
       OR CASE t.kind WHEN 'reverse' THEN t.credit_id ELSE t.debit_id END = ANY(%(accounts)s))"""
_ALL = _LINES.format(which=_OF_MONTH) + "ORDER BY t.at, t.id"
# An index has all that decides which lines are on a page; then only these are read.
_CHOSEN = (
    f"SELECT t.id FROM billing_transfer t WHERE {_OF_MONTH}"  # noqa: S608 (our own text)
    " ORDER BY t.at DESC, t.id DESC LIMIT %(limit)s OFFSET %(offset)s"
)
_PAGE = _LINES.format(which="t.id = ANY(%(chosen)s)") + "ORDER BY t.at DESC, t.id DESC"
_SUMS = """
SELECT {name}, sum(s.exact), sum(s.lines), sum(s.corrections)
FROM allocation_chargesum s
LEFT JOIN billing_budget own ON own.account_id = s.account_id
LEFT JOIN tenants_project p ON p.id = own.project_id
LEFT JOIN tenants_lab lab ON lab.id = p.lab_id
LEFT JOIN tenants_user u ON u.id = s.owner_id
LEFT JOIN billing_campaign c ON c.id = s.campaign_id
WHERE s.tenant_id = %(tenant)s AND s.day >= %(starts)s AND s.day < %(ends)s
  AND (%(accounts)s::uuid[] IS NULL OR s.account_id = ANY(%(accounts)s))
GROUP BY {name}
"""
_NAMES = {
    "project": "coalesce(p.slug, '')",
    "lab": "coalesce(lab.slug, '')",
    "person": "coalesce(u.username, '')",
    "tier": "s.tier",
    "gpu_class": "s.gpu_class",
    "campaign": "coalesce(c.slug, '')",
}
GROUPS = (*_NAMES, "ticket")
LABEL = "label:"
"""Before the key of a label, it is a group, too."""
# A booking has the labels and the ticket of its budget and project, unless it has its own.
_TICKET = "coalesce(nullif(b.external_ref, ''), nullif(own.external_ref, ''), p.external_ref, '')"
_LABELLED = "coalesce(b.labels ->> %(label)s, own.labels ->> %(label)s, p.labels ->> %(label)s, '')"
# The kept sums know no tickets and labels, so these read the lines.
_BY_BOOKING = f"""
SELECT {{name}}, sum(x.amount), count(*),
       count(*) FILTER (WHERE t.kind <> 'settle')
FROM billing_transfer t
JOIN billing_budget own
  ON own.account_id = CASE t.kind WHEN 'reverse' THEN t.credit_id ELSE t.debit_id END
LEFT JOIN allocation_booking b ON b.id = t.reference
LEFT JOIN tenants_project p ON p.id = own.project_id
CROSS JOIN LATERAL (
  SELECT CASE t.kind WHEN 'reverse' THEN -t.amount ELSE t.amount END AS amount) x
WHERE {_OF_MONTH}
GROUP BY 1
"""  # noqa: S608 (our own text)


_LINE_NAMES = _NAMES | {
    "tier": "coalesce(nullif(t.tier, ''), b.tier_id, '')",
    "ticket": _TICKET,
}
_OF_GROUP = (
    _LINES.format(which=f"{_OF_MONTH} AND {{value}} = %(name)s").replace("'{}'", "'{{}}'")
    + "ORDER BY t.at DESC, t.id DESC LIMIT %(limit)s OFFSET %(offset)s"
)
_OF_CLASS = (
    _LINES.format(
        which=f"{_OF_MONTH} AND (coalesce(nullif(t.gpu_class, ''), b.planned_class, '') = %(name)s"
        " OR (t.fee = ''"
        " AND b.ask->'groups' @> jsonb_build_array(jsonb_build_object('gpu_class', %(name)s))))"
    )
    + "ORDER BY t.at DESC, t.id DESC LIMIT %(limit)s OFFSET %(offset)s"
)
_OF_MIXED = _LINES.format(which=f"{_OF_MONTH} AND b.ask ? 'groups'")
CHUNK = 2_000
LAB = "lab:"
"""Before the slug of a lab, it is the owner of a statement in addresses."""
MINE = "projects:mine"
"""All projects of a person together, as the owner of figures in addresses."""


@dataclass(frozen=True, slots=True)
class StatementOf:
    """Whose statement it is: a tenant's month, of all projects, of one, of those of a lab, or of those
    that a person has (`mine`)."""

    tenant_id: UUID
    month: Period
    project: Project | None = None
    lab: Lab | None = None
    mine: tuple[Project, ...] = ()

    @property
    def owner(self) -> str:
        """Its owner as addresses have it: `folding`, `lab:physics`, `projects:mine`, or empty for all
        projects."""
        if self.mine:
            return MINE
        if self.lab is not None:
            return f"{LAB}{self.lab.slug}"
        return self.project.slug if self.project else ""

    @property
    def name(self) -> str:
        """The name of the project or lab; empty for all projects."""
        if self.mine:
            return "All my projects"
        owner = self.project or self.lab
        return owner.name if owner else ""

    @property
    def projects(self) -> list[UUID] | None:
        """The projects that it counts, those that the lab has now; None: all."""
        if self.mine:
            return [each.id for each in self.mine]
        if self.lab is not None:
            return list(Project.objects.filter(lab=self.lab).values_list("id", flat=True))
        return [self.project.id] if self.project else None


@dataclass(frozen=True, slots=True)
class Statement:
    """The sums of a month: in all, and by a group as in `group_check`. Amounts are the ledger's sums in
    cents: of projects as budgets show them, of other groups so that they add up to the total."""

    of: StatementOf
    totals: Totals
    groups: tuple[tuple[str, Totals], ...]
    """The largest amount first."""
    closed: ClosedMonth | None
    currency: str


def is_group(by: str) -> bool:
    """Whether a statement can be summed by it."""
    return by in GROUPS or (by.startswith(LABEL) and is_label_key(by.removeprefix(LABEL)))


def group_check(by: str) -> str:
    """Returns `by`, one of `GROUPS` or `label:` and a key. Raises Refused `unknown_choice`."""
    if is_group(by):
        return by
    raise invalid("unknown_choice", refusal_text("group_by", groups=", ".join(GROUPS)), "by")


def label_keys(of: StatementOf, most: int = 6) -> list[str]:
    """The keys of labels that most bookings of the tenant or the project have."""
    rows = BookingLabel.objects.filter(tenant_id=of.tenant_id)
    projects = of.projects
    if projects is not None:
        rows = rows.filter(booking__project__in=projects)
    inherited = _inherited_keys(of)
    keys = rows.values("key").annotate(count=Count("id")).order_by("-count", "key")
    found = [*inherited, *keys.values_list("key", flat=True)[:most]]
    return list(dict.fromkeys(found))[:most]


def _inherited_keys(of: StatementOf) -> list[str]:
    """The keys of labels of the projects and of their budgets."""
    projects = Project.objects.filter(tenant_id=of.tenant_id)
    budgets = Budget.objects.filter(tenant_id=of.tenant_id, level="project")
    only = of.projects
    if only is not None:
        projects, budgets = projects.filter(id__in=only), budgets.filter(project__in=only)
    rows = [*projects.values_list("labels", flat=True), *budgets.values_list("labels", flat=True)]
    return sorted({key for labels in rows for key in labels})


def statement_of(of: StatementOf, by: str = "person") -> Statement:
    """Reads the statement from the sums that the ledger keeps. `by` is as in `group_check`."""
    totals, kept = Totals(), _kept_sums(of, by)
    for group in kept.values():
        totals.add_sums(group)
    totals.amount = totals.rounded
    groups = list(_in_cents(_with_classes(of, kept, by), by).items())
    closed = ClosedMonth.objects.filter(tenant_id=of.tenant_id, starts=of.month.starts).first()
    ranked = sorted(groups, key=lambda each: (-each[1].amount, each[0]))
    return Statement(of, totals, tuple(ranked), closed, currency_latest())


def spend_of(of: StatementOf, by: str) -> dict[str, Totals]:
    """The charges of any days, with corrections, by a group as in `group_check`."""
    return _in_cents(_with_classes(of, _kept_sums(of, by), by), by)


def spend_by_day(of: StatementOf, by: str) -> dict[tuple[date, str], Decimal]:
    """The exact charges of each of any days, with corrections, by a group that `_NAMES` has."""
    rows = _rows(_SUMS.format(name=f"s.day, {_NAMES[by]}"), _facts(of, of.month.starts, of.month.ends))
    sums = defaultdict(Decimal, {(day, name): exact for day, name, exact, _, _ in rows})
    for line, parts in _mixed_lines(of) if by == "gpu_class" else ():
        day = line.at.astimezone(UTC).date()
        sums[day, line.gpu_class] -= line.exact
        for part in parts:
            sums[day, part.gpu_class] += part.exact
    return dict(sums)


def _in_cents(groups: dict[str, Totals], by: str) -> dict[str, Totals]:
    """The groups with amounts in cents that add up to the total in cents. Those of projects are
    what their budgets show, which are rounded one by one."""
    if by != "project":
        # By name, so that a cent that several could have is always that of the same one.
        ranked = [groups[name] for name in sorted(groups)]
        for each, amount in zip(ranked, cents_apart([each.exact for each in ranked]), strict=True):
            each.amount = amount
    return groups


def _with_classes(of: StatementOf, sums: dict[str, Totals], by: str) -> dict[str, Totals]:
    """The sums; those by class with each group of a mixed booking in its own class. The ledger
    keeps such a booking in its first class."""
    if by != "gpu_class":
        return sums
    for line, parts in _mixed_lines(of):
        sums.setdefault(line.gpu_class, Totals()).remove(line)
        for part in parts:
            sums.setdefault(part.gpu_class, Totals()).add(part)
    for each in sums.values():
        each.amount = each.rounded
    return {name: each for name, each in sums.items() if each.lines}


def _mixed_lines(of: StatementOf) -> Iterator[tuple[StatementLine, tuple[StatementLine, ...]]]:
    """The lines of bookings of several classes, each with its parts by class."""
    facts = _facts(of, of.month.first_second, of.month.last_second)
    for line in map(_line, _rows(_OF_MIXED, facts)):
        parts = line.by_class()
        if len(parts) > 1:
            yield line, parts


def _kept_sums(of: StatementOf, by: str) -> dict[str, Totals]:
    if by in _NAMES:
        facts = _facts(of, of.month.starts, of.month.ends)
        rows = _rows(_SUMS.format(name=_NAMES[by]), facts)
    else:
        facts = _facts(of, of.month.first_second, of.month.last_second)
        facts["label"] = by.removeprefix(LABEL)
        rows = _rows(_BY_BOOKING.format(name=_TICKET if by == "ticket" else _LABELLED), facts)
    return {
        name: Totals(cents_of(exact), exact, int(lines), int(corrections))
        for name, exact, lines, corrections in rows
    }


def statement_lines(of: StatementOf) -> Iterator[StatementLine]:
    """The charges and corrections that were booked in the month, in order.

    A charge is booked when a run ends, in whichever budget pays it.
    """
    facts = _facts(of, of.month.first_second, of.month.last_second)
    # A cursor of the server: a month of 100,000 lines would take 200 MB at once.
    with connection.chunked_cursor() as cursor:
        cursor.execute(_ALL, facts)
        while rows := cursor.fetchmany(CHUNK):
            yield from map(_line, rows)


def _line(row: Sequence[Any]) -> StatementLine:
    *facts, profile, labels, ticket, ask, version, before, cores = row
    line = StatementLine(*[*facts, json.loads(labels), profile, ticket])
    shares = () if ask is None else class_shares(ask, version, line.tier)
    return replace(line, before=before, shares=shares, cores=cores)


def statement_page(of: StatementOf, *, offset: int, limit: int) -> list[StatementLine]:
    """A page of the lines, the latest first."""
    facts = _facts(of, of.month.first_second, of.month.last_second)
    chosen = [row[0] for row in _rows(_CHOSEN, facts | {"limit": limit, "offset": offset})]
    return [_line(row) for row in _rows(_PAGE, {"chosen": chosen})]


def group_page(of: StatementOf, by: str, name: str, *, offset: int, limit: int) -> list[StatementLine]:
    """A page of the lines of one group as in `group_check`, the latest first."""
    facts = _facts(of, of.month.first_second, of.month.last_second)
    facts |= {"limit": limit, "offset": offset, "name": name, "label": by.removeprefix(LABEL)}
    if by == "gpu_class":
        lines = map(_line, _rows(_OF_CLASS, facts))
        return [part for line in lines for part in line.by_class() if part.gpu_class == name]
    return [_line(row) for row in _rows(_OF_GROUP.format(value=_LINE_NAMES.get(by, _LABELLED)), facts)]


def _facts(of: StatementOf, starts: date, ends: date) -> dict[str, Any]:
    accounts = None
    projects = of.projects
    if projects is not None:
        budgets = Budget.objects.filter(level="project", project__in=projects)
        accounts = list(budgets.values_list("account_id", flat=True))
    return {"tenant": of.tenant_id, "starts": starts, "ends": ends, "accounts": accounts}


def _rows(query: str, facts: dict[str, Any]) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(query, facts)
        rows: list[Any] = cursor.fetchall()
        return rows


@lru_cache(maxsize=1024)
def class_shares(ask: str, version: int, tier: str) -> tuple[ClassShare, ...]:
    """The groups of a stored request, in order, by their prices in a version of the price book.

    A published version never changes. Groups without a price count by their size.
    """
    document = AskDocument.from_json(json.loads(ask))
    units = ask_units(document)
    sizes = [Decimal(units.get(part.classes[0], 0)) for part in document.parts]
    prices = [_price(part, version, tier, units) for part in document.parts]
    weights = prices if all(prices) else sizes
    return tuple(
        ClassShare(part.classes[0], part.profile or "", weight)
        for part, weight in zip(document.parts, weights, strict=True)
    )


def _price(part: AskDocument, version: int, tier: str, units: dict[str, int]) -> Decimal:
    """What the group costs for an hour."""
    name = part.classes[0]
    try:
        price = price_at(version=version, gpu_class=name, tier=tier)
    except Refused:
        return Decimal(0)
    size = units.get(name, 0)
    return price.of(part.profile, part.count, size).rate(size).plain if size else Decimal(0)
