"""What callbacks of training libraries share: reports of progress, at most one in a few seconds.

A report that can't be written ends no training: it is said once in the log.
"""

import logging
from collections.abc import Callable, Mapping
from math import isfinite
from time import monotonic
from typing import Any

from gpu_client.progress import progress_write

logger = logging.getLogger(__name__)

EVERY_SECONDS = 10.0
"""The agent reads the file as often."""
MOST_METRICS, LONGEST_NAME = 16, 40
"""What the portal keeps of a report."""


class TrainingProgress:
    """Writes how far a training is, with its newest metrics; the first and the last report always."""

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
