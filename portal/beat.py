"""The clock of periodic tasks: any number of beats may run, and each task is sent once a period.

Celery's own scheduler keeps in memory when each task ran. A second beat sends everything twice, and
a beat that is restarted puts every task off by a whole period. Here the due times are keys in
the broker's server, which every beat reads: whoever finds a task due claims and sends it.
"""

import logging
from typing import Any

import redis
from celery import Celery
from celery.beat import ScheduleEntry, Scheduler, SchedulingError
from django.conf import settings

from allocation.services.record.liveness import program_seen

logger = logging.getLogger(__name__)

PREFIX = "beat:"
# A beat that dies between claim and message delays the task by this long, not by its period.
CLAIM_MS = 5000
RETRY_SECONDS = 1.0
# A key lives until its task is due. One that would live longer than a period was written before
# the server's clock was set back, and counts as due.
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
    """Sends what is due by the shared due times; a task that never ran is due at once."""

    def __init__(self, app: Celery, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (Celery's)
        """As Celery's: `lazy` ones are asked for their schedule and send nothing."""
        super().__init__(app, *args, **kwargs)
        self._server = redis.Redis.from_url(
            settings.BROKER_REDIS_URL, socket_timeout=2, socket_connect_timeout=2
        )
        self._claim = self._server.register_script(CLAIM_SCRIPT)

    def install_default_entries(self, data: object) -> None:
        """None: Celery's only one cleans up results, and no results are kept."""

    def tick(self, *_: object, **__: object) -> float:
        """Sends what is due; returns the seconds until the next task is."""
        entries = dict(self.schedule)
        periods = [_period_ms(entry) for entry in entries.values()]
        most_ms = int(self.app.conf.beat_max_loop_interval * 1000)
        try:
            answer: Any = self._claim(
                keys=[PREFIX + name for name in entries], args=[*periods, CLAIM_MS, most_ms]
            )
            wait, due = answer
            program_seen("beat", self.app.now())
            for at in due:
                self._send([*entries][at - 1], periods[at - 1])
        except (redis.RedisError, SchedulingError) as error:
            logger.warning("Periodic tasks wait for the broker: %s", error)
            return RETRY_SECONDS
        # One more, as the server cuts what is left to whole milliseconds.
        return (int(wait) + 1) / 1000

    def _send(self, name: str, period_ms: int) -> None:
        """Raises SchedulingError; what was not sent is due again once its claim runs out."""
        self.apply_async(self.schedule[name], producer=self.producer, advance=False)
        self._server.pexpire(PREFIX + name, period_ms)


def _period_ms(entry: ScheduleEntry) -> int:
    run_every: Any = entry.schedule
    return int(run_every.run_every.total_seconds() * 1000)
