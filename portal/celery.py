"""The Celery application: tasks, queues and periods.

The database is the truth: every task is safe to run twice or to lose, because beat sends it again.
A task that was lost with a killed worker is delivered again after the visibility timeout. With
kombu's default restore intervals that took a minute and a half longer, and once never happened.
"""

import os
from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from celery import Celery, Task
from celery.signals import (
    beat_init,
    setup_logging,
    task_prerun,
    worker_init,
    worker_shutting_down,
)
from django.utils import timezone
from kombu import Queue

from allocation.words.amounts import class_names
from tenants.platform.stores.broker import broker_transport_register
from tenants.platform.stores.redis_servers import broker_address
from tenants.platform.watchdog.pulses import watchdog_start, watchdog_stop
from tenants.platform.watchdog.workers import QUEUE, QueuePulse

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

VISIBILITY_TIMEOUT = 60
TIME_LIMIT = 45
SOFT_TIME_LIMIT = 40

broker_transport_register()


if TYPE_CHECKING:
    from tenants.failures import TaskFailures

    AnyTask = Task[Any, Any]
else:
    AnyTask = Task  # It is generic in its stubs only.


class PortalTask(AnyTask):
    """A task whose sentences, such as those of mails, name GPU classes by their labels, and whose
    errors operators see."""

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Runs the task. The labels are read by the first sentence that needs one."""
        names = class_names(_class_labels, _zone_labels, _host_classes, _currency)
        with _failures().noted(self.name, timezone.now), names:
            return super().__call__(*args, **kwargs)


@cache
def _failures() -> "TaskFailures":
    from tenants.failures import TaskFailures  # noqa: PLC0415 (not before Django)

    return TaskFailures()


def _class_labels() -> Mapping[str, str]:
    from allocation.queries.fleet.catalogue import class_labels  # noqa: PLC0415 (not before Django)

    return class_labels()


def _zone_labels() -> Mapping[str, str]:
    from allocation.queries.fleet.catalogue import zone_labels  # noqa: PLC0415 (not before Django)

    return zone_labels()


def _host_classes() -> Collection[str]:
    from allocation.queries.fleet.catalogue import host_classes  # noqa: PLC0415 (not before Django)

    return host_classes()


def _currency() -> str:
    from billing.price_books import currency_latest  # noqa: PLC0415 (not before Django)

    return currency_latest()


app: "Celery[Task[Any, Any]]" = Celery("portal", task_cls=PortalTask)
app.steps["consumer"].add(QueuePulse)


@setup_logging.connect
def logging_left_to_django(**_: object) -> None:
    """Keeps Django's logging: with a receiver of this signal Celery does not configure any."""


@task_prerun.connect
def connections_check(task: Any = None, **_: object) -> None:  # noqa: ANN401 (any task)
    """Closes connections that are too old or broken, as Django does before a request. A worker of
    another application, which decides shards, has none."""
    if task is not None and task.app is not app:
        return
    from django.db import close_old_connections  # noqa: PLC0415 (not before Django is set up)

    close_old_connections()


@worker_init.connect
def worker_watched(sender: Any, **_: object) -> None:  # noqa: ANN401 (Celery's)
    """Starts the watchdog of a worker, which is named like its program."""
    if sender.app is app:
        _watchdog_start(sender.hostname.partition("@")[0], {QUEUE: "redis"})


@beat_init.connect
def beat_watched(**_: object) -> None:
    """Starts the watchdog of beat."""
    _watchdog_start("beat", {"schedule": "redis database"})


@worker_shutting_down.connect
def watched_no_more(**_: object) -> None:
    """Ends the watchdog of a worker that stops: it may finish its tasks."""
    watchdog_stop()


def _watchdog_start(program: str, loops: Mapping[str, str]) -> None:
    from django.conf import settings  # noqa: PLC0415 (read when first needed, not on import)

    servers = settings.WATCHDOG_SERVERS
    watchdog_start(program, loops, seconds=settings.WATCHDOG_SECONDS, servers=servers)


def _configuration() -> dict[str, Any]:
    from django.conf import settings  # noqa: PLC0415 (read when first needed, not on import)

    url, server = broker_address(settings.BROKER_REDIS_URL)
    return {
        "broker_url": url,
        "broker_transport_options": {
            **server,
            "global_keyprefix": "broker:",
            "visibility_timeout": VISIBILITY_TIMEOUT,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "unacked_mutex_expire": 15,
            "socket_keepalive": True,
        },
        "broker_connection_retry_on_startup": True,
        "accept_content": ["json"],
        "task_serializer": "json",
        "task_ignore_result": True,
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_soft_time_limit": SOFT_TIME_LIMIT,
        "task_time_limit": TIME_LIMIT,
        "task_default_queue": "default",
        "task_create_missing_queues": False,
        "task_queues": [Queue("default"), Queue("solver")],
        "task_routes": {
            "allocation.cycle": {"queue": "solver"},
            "allocation.tick": {"queue": "solver"},
        },
        # By default Celery closes the connection after each task; opening one costs more than most.
        "CELERY_DB_REUSE_MAX": 1_000_000_000,
        "worker_prefetch_multiplier": 1,
        "worker_cancel_long_running_tasks_on_connection_loss": True,
        "worker_enable_remote_control": False,
        "timezone": "UTC",
        "enable_utc": True,
        "beat_scheduler": "portal.beat:SharedScheduler",
        "beat_max_loop_interval": 5,
        "beat_schedule": {
            name: {
                "task": name,
                "schedule": seconds,
                # A task that no worker took expires when the next one is sent.
                "options": {"expires": seconds},
            }
            for name, seconds in PERIODS.items()
        },
    }


PERIODS = {
    "allocation.tick": 1,
    # A cycle for changes that request none, such as quotas, and for lost requests.
    "allocation.cycle": 15,
    "allocation.publish": 5,
    "outbox.relay": 5,
    "mail.send": 15,
    "chat.send": 15,
    "jira.process": 5,
    "policy_lab.guard": 60,
    "policy_lab.trials": 10,
    "policy_lab.shadows": 5,
    "live.beat": 10,
    "allocation.stalls": 10,
    "allocation.presence": 30,
    "allocation.telemetry": 120,
    "allocation.invariants": 300,
    "decisions.replay": 60,
    "outbox.sweep": 600,
    "tenants.sweep": 600,
    "audit.seal": 60,
    "billing.renew": 600,
    "billing.guardrails": 1,
    "allocation.forecasts": 600,
    # Once an hour; a lost turn is made up for.
    "allocation.demand": 300,
    "allocation.overrides": 600,
    "requirements.expiring": 600,
    "capacity.turn": 10,
    "notebooks.orders": 5,
    "scripts.ended": 10,
    "host_use.raise": 60,
    "hand_overs.expire": 60,
    "limit_cuts.enforce": 10,
    "allocation.variances": 900,
    "allocation.reports": 300,
    "insights.months": 600,
    "allocation.exports": 15,
}

app.add_defaults(_configuration)
app.autodiscover_tasks()
