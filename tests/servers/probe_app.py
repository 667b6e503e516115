"""The portal's Celery application with one task more, for tests that kill a worker under it.

The task appends a line to the file named by PROBE_FILE and, the first time, never ends.
"""

import os
import signal
from pathlib import Path

from portal.celery import app

__all__ = ["app"]


@app.task(name="probe")
def probe() -> None:
    path = Path(os.environ["PROBE_FILE"])
    with path.open("a", encoding="utf-8") as file:
        file.write("began\n")
    if path.read_text(encoding="utf-8").count("began") == 1:
        signal.pause()
