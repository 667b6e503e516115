"""Files of large statements: people ask for them, a worker makes them and says how far it is."""

import zlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import IO, ClassVar
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Greatest
from django.http import StreamingHttpResponse
from rest_framework import serializers

from allocation.features.exports.models import StatementExport
from allocation.models import FileFormat
from allocation.queries.bookings.money.statement_files import (
    FILES,
    month_read,
    project_read,
    statement_file_make,
)
from allocation.queries.bookings.money.statements import StatementOf, statement_of
from allocation.words.refusals import refusal_text
from billing.rules import month_of
from tenants.access import Actor, require_tenant_admin
from tenants.failures import FailureLog
from tenants.lab_queries import labs_led, projects_seen
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.terms import term, terms

TASK = "allocation.exports"
QUEUE = "exports"
DIRECT_LINES = 5_000
"""A file of so many lines is made while its person waits, within a second as PDF."""
CLAIM = timedelta(minutes=1)
KEPT = timedelta(days=1)
MOST_ATTEMPTS = 3
MOST_OPEN = 5
_CHUNK = 1024 * 1024


@terms
class ExportTerms:
    """A month's statement, of one project or of the whole organisation (tenant admins)."""

    body_name: ClassVar[str] = "ExportNew"

    month: str = term(says="`2026-11`.", max_length=7)
    project: str = term(says="Left out: all projects.", default="", max_length=40)
    file: str = term(body=serializers.ChoiceField(FileFormat.values))


class _ClaimLost(Exception):
    """Another worker makes the file, or nobody wants it any more."""


def exports_seen(actor: Actor) -> QuerySet[StatementExport]:
    """The actor's own files, without their contents, as far as the actor may still see them."""
    rows = StatementExport.objects.filter(tenant_id=actor.tenant_id, user_id=actor.user_id)
    if not actor.is_tenant_admin:
        rows = rows.filter(project__in=projects_seen(actor, labs_led(actor)))
    return rows.select_related("project").defer("content")


def export_seen(actor: Actor, export_id: UUID) -> StatementExport:
    """One of `exports_seen`. Raises Refused `not_found`."""
    row = exports_seen(actor).filter(id=export_id).first()
    if row is None:
        raise missing("file")
    return row


def export_request(*, actor: Actor, terms: ExportTerms, now: datetime) -> StatementExport:
    """Asks for the file of a month's statement.

    One that is being made is returned as it is; one that is ready is made anew.

    Raises:
        Refused: `not_allowed`, `not_found`, `bad_month`, `unknown_choice` or `too_many_exports`.
    """
    project = project_read(actor, terms.project) if terms.project else None
    month, kind = month_read(terms.month).starts, terms.file
    if project is None:
        require_tenant_admin(actor)
    if kind not in FILES:
        raise invalid("unknown_choice", refusal_text("unknown_file", files=", ".join(FILES)), "file")
    own = StatementExport.objects.filter(tenant_id=actor.tenant_id, user_id=actor.user_id)
    row = own.filter(project=project, month=month, kind=kind).defer("content").first()
    if row is not None and row.finished_at is None:
        return row
    if own.filter(finished_at=None).count() >= MOST_OPEN:
        sentence = refusal_text("too_many_exports", most_open=MOST_OPEN)
        raise invalid("too_many_exports", sentence, "file")
    if row is not None:
        row.delete()
    lines = statement_of(StatementOf(actor.tenant_id, month_of(month), project)).totals.lines
    made, is_new = StatementExport.objects.get_or_create(
        tenant_id=actor.tenant_id,
        user_id=actor.user_id,
        project=project,
        month=month,
        kind=kind,
        defaults={"created": now, "lines": lines},
    )
    if is_new:
        task_request(TASK)
    return made


def export_response(row: StatementExport) -> StreamingHttpResponse:
    """The file, as an answer that a browser saves.

    Raises:
        Refused: `not_ready`.
    """
    if row.state == "failed":
        raise Refused("not_ready", refusal_text("export_failed"), "conflict")
    if row.content is None:
        sentence = refusal_text("export_unfinished", lines_done=f"{row.lines_done:,}", lines=f"{row.lines:,}")
        raise Refused("not_ready", sentence, "conflict")
    content_type, _ = FILES[row.kind]
    response = StreamingHttpResponse(_unpacked(bytes(row.content)), content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{row.name}"'
    response["Content-Length"] = str(row.size)
    return response


def exports_make(clock: Callable[[], datetime]) -> int:
    """Makes the files that are asked for, the oldest first; returns how many. For system programs.

    Outside a transaction, so that others see each progress.
    """
    now = clock()
    StatementExport.objects.filter(created__lt=now - KEPT).delete()
    tries = StatementExport.objects.filter(_claimable(now), attempts__gte=MOST_ATTEMPTS)
    tries.update(finished_at=now)
    failures = FailureLog(QUEUE, now)
    made: list[UUID] = []
    while (row := _claim(clock())) is not None:
        failures.handle(row.id, partial(_make_claimed, row, made, clock), tenant_id=row.tenant_id)
    return len(made)


def _make_claimed(row: StatementExport, made: list[UUID], clock: Callable[[], datetime]) -> None:
    """Makes a file and adds its id, unless another worker has claimed it meanwhile."""
    try:
        _make(row, clock)
    except _ClaimLost:
        return
    made.append(row.id)


def _claimable(now: datetime) -> Q:
    return Q(finished_at=None) & (Q(claimed_until=None) | Q(claimed_until__lt=now))


def _claim(now: datetime) -> StatementExport | None:
    with transaction.atomic():
        rows = StatementExport.objects.select_for_update(skip_locked=True, of=("self",))
        open_rows = rows.filter(_claimable(now), attempts__lt=MOST_ATTEMPTS)
        row = open_rows.select_related("tenant", "project").defer("content").first()
        if row is None:
            return None
        row.attempts += 1
        row.lines_done = 0
        row.claimed_until = now + CLAIM
        row.save(update_fields=["attempts", "lines_done", "claimed_until"])
        return row


def _make(row: StatementExport, clock: Callable[[], datetime]) -> None:
    def said(**facts: object) -> None:
        mine = StatementExport.objects.filter(id=row.id, attempts=row.attempts, finished_at=None)
        if not mine.update(claimed_until=clock() + CLAIM, **facts):
            raise _ClaimLost

    def progress(lines: int) -> None:
        # An open month gets lines while its file is made.
        said(lines_done=lines, lines=Greatest(F("lines"), lines))

    of = StatementOf(row.tenant_id, month_of(row.month), row.project)
    file = statement_file_make(of, row.tenant, row.kind, progress)
    with file.content as content:
        size, packed = file.size, _packed(content)
    said(lines_done=F("lines"), name=file.name, size=size, content=packed, finished_at=clock())


def _packed(content: IO[bytes]) -> bytes:
    # Statements shrink to a tenth; PDF and Parquet are compressed already.
    packer, parts = zlib.compressobj(level=1), []
    while chunk := content.read(_CHUNK):
        parts.append(packer.compress(chunk))
    return b"".join([*parts, packer.flush()])


def _unpacked(packed: bytes) -> Iterator[bytes]:
    unpacker = zlib.decompressobj()
    while packed:
        yield unpacker.decompress(packed, _CHUNK)
        packed = unpacker.unconsumed_tail
    yield unpacker.flush()
