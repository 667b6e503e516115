"""Probes: whether the process answers, and whether what it needs takes writes."""

from collections.abc import Mapping

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.services.watch import watch_read

PROBE = "readyz"


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """200 as long as the process answers."""
    return _answer({"status": "ok"}, 200)


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """503 when the database takes no write. 200 and `degraded` when a Redis server takes none:
    pages and requests are answered, decisions and what nodes are told come late.

    A full or read-only store answers every ping, so each is written to, and named.
    """
    database = _database_writes()
    servers = {
        "redis": _redis_writes(settings.CACHE_REDIS_URL),
        "agents_redis": _redis_writes(settings.AGENTS_REDIS_URL),
    }
    status = "ok" if all(servers.values()) else "degraded"
    checks = {"database": database, **servers}
    words = {name: "ok" if fine else "no write" for name, fine in checks.items()}
    if not database:
        return _answer({"status": "not ready", **words}, 503)
    return _answer({"status": status, **words}, 200)


@require_safe
def statusz(request: HttpRequest) -> JsonResponse:
    """200 with what must be 0, for monitoring; null is not known. Says nothing of anybody."""
    return _answer(watch_read(timezone.now()), 200)


def _database_writes() -> bool:
    """A message in the write-ahead log, and no row."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT current_setting('transaction_read_only') = 'off',"
                " pg_logical_emit_message(true, 'readyz', '')"
            )
            return bool(cursor.fetchone()[0])
    except DatabaseError:
        return False


def _redis_writes(url: str) -> bool:
    try:
        with redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1) as client:
            client.set(PROBE, b"", ex=60)
    except redis.RedisError:
        return False
    return True


def _answer(said: Mapping[str, object], status: int) -> JsonResponse:
    return JsonResponse(dict(said), status=status, headers={"Cache-Control": "no-store"})
