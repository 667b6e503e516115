"""Commands on a node: the environment of a booking and programs in it, by the node's agent."""

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from allocation.agent import run as agent_run

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
