"""The whole portal on one machine: `make demo`.

Starts PostgreSQL, Valkey, the web, the workers, beat, the reader and four simulated GPU nodes;
Ctrl-C stops them in order. All data is in `var/`; the next start continues with it. Demos with
different folders can run at the same time.
"""

import argparse
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

import psycopg

from agent.ports.notebook_programs import notebook_signal
from devtools.launch.embedded import (
    Home,
    ServerMissing,
    ValkeyAccess,
    free_port,
    postgres_prepare,
    server_home_folder,
    server_home_make,
    valkey_prepare,
)
from devtools.launch.processes import Program, StartFailed, leftovers_end, spawn_options
from devtools.launch.programs import (
    AGENTS,
    ROOT,
    SOLVER_PROGRAM,
    Demo,
    Secrets,
    Stores,
    agent_programs,
    cloud_program,
    notebooks_write,
    portal_programs,
    program_environment,
    runs_program,
    spare_program,
)
from devtools.launch.supervisor import ProgramOutput, StopRequested, Supervisor
from portal.storage.database import Passwords, roles_ensure

PORT_DEFAULT = 8000


class DemoError(Exception):
    """The demo cannot run; the message says why and what to do."""


def secrets_load(var: Path) -> Secrets:
    """The secrets of `var`; creates and writes them with mode 0600 if they are missing."""
    path = var / "secrets.json"
    if path.exists():
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored.keys() != Secrets.__dataclass_fields__.keys():
            raise DemoError("Another version made this demo's data. Run: make clean-demo")
        return Secrets(**stored)
    names = [name for name in Secrets.__dataclass_fields__ if not name.endswith("_port")]
    made = Secrets(
        **{name: token_hex(32) for name in names},
        valkey_port=free_port(),
        agents_port=free_port(),
        cloud_port=free_port(),
        notebooks_port=free_port(),
    )
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_text(json.dumps(asdict(made), indent=1), encoding="utf-8")
    new.rename(path)
    return made


def stores_start(demo: Demo, secrets: Secrets, supervisor: Supervisor) -> Stores:
    """Starts the embedded servers, except those that DATABASE_URL (of a superuser), REDIS_URL or
    AGENTS_REDIS_URL name."""
    admin = os.environ.get("DATABASE_URL", "")
    home = server_home_make(demo.var / "servers")
    if not admin:
        postgres = postgres_prepare(home, secrets.postgres)
        supervisor.start([postgres.program])
        admin = postgres.url
    given = [os.environ.get(name, "") for name in ("REDIS_URL", "AGENTS_REDIS_URL")]
    accesses = (
        ValkeyAccess(secrets.valkey_port, secrets.valkey),
        ValkeyAccess(secrets.agents_port, secrets.valkey_agents, for_agents=True),
    )
    redis, agents = (
        url or _valkey_start(home, access, supervisor) for url, access in zip(given, accesses, strict=True)
    )
    return Stores(admin, redis, agents)


def _valkey_start(home: Home, access: ValkeyAccess, supervisor: Supervisor) -> str:
    if free_port(access.port) != access.port:
        raise DemoError(
            f"Port {access.port} of 127.0.0.1, which the demo uses, is in use by another"
            " program. End that program, or run: make clean-demo"
        )
    supervisor.start([valkey_prepare(home, access).program])
    return access.url


def prepare(demo: Demo, environment: Mapping[str, str]) -> dict[str, str]:
    """Migrates and seeds; returns one-time tokens for the nodes that are not enrolled, or locked
    out: these forget who they were and enrol again, and wait for an operator's approval."""
    new = [name for name in AGENTS if not demo.identity(name).exists()]
    folder = demo.var / "tokens"
    shutil.rmtree(folder, ignore_errors=True)
    command = (sys.executable, "-m", "devtools.demo.prepare", str(folder), *new)
    program = Program("prepare", command, environment, ROOT)
    done = subprocess.run(  # noqa: S603 (our own module, never a shell)
        program.command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **spawn_options(program),
    )
    if done.returncode:
        output = done.stdout.decode("utf-8", "replace")
        raise DemoError(f"The database could not be prepared:\n{output}")
    tokens = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    for name in tokens:
        demo.agent_forget(name)
    return {name: token for name, token in tokens.items() if name in AGENTS}


