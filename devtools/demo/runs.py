"""Says for the demo's researcher how far her runs are, as their programs would:
`python -m devtools.demo.runs FILE` with the demo's passwords and tokens."""

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from devtools.demo.uses import USES, rate_of
from gpu_client.api import Client
from gpu_client.config import Config
from gpu_client.problems import PortalUnreachable, Problem

EVERY_SECONDS = 20.0
STEPS = 10_000
HOUR = timedelta(hours=1)
# One run in three ends at its booked end, one before, and one after.
PACES = (1.0, 1.4, 0.75)
logger = logging.getLogger(__name__)


def reports(
    bookings: list[dict[str, Any]], now: datetime
) -> Iterator[tuple[str, int, int, Mapping[str, float]]]:
    """Returns number, step, steps in all and metrics of each run that has begun."""
    for booking in bookings:
        ends = booking["window"]["planned_ends"]
        if not booking["ready_at"] or not ends:
            continue
        ready, end = datetime.fromisoformat(booking["ready_at"]), datetime.fromisoformat(ends)
        number = int(booking["number"].split("[")[0][3:])
        pace, hours = PACES[number % len(PACES)], (end - ready) / HOUR
        steps = max(1, round((_per_hour(booking, number) or STEPS * pace / hours) * hours / pace))
        part = min(max((now - ready) / (end - ready) * pace, 0.0), 1.0)
        yield booking["number"], round(steps * part), steps, {"loss": round(0.2 + 2 * (1 - part) ** 2, 4)}


def _per_hour(booking: Mapping[str, Any], number: int) -> float | None:
    """The steps in an hour of a run whose workload has a past: as many as there, so that what a step costs
    can be compared."""
    ask, places = booking["ask"], booking["allocations"]
    if ask.get("profile") or ask.get("share") or not places:
        return None
    rate = rate_of(USES.get(booking["workload"]), places[0]["gpu_class"], number)
    return None if rate is None else rate * ask["count"]


def reports_send(client: Client, now: datetime) -> None:
    """Sends a report for each run of the person."""
    own = client.me()["username"]
    active = [each for each in client.bookings(state="active") if each["owner"] == own]
    for number, step, steps, metrics in reports(active, now):
        try:
            client.progress(number, step, steps, metrics=metrics)
        except Problem as problem:
            # It has ended, or its end was moved so that it has done less than it said.
            logger.info("%s: %s", number, problem)


def main() -> None:
    """Reports until the demo ends."""
    said = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with Client(Config(said["url"], said["tokens"]["researcher"])) as client:
        while True:
            try:
                reports_send(client, datetime.now(UTC))
            except (PortalUnreachable, Problem) as lost:
                logger.warning("The portal did not answer: %s", lost)
            time.sleep(EVERY_SECONDS)


if __name__ == "__main__":
    main()
