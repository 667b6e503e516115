"""Lines of statements: the charges and corrections of a month, with the facts of their bookings."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection

from billing.focus import StatementLine, Totals
from billing.models import ClosedMonth
from billing.rules import Period
from tenants.models import Project

# One statement, and no objects of the ORM: a month can have 100,000 lines.
_LINES = """
SELECT t.id, t.at, t.kind,
       coalesce('BK-' || b.number, ''), coalesce(b.name, ''), coalesce(p.slug, ''),
       coalesce(u.username, ''), coalesce(c.slug, ''), coalesce(b.tier_id, ''),
       coalesce(b.planned_class, ''), coalesce(b.price_per_hour, 0),
       CASE t.kind WHEN 'reverse' THEN -t.amount ELSE t.amount END,
       a.currency, t.note, coalesce(t.day, (t.at AT TIME ZONE 'UTC')::date)
FROM billing_transfer t
JOIN billing_account a ON a.id = t.debit_id
JOIN billing_budget own
  ON own.account_id = CASE t.kind WHEN 'reverse' THEN t.credit_id ELSE t.debit_id END
LEFT JOIN allocation_booking b ON b.id = t.reference
LEFT JOIN tenants_project p ON p.id = own.project_id
LEFT JOIN tenants_user u ON u.id = b.owner_id
LEFT JOIN billing_campaign c ON c.id = b.campaign_id
WHERE t.tenant_id = %(tenant)s AND t.at >= %(starts)s AND t.at < %(ends)s
  AND t.kind IN ('settle', 'charge', 'reverse') AND t.reference IS NOT NULL
  AND (%(project)s::uuid IS NULL OR own.project_id = %(project)s)
ORDER BY t.at, t.id
"""


def statement_lines(
    *, tenant_id: UUID, month: Period, project: Project | None = None
) -> Iterator[StatementLine]:
    """The charges and corrections that were booked in the month, in order.

    A charge is booked when a run ends, in whichever budget pays it.
    """
    named: dict[str, str | datetime | None] = {
        "tenant": str(tenant_id),
        "starts": month.first_second,
        "ends": month.last_second,
        "project": str(project.id) if project else None,
    }
    with connection.cursor() as cursor:
        cursor.execute(_LINES, named)
        for row in cursor.fetchall():
            yield StatementLine(*row)


GROUPS = ("project", "person", "tier", "gpu_class", "campaign")


@dataclass(frozen=True, slots=True)
class Statement:
    """A month's lines, and their sums by project, person, tier, class and campaign."""

    month: Period
    project: Project | None
    lines: tuple[StatementLine, ...]
    totals: Totals
    by: Mapping[str, Mapping[str, Totals]]
    closed: ClosedMonth | None
    currency: str

    def groups(self, name: str) -> list[tuple[str, Totals]]:
        """The sums of one grouping, the largest first."""
        found = self.by[name].items()
        return sorted(found, key=lambda each: (-each[1].amount, each[0]))


def statement_of(*, tenant_id: UUID, month: Period, project: Project | None = None) -> Statement:
    """The statement of a month, of the tenant or of one project."""
    totals, lines = Totals(), []
    by: dict[str, dict[str, Totals]] = {name: {} for name in GROUPS}
    for line in statement_lines(tenant_id=tenant_id, month=month, project=project):
        totals.add(line)
        lines.append(line)
        for name in GROUPS:
            by[name].setdefault(getattr(line, name), Totals()).add(line)
    closed = ClosedMonth.objects.filter(tenant_id=tenant_id, starts=month.starts).first()
    currency = lines[0].currency if lines else "EUR"
    return Statement(month, project, tuple(lines), totals, by, closed, currency)
