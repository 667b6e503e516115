"""How far a program is, said on the node of its booking: without a token and without the portal.

from gpu_client.progress import progress_write
progress_write(1200, of=10_000, metrics={"loss": 0.31})
"""

import json
import os
from collections.abc import Mapping

FILE = "GPU_BOOKING_PROGRESS"


def progress_write(
    step: float,
    of: float | None = None,
    unit: str | None = None,
    metrics: Mapping[str, float] | None = None,
) -> bool:
    """Writes a report to the file that the environment of the booking names; the node's agent sends it.

    Returns False outside of a booking, so that a program runs there, too.

    Raises:
        OSError: the file can't be written, as by another account.
        ValueError: a number is not finite.
    """
    path = os.environ.get(FILE)
    if not path:
        return False
    said = {"step": step, "of": of, "unit": unit, "metrics": None if metrics is None else dict(metrics)}
    line = json.dumps({name: value for name, value in said.items() if value is not None}, allow_nan=False)
    # The file belongs to the agent's folder: it is written in place, and never made.
    with open(os.open(path, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        file.write(line + "\n")
    return True
