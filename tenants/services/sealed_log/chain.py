"""Hash chains of seals, which show if a row was changed, removed, reordered or inserted later.

Rows are written with the work, without a lock. A task seals them in batches, in one chain per
tenant and one for the platform. A seal lists its rows and contains a SHA-256 over the previous seal
and over each row, so that archived rows can still be verified. The owner of the database could
rebuild a whole chain. Therefore the sealing process logs the head of each chain, and
`manage.py audit_verify --heads FILE` stores it outside.
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from types import MappingProxyType
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q

from tenants.models import AuditSeal

logger = logging.getLogger(__name__)

# A row gets its number when it is written and becomes visible when its transaction commits, which
# takes less than this (docs/configuration.md). A row that appears later was inserted later.
LATE_ROW_SECONDS = 15 * 60
SEAL_BATCH = 10_000
# An inserted row can have any number.
MIN_KEY = -(2**63)
MARK_BYTES = 8
GENESIS = bytes(32)
TIME = "to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"


@dataclass(frozen=True, slots=True)
class Source:
    """A table with a hash chain. `tenant` and `row` are SQL; `row` has all protected columns."""

    name: str
    table: str
    key: str
    tenant: str
    row: str


ENTRIES = Source(
    name="audit",
    table="tenants_auditentry",
    key="id",
    tenant="tenant_id",
    row="jsonb_build_array(id, tenant_id, " + TIME.format("at") + ", actor_id, action,"
    " object_kind, object_id, detail)::text",
)


@dataclass(frozen=True, slots=True)
class Head:
    """The last seal of a chain."""

    number: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Chain:
    """The result of reading a chain: its head and its faults."""

    source: str
    tenant_id: UUID | None
    head: Head
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Archived:
    """The archived part of a chain: the rows up to seal `last_seal`, as SHA-256 by key if known."""

    last_seal: int
    rows: Mapping[int, bytes] | None


NOTHING_ARCHIVED = Archived(0, None)
Row = tuple[UUID | None, int, str]


def chain_seal(source: Source, *, now: datetime) -> int:
    """Seals unsealed rows, the oldest first; returns how many."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(1, hashtext('audit_seal'))")
        rows = _unsealed(source, SEAL_BATCH)
        for tenant_id, found in groupby(rows, key=lambda row: row[0]):
            _seal(source, tenant_id, [(key, text) for _, key, text in found], now)
    return len(rows)


def chain_verify(
    source: Source, archived: Mapping[UUID | None, Archived] = MappingProxyType({})
) -> Iterator[Chain]:
    """Reads every chain of the source and yields it with its faults.

    Rows that are `archived` are compared with their files, or not at all without the files.
    """
    floor = _settled_key(source)
    inserted: dict[UUID | None, list[int]] = {}
    for tenant_id, key, _ in _unsealed(source, None):
        if key <= floor:
            inserted.setdefault(tenant_id, []).append(key)
    seals = AuditSeal.objects.filter(source=source.name).order_by("tenant_id", "number")
    for tenant_id, found in groupby(seals.iterator(chunk_size=50), key=lambda seal: seal.tenant_id):
        away = archived.get(tenant_id, NOTHING_ARCHIVED)
        yield _chain(source, tenant_id, found, inserted.pop(tenant_id, []), away)
    for tenant_id, keys in inserted.items():
        yield Chain(source.name, tenant_id, Head(0, GENESIS), tuple(map(_inserted_text, keys)))


def heads_compare(before: Mapping[str, str], chains: Sequence[Chain]) -> list[str]:
    """The faults by comparison with heads that were kept outside; `before` is from `heads_text`."""
    now = {chain_name(chain): chain for chain in chains}
    wrong = []
    for name, text in before.items():
        number, _, digest = text.partition(":")
        chain = now.get(name)
        if chain is None or chain.head.number < int(number):
            wrong.append(f"{name}: its end is gone, there was a seal {number}")
        elif _digest_of(chain, int(number)) != digest:
            wrong.append(f"{name}: seal {number} differs from the one before")
    return wrong


def heads_text(chains: Sequence[Chain]) -> dict[str, str]:
    """The heads as text, to be kept where the database's owner cannot change them."""
    return {chain_name(chain): f"{chain.head.number}:{chain.head.digest.hex()}" for chain in chains}


def chain_name(chain: Chain) -> str:
    """`audit/platform`, or `audit/` and the tenant's id."""
    return f"{chain.source}/{chain.tenant_id or 'platform'}"


def _digest_of(chain: Chain, number: int) -> str:
    here = Q(source=chain.source, tenant_id=chain.tenant_id, number=number)
    found = AuditSeal.objects.filter(here).first()
    return bytes(found.digest).hex() if found else ""


