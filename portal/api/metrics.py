"""/metrics for Prometheus: open with its token, for operators, and for allowed addresses."""

from collections.abc import Iterator
from datetime import datetime
from hmac import compare_digest
from ipaddress import ip_address

import redis
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from allocation.queries.decisions.samples import replay_metrics
from allocation.queries.fleet.metrics import database_size_metrics, delay_metrics, metrics_of
from allocation.services.decide.self_check import self_check_read
from allocation.services.record.liveness import PROGRAMS, programs_read, reader_lag_read
from portal.traffic import traffic_read
from tenants.api.auth import TokenAuthentication
from tenants.platform.stores.redis_servers import redis_client
from tenants.platform.wall import operator_tx
from tenants.platform.watchdog.notes import ends_read, silent_read
from tenants.queries import mails_counted, outbox_waiting, webhooks_lag
from tenants.rules.operator_roles import Area
from wire.exposition import CONTENT_TYPE, Metric, Value, exposition

QUEUES = ("default", "solver")
# kombu adds its prefix before the name of the queue.
QUEUE_KEY = "broker:{}"


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Metrics of the whole site. 401 without a token, 403 if the token is not an operator's."""
    is_open = _is_allowed_address(request) or _has_metrics_token(request)
    status = 200 if is_open else _status_of_token(request)
    if status != 200:
        words = {401: "Send METRICS_TOKEN or an operator's token.\n", 403: "For operators.\n"}
        headers = {"WWW-Authenticate": 'Bearer realm="portal"'} if status == 401 else {}
        return HttpResponse(words[status], status=status, content_type="text/plain", headers=headers)
    return HttpResponse(
        exposition(metrics_all(timezone.now())),
        content_type=CONTENT_TYPE,
        headers={"Cache-Control": "no-store"},
    )


def metrics_all(now: datetime) -> list[Metric]:
    """All metrics; one that is unknown has no value."""
    with operator_tx():
        found = [
            *metrics_of(now),
            *delay_metrics(now),
            *replay_metrics(now),
            *database_size_metrics(),
            *_outbox(now),
            *_mails(),
        ]
    return [*found, *_queues(), *_self_check(now), *_programs(now)]


def _is_allowed_address(request: HttpRequest) -> bool:
    """Whether the client's address is allowed; a request through a proxy never is."""
    if "X-Forwarded-For" in request.headers or "Forwarded" in request.headers:
        return False
    try:
        address = ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    return any(address in network for network in settings.METRICS_ALLOW)


def _has_metrics_token(request: HttpRequest) -> bool:
    wanted = f"Bearer {settings.METRICS_TOKEN}"
    sent = request.headers.get("Authorization", "")
    return bool(settings.METRICS_TOKEN) and compare_digest(sent.encode(), wanted.encode())


def _status_of_token(request: HttpRequest) -> int:
    try:
        found = TokenAuthentication().authenticate(Request(request))
    except AuthenticationFailed:
        return 401
    if found is None:
        return 401
    return 200 if found[1].rights.may(Area.SYSTEM) else 403


def _outbox(now: datetime) -> Iterator[Metric]:
    waiting, oldest = outbox_waiting()
    lag = 0.0 if oldest is None else (now - oldest).total_seconds()
    yield Metric("gpu_portal_outbox_waiting", "gauge", "Messages not sent yet.", (Value(waiting),))
    yield Metric("gpu_portal_outbox_lag_seconds", "gauge", "Age of the oldest.", (Value(lag),))
    late = Value(webhooks_lag(now))
    yield Metric("gpu_portal_webhook_lag_seconds", "gauge", "How late webhooks are sent.", (late,))


def _mails() -> Iterator[Metric]:
    """Mails by state; `dropped` ones are never sent."""
    values = tuple(Value(count, {"state": state}) for state, count in mails_counted().items())
    yield Metric("gpu_portal_mails", "gauge", "Mails of the last 30 days.", values)


def _self_check(now: datetime) -> Iterator[Metric]:
    """The self-check's figures, which must be 0; without a value before the first check."""
    seen = self_check_read(now)
    for key, name, help_ in (
        ("invariant_violations", "invariant_violations", "Violated invariants."),
        ("invariants_checked_seconds_ago", "invariants_age_seconds", "Age of that count."),
        ("failed_cycles", "failed_cycles", "Snapshots that the solver could not solve."),
        ("failed_messages", "failed_messages", "Messages on which a program failed."),
        (
            "oldest_undecided_seconds",
            "oldest_undecided_seconds",
            "Age of the oldest request without a decision.",
        ),
    ):
        yield Metric(f"gpu_portal_{name}", "gauge", help_, (Value(seen[key]),))


def _programs(now: datetime) -> Iterator[Metric]:
    """Without the cache's server these are unknown, which `gpu_portal_redis_up` shows."""
    try:
        ages = tuple(Value(age, {"program": name}) for name, age in programs_read(now))
        found = [
            Metric("gpu_portal_program_age_seconds", "gauge", "Time since it last worked.", ages),
            Metric(
                "gpu_portal_reader_lag_seconds",
                "gauge",
                "How long the newest report that was read had waited.",
                (Value(reader_lag_read()),),
            ),
            *_watchdogs(),
            *traffic_read(),
        ]
    except redis.RedisError:
        return
    yield from found


def _watchdogs() -> Iterator[Metric]:
    """Raises redis.RedisError."""
    ends = ends_read(settings.CACHE_REDIS_URL, PROGRAMS)
    silent = silent_read(settings.CACHE_REDIS_URL, PROGRAMS)
    yield Metric(
        "gpu_portal_watchdog_ends_total",
        "counter",
        "Programs that their watchdog has ended.",
        tuple(Value(count, {"program": name}) for name, count in ends.items()),
    )
    yield Metric(
        "gpu_portal_program_silent",
        "gauge",
        "1: a loop of the program has done nothing for 5 s.",
        tuple(Value(int(name in silent), {"program": name}) for name in PROGRAMS),
    )


def _queues() -> Iterator[Metric]:
    """The lengths of the queues; without an answer they are unknown and `redis_up` is 0."""
    lengths: dict[str, int] = {}
    try:
        with redis_client(settings.BROKER_REDIS_URL, socket_timeout=1, socket_connect_timeout=1) as client:
            for queue in QUEUES:
                lengths[queue] = int(client.llen(QUEUE_KEY.format(queue)))
    except redis.RedisError:
        lengths.clear()
    yield Metric("gpu_portal_redis_up", "gauge", "Redis answers.", (Value(int(bool(lengths))),))
    yield Metric(
        "gpu_portal_queue_messages",
        "gauge",
        "Tasks in a queue.",
        tuple(Value(length, {"queue": queue}) for queue, length in lengths.items()),
    )
