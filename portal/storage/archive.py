"""Moves old rows out of the database into files that can still be verified.

Decisions keep their row: only the bytes of the solver's input and plan move, and the row keeps
their SHA-256. A keyframe moves with all of its deltas. Log entries move by whole seals: the seals
stay, and `audit_verify --archive` reads the files instead of the rows. Histories and occupancies of
ended bookings move by booking. A file is complete on disk before any row is removed. A run that is
killed in between leaves the rows in both places, and the next run writes the file again.

It runs as the owner of the tables. The triggers that protect rows let only the owner remove these,
and only while `portal.archiving` is on.
"""

import base64
import gzip
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from allocation.models import Decision
from allocation.services.decide.decision_log import decision_chain
from tenants.models import ArchiveFile
from tenants.services.sealed_log.chain import ENTRIES, Archived, row_sha256

# Rows per file and transaction.
DECISIONS_AT_ONCE = 50
BOOKINGS_AT_ONCE = 2_000
SEALS_AT_ONCE = 1_000
# A keyframe and its deltas are moved together, when the last of them is old.
_OLD_DECISIONS = """
WITH old AS (
  SELECT id, coalesce(keyframe_id, id) AS keyframe FROM allocation_decision one
  WHERE at < %(before)s AND archived_in = '' AND NOT EXISTS (
    SELECT FROM allocation_decision later
    WHERE later.at >= %(before)s
      AND later.keyframe_id = coalesce(one.keyframe_id, one.id))
  ORDER BY id LIMIT %(most)s)
SELECT id, at, snapshot, plan FROM allocation_decision
WHERE archived_in = '' AND (
  id IN (SELECT keyframe FROM old) OR keyframe_id IN (SELECT keyframe FROM old))
ORDER BY id
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """The time before which each kind is archived; None keeps it in the database."""

    decisions: datetime | None
    histories: datetime | None
    log: datetime | None


def archive_write(folder: Path, limits: Limits, now: datetime) -> Iterator[ArchiveFile]:
    """Moves all rows that are older than their limit into files in `folder`; yields each file."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds = (
        (_decisions, limits.decisions),
        (_histories, limits.histories),
        (_log, limits.log),
    )
    for move, before in kinds:
        while before is not None and (file := move(folder, before, now)) is not None:
            yield file


