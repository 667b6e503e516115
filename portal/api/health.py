"""Probes: whether the process answers, and whether what it needs does."""

from collections.abc import Mapping

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from allocation.services.watch import watch_read


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """200 as long as the process answers."""
    return _answer({"status": "ok"}, 200)


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when database and Redis answer, else 503; each is named."""
    checks = {"database": _database_answers(), "redis": _redis_answers()}
    ready = all(checks.values())
    words = {name: "ok" if fine else "no answer" for name, fine in checks.items()}
    return _answer({"status": "ok" if ready else "not ready", **words}, 200 if ready else 503)


@require_safe
def statusz(request: HttpRequest) -> JsonResponse:
    """200 with what must be 0, for monitoring; null is not known. Says nothing of anybody."""
    return _answer(watch_read(timezone.now()), 200)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return False
    return True


def _redis_answers() -> bool:
    try:
        with redis.Redis.from_url(
            settings.CACHE_REDIS_URL, socket_timeout=1, socket_connect_timeout=1
        ) as client:
            client.ping()
    except redis.RedisError:
        return False
    return True


def _answer(said: Mapping[str, object], status: int) -> JsonResponse:
    return JsonResponse(dict(said), status=status, headers={"Cache-Control": "no-store"})