def _settled_key(source: Source) -> int:
    """The highest number up to which no new row can appear."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(max(through), 0) FROM tenants_auditseal WHERE source = %s AND sealed"
            " <= (SELECT max(sealed) FROM tenants_auditseal WHERE source = %s)"
            "   - %s * interval '1 second'",
            [source.name, source.name, LATE_ROW_SECONDS],
        )
        return int(cursor.fetchone()[0])


def _unsealed(source: Source, most: int | None) -> list[Row]:
    """Rows without a seal: all of them, or the first `most` above the settled key."""
    floor = _settled_key(source) if most is not None else MIN_KEY
    with connection.cursor() as cursor:
        cursor.execute(
            # All parts are constants of this module.
            f"SELECT * FROM (SELECT {source.tenant} AS tenant, {source.key} AS key,"  # noqa: S608
            f" {source.row} AS text FROM {source.table} WHERE {source.key} > %s AND {source.key}"
            " NOT IN (SELECT unnest(entries) FROM tenants_auditseal"
            "  WHERE source = %s AND through > %s)"
            f" ORDER BY {source.key} LIMIT %s) found ORDER BY tenant NULLS FIRST, key",
            [floor, source.name, floor, most],
        )
        found: list[Row] = cursor.fetchall()
        return found


def _seal(source: Source, tenant_id: UUID | None, rows: Sequence[tuple[int, str]], now: datetime) -> None:
    last = (
        AuditSeal.objects.filter(Q(source=source.name, tenant_id=tenant_id))
        .order_by("-number")
        .values_list("number", "digest")
        .first()
    )
    number, previous = (last[0], bytes(last[1])) if last else (0, GENESIS)
    keys, digests = [key for key, _ in rows], [row_sha256(text) for _, text in rows]
    seal = AuditSeal.objects.create(
        source=source.name,
        tenant_id=tenant_id,
        number=number + 1,
        entries=keys,
        marks=b"".join(digest[:MARK_BYTES] for digest in digests),
        previous=previous,
        digest=_seal_digest(source, tenant_id, number + 1, previous, keys, digests),
        through=max(keys),
        sealed=now,
    )
    logger.info("Sealed %s/%s %d: %s", source.name, tenant_id or "platform", seal.number, seal.digest.hex())


def _seal_digest(
    source: Source,
    tenant_id: UUID | None,
    number: int,
    previous: bytes,
    keys: Sequence[int],
    digests: Sequence[bytes],
) -> bytes:
    found = hashlib.sha256(f"{source.name}\n{tenant_id}\n{number}\n".encode())
    found.update(previous)
    for key, digest in zip(keys, digests, strict=True):
        found.update(f"{key}\n".encode())
        found.update(digest)
    return found.digest()


def _chain(
    source: Source,
    tenant_id: UUID | None,
    seals: Iterator[AuditSeal],
    inserted: Sequence[int],
    away: Archived,
) -> Chain:
    faults, head = [], Head(0, GENESIS)
    for seal in seals:
        if seal.number != head.number + 1:
            faults.append(f"seals {head.number + 1} to {seal.number - 1} are gone")
        elif bytes(seal.previous) != head.digest:
            faults.append(f"seal {seal.number} does not follow the previous one")
        if seal.number > away.last_seal:
            faults += _seal_faults(seal, _rows_here(source, seal), source)
        elif away.rows is not None:
            faults += _seal_faults(seal, away.rows, source)
        head = Head(seal.number, bytes(seal.digest))
    return Chain(source.name, tenant_id, head, (*faults, *map(_inserted_text, inserted)))


def _rows_here(source: Source, seal: AuditSeal) -> dict[int, bytes]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {source.key}, {source.row} FROM {source.table}"  # noqa: S608 (constants)
            f" WHERE {source.key} = ANY(%s) AND {source.tenant} IS NOT DISTINCT FROM %s::uuid",
            [seal.entries, seal.tenant_id],
        )
        return {key: row_sha256(text) for key, text in cursor.fetchall()}


def _seal_faults(seal: AuditSeal, found: Mapping[int, bytes], source: Source) -> list[str]:
    digests = [found.get(key, GENESIS) for key in seal.entries]
    over = _seal_digest(source, seal.tenant_id, seal.number, bytes(seal.previous), seal.entries, digests)
    if over == bytes(seal.digest):
        return []
    marks = bytes(seal.marks)
    faults = []
    for place, (key, digest) in enumerate(zip(seal.entries, digests, strict=True)):
        if key not in found:
            faults.append(f"row {key} is gone")
        elif digest[:MARK_BYTES] != marks[place * MARK_BYTES : (place + 1) * MARK_BYTES]:
            faults.append(f"row {key} was changed")
    return faults or [f"seal {seal.number} was changed"]


def _inserted_text(key: int) -> str:
    return f"row {key} was inserted later"


def row_sha256(text: str) -> bytes:
    """The SHA-256 of a row as a seal contains it."""
    return hashlib.sha256(text.encode()).digest()