def archive_read(folder: Path, file: ArchiveFile) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file. Raises ArchiveBroken if the file is missing or was changed."""
    path = folder / file.name
    if not path.exists():
        raise ArchiveBroken(f"{file.name} is not in {folder}")
    if _sha256(path) != bytes(file.sha256):
        raise ArchiveBroken(f"{file.name} was changed")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def log_archived(folder: Path | None) -> dict[UUID | None, Archived]:
    """The archived part of each chain of the log, with its rows if the `folder` is given.

    Raises ArchiveBroken.
    """
    found: dict[UUID | None, Archived] = {}
    for file in ArchiveFile.objects.filter(kind="log").order_by("tenant_id", "last_seal"):
        rows = dict(found[file.tenant_id].rows or {}) if file.tenant_id in found else {}
        if folder is not None:
            rows |= {row["key"]: row_sha256(row["row"]) for row in archive_read(folder, file)}
        found[file.tenant_id] = Archived(file.last_seal or 0, None if folder is None else rows)
    return found


def chain_archived(folder: Path, decision: Decision) -> list[Decision]:
    """The decision, after those that it is rebuilt from, with their bytes from the archive.

    Raises ArchiveBroken.
    """
    file = ArchiveFile.objects.get(name=decision.archived_in)
    chain = {each.id: each for each in decision_chain(decision)}
    for row in archive_read(folder, file):
        if (found := chain.get(row["id"])) is not None:
            found.snapshot = base64.b64decode(row["snapshot"])
            found.plan = base64.b64decode(row["plan"])
    if missing := [each.id for each in chain.values() if not each.snapshot]:
        raise ArchiveBroken(f"{file.name} has no decision {missing[0]}")
    return list(chain.values())


class ArchiveBroken(Exception):
    """A file of the archive is missing or was changed."""


def _decisions(folder: Path, before: datetime, now: datetime) -> ArchiveFile | None:
    with _moving() as ready:
        rows = _rows(_OLD_DECISIONS, {"before": before, "most": DECISIONS_AT_ONCE})
        if not ready or not rows:
            return None
        keys = [row["id"] for row in rows]
        file = _file(folder, "decisions", f"{keys[0]}-{keys[-1]}", rows, now)
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE allocation_decision SET archived_in = %s,"
                " snapshot_archived = encode(sha256(snapshot), 'hex'),"
                " plan_archived = encode(sha256(plan), 'hex'), snapshot = '', plan = ''"
                " WHERE id = ANY(%s)",
                [file.name, keys],
            )
        return file


def _histories(folder: Path, before: datetime, now: datetime) -> ArchiveFile | None:
    with _moving() as ready:
        over = _rows(
            "SELECT id FROM allocation_booking booking WHERE ended_at < %s AND EXISTS ("
            "SELECT FROM allocation_bookingevent line WHERE line.booking_id = booking.id"
            " AND line.tenant_id = booking.tenant_id) ORDER BY ended_at, id LIMIT %s",
            [before, BOOKINGS_AT_ONCE],
        )
        if not ready or not over:
            return None
        bookings = [row["id"] for row in over]
        lines = _rows(
            "SELECT 'event' AS what, * FROM allocation_bookingevent WHERE booking_id = ANY(%s) ORDER BY id",
            [bookings],
        )
        places = _rows(
            "SELECT 'occupancy' AS what, occupancy.*, allocation.booking_id"
            " FROM allocation_occupancy occupancy"
            " JOIN allocation_allocation allocation ON allocation.id = occupancy.allocation_id"
            " WHERE allocation.booking_id = ANY(%s) AND occupancy.closed IS NOT NULL"
            " ORDER BY occupancy.id",
            [bookings],
        )
        span = f"{lines[0]['id']}-{lines[-1]['id']}"
        file = _file(folder, "histories", span, [*lines, *places], now)
        with connection.cursor() as cursor:
            cursor.execute(
                "DELETE FROM allocation_bookingevent WHERE id = ANY(%s)",
                [[row["id"] for row in lines]],
            )
            cursor.execute(
                "DELETE FROM allocation_occupancy WHERE id = ANY(%s)",
                [[row["id"] for row in places]],
            )
        return file


def _log(folder: Path, before: datetime, now: datetime) -> ArchiveFile | None:
    """Archives the oldest seals of one chain, with their rows as they were sealed."""
    with _moving() as ready:
        seals = _rows(
            "SELECT seal.tenant_id, seal.number, seal.entries FROM tenants_auditseal seal"
            " WHERE seal.source = %s AND seal.sealed < %s AND seal.number > coalesce(("
            "   SELECT max(file.last_seal) FROM tenants_archivefile file WHERE file.kind = 'log'"
            "   AND file.tenant_id IS NOT DISTINCT FROM seal.tenant_id), 0)"
            " ORDER BY seal.tenant_id NULLS FIRST, seal.number LIMIT %s",
            [ENTRIES.name, before, SEALS_AT_ONCE],
        )
        if not ready or not seals:
            return None
        tenant_id: UUID | None = seals[0]["tenant_id"]
        mine = [seal for seal in seals if seal["tenant_id"] == tenant_id]
        keys = [key for seal in mine for key in seal["entries"]]
        rows = _rows(
            f"SELECT {ENTRIES.key} AS key, {ENTRIES.row} AS row FROM {ENTRIES.table}"  # noqa: S608
            f" WHERE {ENTRIES.key} = ANY(%s) ORDER BY {ENTRIES.key}",
            [keys],
        )
        last = mine[-1]["number"]
        span = f"{tenant_id or 'platform'}-{mine[0]['number']}-{last}"
        file = _file(folder, "log", span, rows, now, tenant_id=tenant_id, last_seal=last)
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM tenants_auditentry WHERE id = ANY(%s)", [keys])
        return file


@contextmanager
def _moving() -> Iterator[bool]:
    """A transaction in which the owner may remove rows; yields False if another one archives."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL portal.archiving = 'on'")
        cursor.execute("SELECT pg_try_advisory_xact_lock(1, hashtext('archive'))")
        yield bool(cursor.fetchone()[0])


def _rows(query: str, params: Sequence[Any] | Mapping[str, Any]) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _file(
    folder: Path,
    kind: str,
    span: str,
    rows: Sequence[Mapping[str, Any]],
    now: datetime,
    **fields: Any,  # noqa: ANN401 (of ArchiveFile)
) -> ArchiveFile:
    """Writes a file atomically, and its entry in the list of files."""
    path = folder / f"{kind}-{span}.jsonl.gz"
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as raw:
        # Without a timestamp, the same rows give the same bytes.
        with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
            for row in rows:
                packed.write(json.dumps(row, default=_plain).encode() + b"\n")
        raw.flush()
        os.fsync(raw.fileno())
    unfinished.replace(path)
    _folder_sync(folder)
    return ArchiveFile.objects.create(
        kind=kind, name=path.name, rows=len(rows), sha256=_sha256(path), written=now, **fields
    )


def _folder_sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _plain(value: object) -> str:
    match value:
        case bytes() | memoryview():
            return base64.b64encode(value).decode()
        case datetime():
            return value.isoformat()
        case _:
            return str(value)


def _sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
