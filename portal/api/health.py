"""Probes: whether the process answers, and whether its stores accept writes."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.models import PortalMode
from allocation.queries.fleet.portal_modes import backup_age, modes_in_force
from allocation.services.decide.self_check import failed_messages_count, self_check_read
from allocation.services.record.liveness import programs_silent
from tenants.platform.stores.redis_servers import redis_client

PROBE = "readyz"


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """200 as long as the process answers."""
    return _answer({"status": "ok"}, 200)


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """503 if the database accepts no writes, or lacks a migration of this version.

    200 and `degraded` if a Redis server accepts no writes, a program does not do its work or failed
    on a message, or the oldest request has no decision for too long: pages and requests are
    answered, but decisions and documents for nodes come late. Each store is written to, because a
    full or read-only store still answers a ping. The answer names each store and program.
    """
    now, database = timezone.now(), _database_writes()
    servers = {
        "redis": _redis_writes(settings.CACHE_REDIS_URL),
        "agents_redis": _redis_writes(settings.AGENTS_REDIS_URL),
    }
    work = {"programs": _programs(now), "decisions": _decisions(now) if database else "unknown"}
    work["messages"] = _messages() if database else "unknown"
    checks = {"database": database, **servers}
    words = {name: "ok" if fine else "no write" for name, fine in checks.items()}
    missing = migrations_missing() if database else 0
    words["migrations"] = f"{missing} not applied" if missing else "ok" if database else "unknown"
    if not database or missing:
        return _answer({"status": "not ready", **words, **work}, 503)
    is_fine = all(servers.values()) and set(work.values()) == {"ok"}
    return _answer({"status": "ok" if is_fine else "degraded", **words, **work}, 200)


@require_safe
def statusz(request: HttpRequest) -> JsonResponse:
    """200 with figures that must be 0, for monitoring; null is unknown. Names nobody."""
    now = timezone.now()
    return _answer({**self_check_read(now), **_operations(now)}, 200)


def _messages() -> str:
    failed = failed_messages_count()
    return f"{failed} failed" if failed else "unknown" if failed is None else "ok"


def migrations_missing() -> int:
    """The number of migrations of this version that the database lacks.

    Further migrations in the database belong to a newer version, which adds before it removes
    (docs/guides/upgrade.md).
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT app, name FROM django_migrations")
            return len(_migrations_wanted() - set(cursor.fetchall()))
    except DatabaseError:
        return len(_migrations_wanted())


@cache
def _migrations_wanted() -> frozenset[tuple[str, str]]:
    return frozenset(MigrationLoader(None).graph.nodes)


def _operations(now: datetime) -> dict[str, int | None]:
    try:
        modes = {mode.kind for mode in modes_in_force(now)}
        age = backup_age(now)
    except DatabaseError:
        return dict.fromkeys(("decisions_frozen", "planned_outage", "backup_age_seconds"))
    return {
        "decisions_frozen": int(PortalMode.Kind.FREEZE in modes),
        "planned_outage": int(PortalMode.Kind.OUTAGE in modes),
        "backup_age_seconds": age,
    }


def _database_writes() -> bool:
    """Writes a message to the write-ahead log, which leaves no row."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT current_setting('transaction_read_only') = 'off',"
                " pg_logical_emit_message(true, 'readyz', '')"
            )
            return bool(cursor.fetchone()[0])
    except DatabaseError:
        return False


def _programs(now: datetime) -> str:
    """What is wrong with programs, or "ok"."""
    try:
        silent = programs_silent(now)
    except redis.RedisError:
        return "unknown"
    return "; ".join(f"{name}: {what}" for name, what in silent.items()) or "ok"


def _decisions(now: datetime) -> str:
    """How late decisions are, or "ok"."""
    found = self_check_read(now)
    if not found["decisions_behind"]:
        return "ok" if found["decisions_behind"] == 0 else "unknown"
    return f"the oldest request has none for {found['oldest_undecided_seconds']} s"


def _redis_writes(url: str) -> bool:
    try:
        with redis_client(url, socket_timeout=1, socket_connect_timeout=1) as client:
            client.set(PROBE, b"", ex=60)
    except redis.RedisError:
        return False
    return True


def _answer(said: Mapping[str, object], status: int) -> JsonResponse:
    return JsonResponse(dict(said), status=status, headers={"Cache-Control": "no-store"})
