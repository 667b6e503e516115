"""States of bookings, and commands that follow their events."""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from gpu_client.api import Client, Document
from gpu_client.output import error_print, line_print
from gpu_client.problems import (
    DONE,
    REFUSED,
    SERVER,
    USAGE,
    WAITING,
    PortalUnreachable,
    Problem,
)
from gpu_client.session import Json, Zone, clock_of, portal

Reference = Annotated[str, typer.Argument(help="BK-2041 or bk_…", show_default=False)]
hook_app = typer.Typer(no_args_is_help=True, help="Run programs when something happens.")
# Seconds between tries after the stream has broken: a portal that is upgraded comes back within
# minutes, so they last for an hour.
PAUSES = (1, 2, 5, 10, 30)
TRIES = 123
HAS_PLACE = frozenset({"scheduled", "starting", "active", "pausing", "ending", "ended"})
OVER = frozenset({"ended", "refused", "rejected", "expired", "cancelled", "failed"})
NOT_STARTED = frozenset({"requested", "awaiting_approval", "waitlisted", "offered", "queued", "scheduled"})
ALL = HAS_PLACE | OVER | NOT_STARTED | {"paused"}


def decided_status(booking: Document) -> int:
    """Returns the exit status: 0 with GPUs, 3 when the booking was refused or failed, 4 while it waits."""
    if booking["state"] in HAS_PLACE:
        return DONE
    return REFUSED if booking["state"] in OVER else WAITING


def watch(
    reference: Reference,
    timeout: Annotated[int, typer.Option(min=0, help="Seconds; 0: no limit.")] = 0,
    until: Annotated[str, typer.Option(help="Also stop in this state, such as active.")] = "",
    is_json: Json = False,
    zone: Zone = "",
) -> None:
    """Print what happens to a booking until it is over. With `--json`, one event a line."""
    if until and until not in ALL:
        error_print(f"There is no state {until!r}. Write one of: {', '.join(sorted(ALL))}")
        raise SystemExit(USAGE)
    with portal(is_json=is_json) as client:
        booking = client.booking(reference)
        clock = clock_of(client, zone)
        for event in _followed(client, booking, timeout, OVER | {until}):
            if is_json:
                sys.stdout.write(f"{_compact(event)}\n")
            else:
                line_print(f"{clock.moment(event['timestamp'])}  {event['data']['message']}")
            sys.stdout.flush()
        last = client.booking(reference)
    raise SystemExit(decided_status(last))


@hook_app.command(
    "on-notice", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True}
)
def on_notice(
    reference: Reference,
    command: Annotated[list[str], typer.Argument(help="A program", show_default=False)],
) -> None:
    """Run a program whenever a pause of the booking is announced, until the booking is over."""
    with portal(is_json=False) as client:
        booking = client.booking(reference)
        for event in _followed(client, booking):
            if event["type"] == "booking.pause_notified":
                line_print(event["data"]["message"])
                _hook_run(command, booking)


def _hook_run(command: list[str], booking: Document) -> None:
    try:
        done = subprocess.run(  # noqa: S603 (what the user asked for, without a shell)
            command, env={**os.environ, "GPU_BOOKING": booking["number"]}, check=False
        )
    except OSError as error:
        error_print(f"{command[0]}: {error.strerror}")
        return
    if done.returncode:
        error_print(f"{command[0]} ended with status {done.returncode}.")


@dataclass
class _Stream:
    """The events of one booking, up to one that leaves it in a last state."""

    client: Client
    booking: str
    last_states: frozenset[str]
    last: str = ""
    is_known: bool = False
    is_over: bool = False

    def read(self) -> Iterator[Document]:
        """Yields events until the stream ends; an empty one for whatever else arrives."""
        with self.client.events(self.last) as events:
            # Read after the stream has begun, so that no event is missed in between.
            self.is_over = not self.last and self._state() in self.last_states
            self.is_known = True
            while not self.is_over and (event := next(events, None)) is not None:
                self.last = event.get("id", self.last)
                # Events of budgets have no booking.
                about = (event["data"].get("booking") if event else None) or {}
                is_own = about.get("id") == self.booking
                self.is_over = is_own and about["state"] in self.last_states
                yield event if is_own else {}

    def _state(self) -> str:
        return str(self.client.booking(self.booking)["state"])


def _followed(
    client: Client, booking: Document, timeout: float = 0, last_states: frozenset[str] = OVER
) -> Iterator[Document]:
    """Yields the events of a booking up to a last state; connects again when the stream ends."""
    until, failures = time.monotonic() + (timeout or math.inf), 0
    stream = _Stream(client, booking["id"], last_states)
    while not stream.is_over:
        try:
            for event in stream.read():
                failures = 0
                if time.monotonic() > until:
                    break
                if event:
                    yield event
        except (Problem, PortalUnreachable) as error:
            if not stream.is_known or failures == TRIES or not _is_passing(error):
                raise
            _wait(error, failures)
            failures += 1
        if time.monotonic() > until:
            raise SystemExit(WAITING)


def _wait(error: Exception, failures: int) -> None:
    if not failures:
        error_print(f"{str(error).rstrip('.')}. Trying again.")
    time.sleep(PAUSES[min(failures, len(PAUSES) - 1)])


def _is_passing(error: Problem | PortalUnreachable) -> bool:
    """Returns whether the portal may answer later: it restarts, or is busy."""
    return isinstance(error, PortalUnreachable) or error.exit_status == SERVER


def _compact(event: Document) -> str:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))
