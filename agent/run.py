"""Commands for a booking's owner on its node.

`gpu-agent run BK-12 -- COMMAND …` starts a program of the booking.

The program replaces this one, with the booking's environment added. Exit status: 2 for a
wrong call, 4 when the booking has no devices on this node now, 126 or 127 when the command can't
be started, else the command's own.
"""

import argparse
import json
import os
import pwd
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.owner.shares import SAVED, meeting_port, tf_config
from agent.ports.systemd import is_inside

RUN = "GPU_BOOKING_RUN"
NOT_ACTIVE = 4
CANNOT_START = 126
NOT_FOUND = 127
_OWN = ("GPU_BOOKING", "GPU_BOOKING_TENANT")
_TRIES = 20
# The agent looks every 5 s.
_JOIN_S = 15.0
_JOIN_EVERY_S = 0.1


class NotNow(Exception):
    """The booking can't be used here now, for the reason in the message."""


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Returns only when the command was not started."""
    parser = _parser(environment)
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("say what to run, after --")
    try:
        found = booking_find(options.state / "bookings", options.booking, account_here(), time.time())
        values = environment_of(found, options.part)
        values |= meeting(found, run_name(found, options.run, environment))
        if not slice_reached(found, environment):
            again = [sys.executable, "-m", "agent", "run", *arguments]
            os.execve(again[0], again, {**environment, **values})  # noqa: S606 (ourselves)
    except (NotNow, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return NOT_ACTIVE
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, {**environment, **values})  # noqa: S606 (what the user asked for, no shell)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_START


def saved(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    parser = argparse.ArgumentParser(
        prog="gpu-agent saved",
        description="Say that everything is saved, so that a pause needs to wait no longer.",
    )
    state_option(parser, environment)
    parser.add_argument("booking", help="BK-12, or helix.BK-12")
    options = parser.parse_args(arguments)
    root = options.state / "bookings"
    try:
        found = booking_find(root, options.booking, account_here(), time.time())
        # Its time alone counts; a file that is not there is never made.
        os.utime(root / f"{found['tenant']}.{found['booking']}" / SAVED)
    except PermissionError:
        sys.stderr.write(f"only {found['owner']} may say that of {options.booking}\n")
        return NOT_ACTIVE
    except (NotNow, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return NOT_ACTIVE
    return 0


def booking_find(root: Path, wanted: str, account: str, now: float) -> dict[str, Any]:
    """The `booking.json` of an active booking, by full name (`helix.BK-12`) or, for its owner, by
    its number alone: numbers are their tenants' own. An element of an array may be `BK-12[3]`.
    `now` in Unix seconds. Raises NotNow, OSError.
    """
    wanted = wanted.replace("[", "_").removesuffix("]")
    paths = {path.parent.name: path for path in root.glob("*/booking.json")}
    names = [name for name in sorted(paths) if wanted in (name, name.rpartition(".")[2])]
    if not names:
        raise NotNow(f"{wanted} has no devices on this node now. Is it its time, and this its node?")
    if len(names) > 1:
        raise NotNow(f"{wanted} is several bookings here. Say which: {' or '.join(names)}")
    try:
        found: dict[str, Any] = json.loads(paths[names[0]].read_bytes())
    except (ValueError, FileNotFoundError) as error:
        raise NotNow(f"{wanted} is just coming or going ({error}). Try again.") from error
    theirs = found.get("account", found["owner"])
    if not theirs:
        raise NotNow(f"No account of this node is known for {found['owner']}, who has {names[0]}.")
    if wanted != names[0] and theirs != account:
        raise NotNow(
            f"{wanted} here is {names[0]}, of {found['owner']}, and you are {account}."
            f" If you mean that one, say {names[0]}."
        )
    if now >= found["ends"]:
        ended = datetime.fromtimestamp(found["ends"], UTC)
        raise NotNow(f"{names[0]} ended at {ended:%d %b %H:%M} UTC.")
    return found


def environment_of(booking: Mapping[str, Any], part: int | None) -> dict[str, str]:
    """Returns the variables of the booking on this node, or of its device `part`. Raises NotNow."""
    values: dict[str, str] = dict(booking["environment"])
    devices = booking["devices"]
    word = "slices" if booking["sliced"] else "shares"
    divided = booking["sliced"] or not booking["isolated"]
    if part is None and divided and len(devices) > 1:
        raise NotNow(
            f"{booking['booking']} has {len(devices)} {word} here, and a program uses one:"
            f" say --part 0 to --part {len(devices) - 1}."
        )
    if part is None:
        return values
    if not 0 <= part < len(devices):
        raise NotNow(f"{booking['booking']} has {len(devices)} devices here, counted from 0.")
    return {**values, **booking["parts"][part]}


def run_name(booking: Mapping[str, Any], said: str | None, environment: Mapping[str, str]) -> str | None:
    """Returns the name of the run; None for the booking's own.

    Programs that a run starts, such as MPI's, belong to it. On several nodes only a given name is
    the same everywhere; on one node the process id is the name, if its port is free.
    """
    same = all(environment.get(name) == booking["environment"][name] for name in _OWN)
    inherited = environment.get(RUN) if same else None
    if said or inherited or len(booking["nodes"]) > 1:
        return said or inherited
    names = (f"{os.getpid()}.{number}" for number in range(_TRIES))
    return next((name for name in names if _free(_port(booking, name))), None)


def meeting(booking: Mapping[str, Any], run: str | None) -> dict[str, str]:
    """Returns where the processes of this run meet."""
    if run is None:
        return {}
    port = _port(booking, run)
    values = {RUN: run, "MASTER_PORT": str(port), "PET_MASTER_PORT": str(port)}
    if len(booking["nodes"]) > 1:
        nodes = (each["node"] for each in booking["nodes"])
        values["TF_CONFIG"] = tf_config(nodes, booking["node_rank"], port)
    return values


def slice_reached(
    booking: Mapping[str, Any],
    environment: Mapping[str, str],
    *,
    inside: Callable[[str], bool] = is_inside,
    wait: Callable[[float], None] = time.sleep,
) -> bool:
    """Returns true in the booking's slice, or without one: only there the devices can be opened.

    The agent moves programs that name the booking in their environment. Returns False if this
    process does not name it and must be restarted with it. Raises NotNow, OSError.
    """
    unit = booking.get("slice", "")
    if not unit or inside(unit):
        return True
    if any(environment.get(name) != booking["environment"][name] for name in _OWN):
        return False
    for _ in range(round(_JOIN_S / _JOIN_EVERY_S)):
        wait(_JOIN_EVERY_S)
        if inside(unit):
            return True
    raise NotNow(
        f"The agent has not moved this program to {unit} within {_JOIN_S:g} s, and outside of it"
        " the devices can't be opened. Does the agent run? Else log in again."
    )


def _port(booking: Mapping[str, Any], run: str) -> int:
    return meeting_port(f"{booking['tenant']}.{booking['booking']}", run)


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu-agent run",
        description="Run a program of a booking on its node.",
        usage="%(prog)s [--part N] [--run NAME] [--state FOLDER] BOOKING -- COMMAND …",
    )
    parser.add_argument("--part", type=int, help="use one device only, counted from 0")
    parser.add_argument(
        "--run", metavar="NAME", help="a port of its own for this run: the same NAME on all nodes"
    )
    state_option(parser, environment)
    parser.add_argument("booking", help="BK-12, or helix.BK-12")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    return parser


def state_option(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Adds the option for the agent's folder."""
    parser.add_argument(
        "--state",
        type=Path,
        default=Path(environment.get("GPU_AGENT_STATE", "/var/lib/gpu-agent")),
        help="the agent's folder",
    )


def account_here() -> str:
    """Returns the name of the calling account, its number without one."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
