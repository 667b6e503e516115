"""How far a program is, said on the node of its booking: without a token and without the portal.

from gpu_client.progress import progress_write
progress_write(1200, of=10_000, metrics={"loss": 0.31})

Callbacks of training libraries share `TrainingProgress`: at most one report in a few seconds.
"""

import json
import logging
import os
from collections.abc import Callable, Mapping
from math import isfinite
from time import monotonic
from typing import Any

FILE = "GPU_BOOKING_PROGRESS"
logger = logging.getLogger(__name__)

EVERY_SECONDS = 10.0
"""The agent reads the file as often."""
MOST_METRICS, LONGEST_NAME = 16, 40
"""What the portal keeps of a report."""


def progress_write(
    step: float,
    of: float | None = None,
    unit: str | None = None,
    metrics: Mapping[str, float] | None = None,
    watch: Mapping[str, str] | None = None,
) -> bool:
    """Writes a report to the file that the environment of the booking names; the node's agent sends it.

    `watch`: the metric of which the booking's page shows a plateau, such as `{"accuracy": "higher"}`; without
    it `loss`. Returns False outside of a booking, so that a program runs there, too.

    Raises:
        OSError: the file can't be written, as by another account.
        ValueError: a number is not finite.
    """
    path = os.environ.get(FILE)
    if not path:
        return False
    said = {
        "step": step,
        "of": of,
        "unit": unit,
        "metrics": None if metrics is None else dict(metrics),
        **watch_said(watch),
    }
    line = json.dumps({name: value for name, value in said.items() if value is not None}, allow_nan=False)
    # The file belongs to the agent's folder: it is written in place, and never made.
    with open(os.open(path, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        file.write(line + "\n")
    return True


def watch_said(watch: Mapping[str, str] | None) -> dict[str, str]:
    """The fields of a report for a metric with its better values, `lower` or `higher`."""
    return {"watch": next(iter(watch)), "better": next(iter(watch.values()))} if watch else {}


class TrainingProgress:
    """Writes how far a training is, with its newest metrics; the first and the last report always.

    A report that can't be written ends no training: it is said once in the log.
    """

    def __init__(self, every: float = EVERY_SECONDS, clock: Callable[[], float] = monotonic) -> None:
        """At most one report in `every` seconds."""
        self._every, self._clock = every, clock
        self._last: float | None = None
        self._metrics: dict[str, float] = {}
        self._has_failed = False

    def measured(self, metrics: Mapping[str, Any]) -> None:
        """Keeps the newest numbers by name; what is no finite number is left out."""
        for name, value in metrics.items():
            number = _number(value)
            if number is not None and (name in self._metrics or len(self._metrics) < MOST_METRICS):
                self._metrics[name[:LONGEST_NAME]] = number

    def report(
        self,
        step: float,
        of: float | None = None,
        *,
        always: bool = False,
        metrics: Callable[[], Mapping[str, Any]] | None = None,
    ) -> bool:
        """Writes a report if one is due; returns whether it was written.

        `metrics` are read only then: to read a number from a GPU waits for it.
        """
        now = self._clock()
        if not always and self._last is not None and now - self._last < self._every:
            return False
        self._last = now
        if metrics is not None:
            self.measured(metrics())
        try:
            return progress_write(step, of if of and of > 0 else None, "step", self._metrics or None)
        except (OSError, ValueError) as error:
            if not self._has_failed:
                logger.warning("The progress of this training was not written: %s", error)
            self._has_failed = True
            return False


def _number(value: Any) -> float | None:  # noqa: ANN401  a number, a tensor, or anything else
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if isfinite(found) else None
