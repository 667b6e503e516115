"""A worker that decides shards of a large site, on this or another machine.

`python -m celery -A portal.shards worker -Q decide -c N`. It needs `REDIS_URL` alone.
"""

import logging
from typing import Any

from celery.signals import worker_init

from allocation.services.shards.task import worker_app
from portal.env import env_int, env_str, redis_database
from tenants.platform.watchdog.pulses import watchdog_start
from tenants.platform.watchdog.workers import QUEUE

logging.basicConfig(
    format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    level=env_str("LOG_LEVEL", "INFO").upper(),
)

SERVER = redis_database(env_str("REDIS_URL"), 0)
app = worker_app(SERVER)


@worker_init.connect
def worker_watched(sender: Any, **_: object) -> None:  # noqa: ANN401 (Celery's)
    """Starts the watchdog of this worker, whose account may keep no notes."""
    if sender.app is app:
        seconds = env_int("WATCHDOG_SECONDS", 12, low=0, high=3600)
        watchdog_start("shards", {QUEUE: "redis"}, seconds=seconds, servers={"redis": SERVER})
