"""Scheduler of periodic tasks: any number of beats may run, and each task is sent once a period.

Celery's own scheduler keeps the last run of each task in memory. A second beat sends everything
twice, and a restarted beat delays every task by a whole period. Here the due times are keys in
the broker's server that all beats share: the beat that finds a task due claims and sends it, unless
there is nothing for it to do.
"""

import logging
from typing import Any

import redis
from celery import Celery
from celery.beat import ScheduleEntry, Scheduler, SchedulingError
from django.conf import settings

from allocation.services.record.liveness import SeenNow
from portal.due_tasks import DueTasks
from tenants.platform.stores.redis_servers import redis_client
from tenants.platform.watchdog.pulses import pulse

logger = logging.getLogger(__name__)

PREFIX = "beat:"
# A beat that dies between claiming and sending delays the task by this time, not by its period.
CLAIM_MS = 5000
RETRY_SECONDS = 1.0
# A key expires when its task is due. A key that would live longer than a period was written
# before the server's clock was set back, so its task counts as due.
CLAIM_SCRIPT = """
local wait, due = tonumber(ARGV[#ARGV]), {}
for at, key in ipairs(KEYS) do
  local period, left = tonumber(ARGV[at]), redis.call('PTTL', key)
  if left < 0 or left > period then
    redis.call('SET', key, '', 'PX', math.min(period, tonumber(ARGV[#KEYS + 1])))
    due[#due + 1] = at
    left = period
  end
  wait = math.min(wait, left)
end
return {wait, due}
"""


class SharedScheduler(Scheduler):
    """Sends tasks by due times that all beats share; a task that never ran is due at once."""

    def __init__(self, app: Celery, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (Celery's)
        """As in Celery: a `lazy` scheduler only reports its schedule and sends nothing."""
        super().__init__(app, *args, **kwargs)
        self._server = redis_client(settings.BROKER_REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
        self._claim = self._server.register_script(CLAIM_SCRIPT)
        self._due = DueTasks(app.now)
        self._seen = SeenNow("beat")

    def install_default_entries(self, data: object) -> None:
        """Adds none: Celery's only default entry cleans up results, and none are stored."""

    def tick(self, *_: object, **__: object) -> float:
        """Sends the tasks that are due; returns the seconds until the next one is due."""
        entries = dict(self.schedule)
        periods = [_period_ms(entry) for entry in entries.values()]
        most_ms = int(self.app.conf.beat_max_loop_interval * 1000)
        try:
            answer: Any = self._claim(
                keys=[PREFIX + name for name in entries], args=[*periods, CLAIM_MS, most_ms]
            )
            wait, due = answer
            self._seen(self.app.now())
            names = [[*entries][at - 1] for at in due]
            needed = set(self._due.needed(names))
            for name, at in zip(names, due, strict=True):
                self._finish(name, periods[at - 1], is_needed=name in needed)
            pulse("schedule")
        except (redis.RedisError, SchedulingError) as error:
            logger.warning("Periodic tasks wait for the broker: %s", error)
            return RETRY_SECONDS
        # Plus one, because the server rounds the remaining time down to milliseconds.
        return (int(wait) + 1) / 1000

    def _finish(self, name: str, period_ms: int, *, is_needed: bool) -> None:
        """Raises SchedulingError; a task that was not sent is due again when its claim expires."""
        if is_needed:
            self._send(name)
        if period_ms > CLAIM_MS:
            self._server.pexpire(PREFIX + name, period_ms)

    def _send(self, name: str) -> None:
        self.apply_async(self.schedule[name], producer=self.producer, advance=False)


def _period_ms(entry: ScheduleEntry) -> int:
    run_every: Any = entry.schedule
    return int(run_every.run_every.total_seconds() * 1000)
