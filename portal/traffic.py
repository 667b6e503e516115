"""Counts of the answers of all web processes, added up in the cache's server.

Each process counts for itself and adds its counts every few seconds. If a process dies, the counts
that it had not added are lost.
"""

import logging
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache

import redis
from django.conf import settings

from tenants.platform.stores.redis_servers import redis_client
from wire.exposition import Metric, Value

logger = logging.getLogger(__name__)

KEY = "metrics:http"
# Upper bounds in milliseconds; longer answers are in `+Inf` only.
BUCKETS_MS = (5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)
_ANSWERS, _BUCKET, _SUM, _COSTLY = "answers", "bucket", "sum", "costly"


def answer_count(
    counts: Counter[str], route: str, method: str, status: int, surface: str, seconds: float
) -> None:
    """Adds one answer to counts by field name."""
    milliseconds = seconds * 1000
    counts.update(_fields(route, method, status, surface, bisect_left(BUCKETS_MS, milliseconds)))
    counts[f"{_SUM}|{surface}"] += round(milliseconds)


@lru_cache(4_096)
def _fields(route: str, method: str, status: int, surface: str, first: int) -> tuple[str, ...]:
    """The fields that such an answer is counted in, from the `first` bucket that holds it."""
    ends = ("+Inf", *BUCKETS_MS[first:])
    return (
        f"{_ANSWERS}|{route}|{method}|{status}",
        *(f"{_BUCKET}|{surface}|{end}" for end in ends),
    )


def costly_count(counts: Counter[str], kind: str, outcome: str) -> None:
    """Adds one costly request to counts by field name."""
    counts[f"{_COSTLY}|{kind}|{outcome}"] += 1


def traffic_add(counts: Mapping[str, int]) -> None:
    """Adds a process's counts to the totals; if the server does not answer, they are dropped."""
    if not counts:
        return
    try:
        with _server() as client:
            pipe = client.pipeline(transaction=False)
            for field, count in counts.items():
                pipe.hincrby(KEY, field, count)
            pipe.execute()
    except redis.RedisError as error:
        logger.warning("Counts of answers were lost: %s", error)


def traffic_read() -> Iterator[Metric]:
    """The metrics of all web processes. Raises redis.RedisError."""
    with _server() as client:
        stored = client.hgetall(KEY)
    found: dict[str, list[tuple[list[str], int]]] = defaultdict(list)
    for name, count in sorted(stored.items()):
        kind, *labels = name.decode().split("|")
        found[kind].append((labels, int(count)))
    answers = [
        Value(count, dict(zip(("route", "method", "status"), labels, strict=True)))
        for labels, count in found[_ANSWERS]
    ]
    costly = [
        Value(count, dict(zip(("kind", "outcome"), labels, strict=True))) for labels, count in found[_COSTLY]
    ]
    counts = {(surface, end): count for (surface, end), count in found[_BUCKET]}
    times = [
        value
        for (surface,), milliseconds in found[_SUM]
        for value in _histogram(surface, milliseconds, counts)
    ]
    yield Metric("gpu_portal_http_requests_total", "counter", "Answers of web processes.", tuple(answers))
    yield Metric(
        "gpu_portal_http_request_seconds",
        "histogram",
        "Time to an answer, without waiting for decisions.",
        tuple(times),
    )
    yield Metric(
        "gpu_portal_costly_requests_total",
        "counter",
        "Costly requests: served, refused, failed, or left by their client.",
        tuple(costly),
    )


def _histogram(surface: str, milliseconds: int, counts: Mapping[tuple[str, str], int]) -> Iterator[Value]:
    for end in BUCKETS_MS:
        labels = {"surface": surface, "le": repr(end / 1000)}
        yield Value(counts.get((surface, str(end)), 0), labels, "_bucket")
    whole = counts.get((surface, "+Inf"), 0)
    yield Value(whole, {"surface": surface, "le": "+Inf"}, "_bucket")
    yield Value(milliseconds / 1000, {"surface": surface}, "_sum")
    yield Value(whole, {"surface": surface}, "_count")


def _server() -> "redis.Redis":
    return redis_client(settings.CACHE_REDIS_URL, socket_timeout=1, socket_connect_timeout=1)
