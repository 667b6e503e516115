"""The files of a statement, and what their address names."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

from django.http import HttpResponse

from allocation.queries.bookings.statements import StatementOf, statement_lines, statement_of
from billing.focus import focus_csv, statement_csv
from billing.rules import Period, month_of, period_text
from billing.web.statement_pdf import LONGEST, statement_pdf
from tenants.access import Actor, access_project
from tenants.models import Project, Tenant
from tenants.platform.errors import Refused, invalid, missing

EARLIEST = date(2000, 1, 1)
LATEST = date(2200, 1, 1)


@dataclass(frozen=True, slots=True)
class StatementFile:
    """A file to save."""

    name: str
    content_type: str
    content: bytes

    def response(self) -> HttpResponse:
        """The file as an answer that a browser saves."""
        response = HttpResponse(self.content, content_type=self.content_type)
        response["Content-Disposition"] = f'attachment; filename="{self.name}"'
        return response


def statement_file_make(of: StatementOf, tenant: Tenant, kind: str) -> StatementFile:
    """The statement as a file of a kind in `FILES`.

    Raises:
        Refused: `statement_too_long` for a PDF of too many lines.
    """
    content_type, write = FILES[kind]
    owner = of.project.slug if of.project else tenant.slug
    name = f"statement-{owner}-{of.month.starts:%Y-%m}.{kind}"
    return StatementFile(name, content_type, write(of, tenant))


def month_read(text: str) -> Period:
    """The month of `2026-11`.

    Raises:
        Refused: `bad_month`.
    """
    try:
        first = date.fromisoformat(f"{text}-01")
    except ValueError:
        first = date.min
    if not EARLIEST <= first < LATEST:
        raise invalid("bad_month", "Write the month as 2026-11.", "month")
    return month_of(first)


def project_read(actor: Actor, slug: str) -> Project | None:
    """The project of a statement; None for the whole organisation, which its admins may see.

    Raises:
        Refused: `not_found`.
    """
    if slug:
        return access_project(actor, slug, "project")
    if actor.is_tenant_admin:
        return None
    own = Project.objects.filter(id__in=list(actor.roles)).order_by("name").first()
    if own is None:
        raise missing("project")
    return own


def _as_csv(of: StatementOf, _: Tenant) -> bytes:
    return "".join(statement_csv(statement_lines(of))).encode()


def _as_focus(of: StatementOf, tenant: Tenant) -> bytes:
    rows = focus_csv(statement_lines(of), (tenant.slug, tenant.name), of.month.starts)
    return "".join(rows).encode()


def _as_pdf(of: StatementOf, tenant: Tenant) -> bytes:
    statement = statement_of(of)
    if statement.totals.lines > LONGEST:
        raise Refused(
            "statement_too_long",
            f"This statement has {statement.totals.lines:,} lines, and a PDF at most {LONGEST:,}."
            " Choose a project, or the CSV file, which has all lines.",
        )
    owner = of.project.name if of.project else "all projects"
    closed = statement.closed
    state = f"closed on {closed.closed_at:%Y-%m-%d}" if closed else "open: lines can be added"
    facts = (f"{tenant.name}, {owner}", f"{period_text(of.month)}, months in UTC, {state}")
    return statement_pdf(f"Statement {of.month.starts:%Y-%m}", facts, statement_lines(of))


FILES: dict[str, tuple[str, Callable[[StatementOf, Tenant], bytes]]] = {
    "csv": ("text/csv; charset=utf-8", _as_csv),
    "focus.csv": ("text/csv; charset=utf-8", _as_focus),
    "pdf": ("application/pdf", _as_pdf),
}
