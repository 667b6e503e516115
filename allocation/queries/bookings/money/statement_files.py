"""The files of a statement, and what their address names."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from tempfile import SpooledTemporaryFile
from typing import IO

from django.conf import settings
from django.http import FileResponse

from allocation.queries.bookings.money.held_use import HeldUse, booking_uses_of, held_use_of
from allocation.queries.bookings.money.statements import (
    LAB,
    StatementOf,
    statement_lines,
    statement_of,
)
from allocation.words.refusals import refusal_text
from billing.focus import StatementLine, Uses, focus_csv, statement_csv
from billing.rules import Period, money_text, month_of, period_text
from billing.web.statement_pdf import statement_pdf
from tenants.access import Actor, require_tenant_admin
from tenants.lab_queries import labs_led, projects_seen
from tenants.models import Lab, Project, Tenant
from tenants.platform.errors import invalid, missing

Progress = Callable[[int], None]
"""Is called with the number of lines that are written, once for each `PROGRESS_LINES`."""
PROGRESS_LINES = 2_000

# Larger files are written to disk.
IN_MEMORY = 4 * 1024 * 1024
EARLIEST = date(2000, 1, 1)
LATEST = date(2200, 1, 1)


@dataclass(frozen=True, slots=True)
class StatementFile:
    """A file to save. `content` is at its beginning; a large one is on disk and not in memory."""

    name: str
    content_type: str
    content: IO[bytes]

    def response(self) -> FileResponse:
        """The file as an answer that a browser saves. Its length makes browsers show progress."""
        response = FileResponse(
            self.content, as_attachment=True, filename=self.name, content_type=self.content_type
        )
        response["Content-Length"] = str(self.size)
        return response

    @property
    def size(self) -> int:
        """Its length in bytes."""
        place = self.content.seek(0, os.SEEK_END)
        self.content.seek(0)
        return place


def statement_file_make(
    of: StatementOf, tenant: Tenant, kind: str, progress: Progress | None = None
) -> StatementFile:
    """The statement as a file of a kind in `FILES`."""
    content_type, write = FILES[kind]
    owner = of.owner.replace(":", "-") or tenant.slug
    with ExitStack() as closes:
        content = closes.enter_context(SpooledTemporaryFile(max_size=IN_MEMORY))
        write(of, tenant, content, progress)
        # From here on the response closes it.
        closes.pop_all()
    name = f"statement-{owner}-{_days_name(of.month)}.{kind}"
    return StatementFile(name, content_type, content)


def _days_name(days: Period) -> str:
    """`2026-11` for a month, else the first day and the day after the last one."""
    if days == month_of(days.starts):
        return f"{days.starts:%Y-%m}"
    return f"{days.starts}-to-{days.ends}"


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
        raise invalid("bad_month", refusal_text("bad_month"), "month")
    return month_of(first)


def statement_read(actor: Actor, month: Period, owner: str) -> StatementOf:
    """The statement of a project, of a lab as `lab:physics`, or of all projects (tenant admins; for
    others their first project).

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    if owner.startswith(LAB):
        return StatementOf(actor.tenant_id, month, lab=lab_read(actor, owner.removeprefix(LAB)))
    return StatementOf(actor.tenant_id, month, project_read(actor, owner))


def lab_read(actor: Actor, slug: str, param: str = "lab") -> Lab:
    """The lab of a statement, which its leads and tenant admins may see.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    lab = Lab.objects.filter(tenant_id=actor.tenant_id, slug=slug).first()
    if lab is None or lab.id not in labs_led(actor):
        # Others do not learn which labs there are.
        require_tenant_admin(actor)
    if lab is None:
        raise missing("lab", param)
    return lab


def project_read(actor: Actor, slug: str) -> Project | None:
    """The project of a statement: one of the person or of a lab that they lead. None for the whole
    organisation, which its admins may see.

    Raises:
        Refused: `not_found`.
    """
    if not slug and actor.is_tenant_admin:
        return None
    seen = projects_seen(actor, labs_led(actor))
    project = (seen.filter(slug=slug) if slug else seen).first()
    if project is None:
        raise missing("project", "project" if slug else None)
    return project


def _lines(of: StatementOf, progress: Progress | None) -> Iterator[StatementLine]:
    for number, line in enumerate(statement_lines(of), 1):
        yield line
        if progress is not None and number % PROGRESS_LINES == 0:
            progress(number)


def _as_csv(of: StatementOf, _: Tenant, file: IO[bytes], progress: Progress | None) -> None:
    for row in statement_csv(_lines(of, progress), _uses(of)):
        file.write(row.encode())


def _as_focus(of: StatementOf, tenant: Tenant, file: IO[bytes], progress: Progress | None) -> None:
    owner = (tenant.slug, tenant.name)
    for row in focus_csv(_lines(of, progress), owner, of.month.starts, _uses(of)):
        file.write(row.encode())


def _as_parquet(of: StatementOf, tenant: Tenant, file: IO[bytes], progress: Progress | None) -> None:
    # The library takes 60 MB, which processes that write no such file do without.
    from billing.focus.parquet import focus_parquet  # noqa: PLC0415

    owner = (tenant.slug, tenant.name)
    focus_parquet(_lines(of, progress), owner, of.month.starts, _uses(of), file)


def _as_pdf(of: StatementOf, tenant: Tenant, file: IO[bytes], progress: Progress | None) -> None:
    statement, use = statement_of(of), held_use_of(of, settings.CARBON_GRAMS_PER_KWH, None)
    owner = of.name or "all projects"
    closed = statement.closed
    state = f"closed on {closed.closed_at:%Y-%m-%d}" if closed else "open: lines can be added"
    facts = (f"{tenant.name}, {owner}", f"{period_text(of.month)}, in UTC, {state}")
    title = f"Statement {_days_name(of.month)}"
    notes = _use_notes(use, statement.currency)
    statement_pdf(title, facts, _lines(of, progress), statement.currency, file, notes)


def _use_notes(use: HeldUse, currency: str) -> tuple[str, ...]:
    if not use.hours:
        return ()
    co2 = "" if use.co2_kg is None else f", {use.co2_kg:,.1f} kg of CO2"
    co2 += "" if use.energy_cost is None else f", {money_text(use.energy_cost, currency)} of electricity"
    return (
        f"Reserved but unused: {use.unused_hours:,.1f} of {use.hours:,.1f} measured GPU-hours,"
        f" {money_text(use.unused_cost, currency)} of the charges.",
        f"Energy: {use.kwh:,.1f} kWh{co2}.",
    )


def _uses(of: StatementOf) -> Uses:
    return booking_uses_of(of, settings.CARBON_GRAMS_PER_KWH)


PARQUET = "application/vnd.apache.parquet"
Write = Callable[[StatementOf, Tenant, IO[bytes], Progress | None], None]
FILES: dict[str, tuple[str, Write]] = {
    "csv": ("text/csv; charset=utf-8", _as_csv),
    "focus.csv": ("text/csv; charset=utf-8", _as_focus),
    "focus.parquet": (PARQUET, _as_parquet),
    "pdf": ("application/pdf", _as_pdf),
}
