"""Pulses of Celery's workers: they ask their queue for tasks, or work on some."""

import time
from typing import Any

from celery import Celery, bootsteps
from celery.worker import state

from tenants.platform.stores.broker import asked_at
from tenants.platform.watchdog.pulses import EVERY_SECONDS, pulse

QUEUE = "queue"
# A worker that waits for a task asks again each second.
ASKS_SECONDS = 3.0
# A task beyond its time limit is killed by Celery; a worker that has not done it hangs.
GRACE_SECONDS = 15.0


class QueuePulse(bootsteps.StartStopStep):
    """Looks each second whether the worker asks for tasks, or has some that may still run."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: object) -> None:  # noqa: ANN401 (Celery's)
        """One for each worker, also after it lost its connection."""
        super().__init__(consumer, **options)
        self._timer: Any = None
        self._since: dict[str, float] = {}

    def start(self, consumer: Any) -> None:  # noqa: ANN401
        """Begins to look, in the event loop that takes the tasks."""
        self._timer = consumer.timer.call_repeatedly(EVERY_SECONDS, self._look, (consumer,))

    def stop(self, consumer: Any) -> None:  # noqa: ANN401
        """Ends looking, as the connection was lost or the worker stops."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, consumer: Any) -> None:  # noqa: ANN401
        now = time.monotonic()
        asks = now - asked_at(consumer.task_consumer.channel) < ASKS_SECONDS
        if self._is_at_work(consumer.app, now) or asks:
            pulse(QUEUE)

    def _is_at_work(self, app: Celery, now: float) -> bool:
        running = {request.id: request for request in list(state.active_requests)}
        self._since = {name: self._since.get(name, now) for name in running}
        return any(
            now - self._since[name] < _limit(app, request) + GRACE_SECONDS
            for name, request in running.items()
        )


def _limit(app: Celery, request: Any) -> float:  # noqa: ANN401
    limit: float = request.task.time_limit or app.conf.task_time_limit or float("inf")
    return limit
