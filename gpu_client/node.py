"""Commands about a node: its message of the day, the environment of a booking, programs and notebooks
in it."""

import os
import shlex
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from agent import run as agent_run
from gpu_client.api import Client, Document
from gpu_client.config import NotSignedIn, config_load
from gpu_client.output import json_print, line_print
from gpu_client.problems import PortalUnreachable, Problem
from gpu_client.session import Json, Zone, clock_of, portal
from gpu_client.watching import Reference
from gpu_client.words import Clock

STATE = "/var/lib/gpu-agent"


class NotOnThisNode(Exception):
    """The booking has no devices here now; the message says why."""


def booking_environment(booking: str, part: int | None, environment: Mapping[str, str]) -> str:
    """Returns `export` lines for a shell. Raises NotOnThisNode."""
    folder = Path(environment.get("GPU_AGENT_STATE", STATE)) / "bookings"
    account = agent_run.account_here()
    try:
        found = agent_run.booking_find(folder, booking, account, time.time())
        values = agent_run.environment_of(found, part)
    except (agent_run.NotNow, OSError) as error:
        raise NotOnThisNode(str(error)) from None
    lines = (f"export {name}={shlex.quote(value)}" for name, value in sorted(values.items()))
    return "\n".join(lines)


def booking_run(booking: str, command: Sequence[str], options: Sequence[str]) -> int:
    """Replaces this program by the command, as `gpu-agent run`; returns only if it can't."""
    return agent_run.main([*options, booking, "--", *command], os.environ)


SOON = timedelta(hours=1)
RUNNING = ("active", "pausing")
LOOK_SECONDS = 1.0
ON_THE_WAY = ("asked", "starting")

Node = Annotated[str, typer.Option(help="Another node than this machine.")]


def motd(node: Node = "", zone: Zone = "") -> None:
    """Print your bookings on this node that run, end soon or have idle GPUs.

    Meant for a login shell: it prints nothing and succeeds if you have none, are not signed in,
    or the portal does not answer.
    """
    try:
        with Client(config_load(os.environ)) as client:
            rows = [each for state in RUNNING for each in client.bookings(owner="me", state=state)]
            clock = clock_of(client, zone) if rows else Clock()
    except (NotSignedIn, PortalUnreachable, Problem):
        return
    place = node or socket.gethostname().partition(".")[0]
    for line in motd_lines(rows, place, datetime.now(UTC), clock):
        line_print(line)


def motd_lines(bookings: list[Document], node: str, now: datetime, clock: Clock) -> Iterator[str]:
    """Yields what the owner of these bookings should know on the node."""
    for row in bookings:
        gpus = [str(each["gpu_index"]) for each in row["allocations"] if each["node"] == node]
        if not gpus:
            continue
        number = row["number"]
        name = f"{number} {row['name']}".strip()
        yield f"{name}: GPU {', '.join(gpus)}, until {clock.ends(row)}."
        planned = row["window"]["planned_ends"]
        if row["state"] == "pausing":
            yield f"  It is to be paused. Save its work, then: gpu show {number}"
        elif planned and datetime.fromisoformat(planned) - now <= SOON:
            yield f"  It ends soon. To extend it: gpu extend {number} 1h"
        if row["idle_veto_until"]:
            until = clock.moment(row["idle_veto_until"])
            yield f"  Its GPUs are idle; others can get them from {until}."
            yield f"  To keep them: gpu still-needed {number}"


def notebook(
    reference: Reference,
    program: Annotated[str, typer.Option(help="A name of the node's list; the first one without it.")] = "",
    end: Annotated[bool, typer.Option("--end", help="End it, with what was not saved.")] = False,
    is_json: Json = False,
) -> None:
    """Start JupyterLab, or what the site has, on a running booking, and print its address."""
    with portal(is_json=is_json) as client:
        if end:
            client.notebook_end(reference)
            line_print("It ends within seconds.")
            return
        found = client.notebook(reference, program)
        while found["state"] in ON_THE_WAY:
            # The portal ends what does not start within three minutes.
            time.sleep(LOOK_SECONDS)
            found = client.notebook_read(reference)
        if found["state"] != "ready":
            raise Problem({"status": 409, "detail": f"It {found['state']}: {found['reason']}"})
        if is_json:
            json_print(found)
        else:
            line_print(f"{found['program']} on {found['node']}: {found['url']}")
