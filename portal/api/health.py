"""Probes: whether the process answers, and whether what it needs does."""

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe


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


def _answer(said: dict[str, str], status: int) -> JsonResponse:
    return JsonResponse(said, status=status, headers={"Cache-Control": "no-store"})