def demo_run(demo: Demo) -> None:
    """Runs the demo until a signal asks to stop.

    Raises DemoError, StartFailed, ServerMissing, StopRequested.
    """
    lines = ProgramOutput(demo.var / "logs", is_quiet=True)
    supervisor = Supervisor(demo.var / "pids", lines)
    supervisor.listen()
    for name in leftovers_end(demo.var / "pids"):
        lines.say("launcher", f"{name} was still running from a killed start; ended")
    try:
        secrets = secrets_load(demo.var)
        _step("Starting PostgreSQL and Valkey")
        stores = stores_start(demo, secrets, supervisor)
        _step("preparing the database")
        roles_ensure(stores.admin, Passwords(secrets.owner, secrets.web, secrets.operators, secrets.system))
        # The first sprint of the demo asks for its offers.
        cloud = cloud_program(demo, secrets)
        owner = program_environment(demo, secrets, stores, "portal_owner")
        tokens = prepare(demo, owner)
        programs = portal_programs(demo, secrets, stores)
        has_notebooks = notebooks_write(demo, secrets)
        _step("starting the portal")
        supervisor.start([program for program in programs if program.name != SOLVER_PROGRAM])
        _step(f"waiting for {len(AGENTS)} GPU nodes")
        supervisor.start(agent_programs(demo, tokens, owner["DATABASE_URL"]))
        # After the nodes: without them the fleet is out of service, and bookings would be refused.
        supervisor.start([program for program in programs if program.name == SOLVER_PROGRAM])
        welcome_print(demo, has_notebooks=has_notebooks)
        supervisor.start(
            [*(spare_program(each) for each in programs if each.name == "web"), runs_program(demo), cloud]
        )
        supervisor.run()
    finally:
        lines.say("launcher", "stopping")
        supervisor.stop()
        notebooks_end(demo)


def notebooks_end(demo: Demo) -> None:
    """Ends the notebooks, which an agent that ends leaves running."""
    for record in demo.var.glob("agents/*/notebooks/*.json"):
        notebook_signal(record.stem, os.geteuid(), signal.SIGTERM)


def _step(words: str) -> None:
    """Prints a step of the start, all on one line."""
    sys.stdout.write(f"{words} … ")
    sys.stdout.flush()


def welcome_print(demo: Demo, *, has_notebooks: bool) -> None:
    """Prints the address, the sign-ins, and what to try."""
    seeded = json.loads(demo.seeded.read_text(encoding="utf-8"))
    researcher = seeded["passwords"]["researcher"]["username"]
    text = [f"\n\nThe portal is ready: {demo.url}", ""]
    text += sign_in_lines(seeded)
    text.append(f"Sign in as {researcher}, type `2 h100 6h`, and press Enter twice.")
    if has_notebooks:
        text.append("On the page of a booking that runs, press `Start jupyterlab`.")
    else:
        text.append("For notebooks on bookings, stop it, run `make notebook` once (240 MB), and start again.")
    text.append(f"Ctrl-C stops everything and keeps the data. Logs: {_shown(demo.var / 'logs')}\n")
    sys.stdout.write("\n".join(text) + "\n")
    sys.stdout.flush()


def _shown(path: Path) -> str:
    """The path relative to the current folder."""
    return os.path.relpath(path)


def sign_in_lines(seeded: Mapping[str, Any]) -> list[str]:
    """The names and passwords that the seeds wrote, one sign-in per line."""
    people: Mapping[str, Mapping[str, str]] = seeded["passwords"]
    return [
        f"  {'Name':<10} {'Password':<20} Role",
        *(
            f"  {person['username']:<10} {person['password']:<20} {part.replace('_', ' ')}"
            for part, person in people.items()
        ),
        "",
    ]


def clean(demo: Demo) -> None:
    """Removes all data of the demo."""
    leftovers_end(demo.var / "pids")
    for folder in (server_home_folder(demo.var / "servers"), demo.var):
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: list[str] | None = None) -> int:
    """Parses options and runs the demo; returns 0 after Ctrl-C, 1 if it cannot run."""
    parser = argparse.ArgumentParser(prog="python -m devtools.local", description=__doc__)
    parser.add_argument(
        "--port", type=int, help=f"port of the web; {PORT_DEFAULT}, or a free one if that is taken"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address that the web listens on")
    parser.add_argument("--var", type=Path, default=ROOT / "var", help="folder for all data")
    parser.add_argument("--clean", action="store_true", help="remove all data of the demo")
    options = parser.parse_args(arguments)
    port = options.port or free_port(PORT_DEFAULT)
    demo = Demo(options.var.resolve(), options.host, port)
    try:
        with _locked(demo.var):
            if options.clean:
                clean(demo)
                return 0
            _port_check(demo)
            demo_run(demo)
    except StopRequested:
        return 0
    except (DemoError, StartFailed, ServerMissing, psycopg.Error) as error:
        sys.stderr.write(f"\nThe demo did not start. {error}\n")
        return 1
    return 0


def _locked(var: Path) -> IO[str]:
    """Locks `var` until this process ends."""
    var.mkdir(parents=True, exist_ok=True)
    # User 65534 must be able to reach its own folder inside.
    var.chmod(0o711)
    lock = (var / "lock").open("w", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise DemoError(
            f"A demo already runs with the data in {_shown(var)}. Stop it, or start a second one"
            " with a folder of its own: make demo VAR=../second-demo"
        ) from None
    return lock


def _port_check(demo: Demo) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((demo.host, demo.port))
        except OSError as error:
            raise DemoError(
                f"Port {demo.port} can't be used ({error.strerror}). Try: make demo PORT=9000"
            ) from None


if __name__ == "__main__":
    sys.exit(main())
