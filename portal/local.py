"""The whole portal on one machine: `make demo`.

Starts PostgreSQL, Valkey, the web, the workers, beat, the reader and four simulated GPU nodes;
Ctrl-C stops them in order. Everything it keeps lies in `var/`; a second start finds it again.
Demos with folders of their own run side by side.
"""

import argparse
import fcntl
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import psycopg

from portal.launch.embedded import (
    Home,
    ServerMissing,
    ValkeyAccess,
    free_port,
    http_answers,
    postgres_prepare,
    server_home_folder,
    server_home_make,
    valkey_prepare,
)
from portal.launch.processes import Program, StartFailed, leftovers_end, spawn_options
from portal.launch.programs import PROGRAMS, SOLVER_PROGRAM, PortalProgram
from portal.launch.supervisor import ProgramOutput, StopRequested, Supervisor
from portal.storage.database import Passwords, database_dsn, roles_ensure

ROOT = Path(__file__).resolve().parent.parent
AGENTS = {
    "gpu-a1-01": "h100:8",
    "gpu-a2-01": "a100:6,a100+mig:2",
    "gpu-b1-01": "a100-40:4,a100-40+mig:4",
    "gpu-c1-01": "l40s:4",
}
PORT_DEFAULT = 8000
# What who starts the demo may set for its processes.
INHERITED_VARIABLES = (
    "ALLOWED_HOSTS",
    "DEBUG",
    "CALLS_PER_TOKEN",
    "CALLS_PER_ADDRESS",
    "QUOTES_PER_PERSON",
)


class DemoError(Exception):
    """The demo can't run; the message says why and what to do."""


@dataclass(frozen=True)
class Secrets:
    """What is made once, on the first start, and kept in var/secrets.json."""

    django: str = field(repr=False)
    agents_master: str = field(repr=False)
    postgres: str = field(repr=False)
    owner: str = field(repr=False)
    web: str = field(repr=False)
    operators: str = field(repr=False)
    system: str = field(repr=False)
    valkey: str = field(repr=False)
    valkey_agents: str = field(repr=False)
    valkey_port: int
    # Agents keep the address that they were told when they enrolled.
    agents_port: int


@dataclass(frozen=True)
class Demo:
    """One demo: its folder and the address it is seen at."""

    var: Path
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    @property
    def seeded(self) -> Path:
        """The file that `seed_demo` writes: names, passwords and tokens to try the portal with."""
        return self.var / "demo.json"

    def agent_state(self, name: str) -> Path:
        """The folder that agent `name` keeps its state in."""
        return self.var / "agents" / name

    def identity(self, name: str) -> Path:
        """The file that agent `name` has once it is enrolled."""
        return self.agent_state(name) / "identity.json"


@dataclass(frozen=True)
class Stores:
    """Addresses of the stores: PostgreSQL as superuser, both Redis servers with all rights."""

    admin: str = field(repr=False)
    redis: str = field(repr=False)
    agents_redis: str = field(repr=False)


def secrets_load(var: Path) -> Secrets:
    """The secrets of `var`, made and written with mode 0600 if they are not there."""
    path = var / "secrets.json"
    if path.exists():
        kept = json.loads(path.read_text(encoding="utf-8"))
        # An older version may have kept more, or nothing yet of a password that came later.
        kept.setdefault("operators", secrets.token_hex(32))
        if "agents_port" not in kept:
            raise DemoError("An older version made this demo's data. Run: make clean-demo")
        own = Secrets(**{name: kept[name] for name in Secrets.__dataclass_fields__})
        _secrets_write(path, own)
        return own
    names = [name for name in Secrets.__dataclass_fields__ if not name.endswith("_port")]
    made = Secrets(
        **{name: secrets.token_hex(32) for name in names},
        valkey_port=free_port(),
        agents_port=free_port(),
    )
    _secrets_write(path, made)
    return made


def _secrets_write(path: Path, own: Secrets) -> None:
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_text(json.dumps(asdict(own), indent=1), encoding="utf-8")
    new.rename(path)


def stores_start(demo: Demo, own: Secrets, supervisor: Supervisor) -> Stores:
    """Start the embedded servers; DATABASE_URL (of a superuser), REDIS_URL and AGENTS_REDIS_URL
    take their place."""
    admin = os.environ.get("DATABASE_URL", "")
    home = server_home_make(demo.var / "servers")
    if not admin:
        postgres = postgres_prepare(home, own.postgres)
        supervisor.start([postgres.program])
        admin = postgres.url
    given = [os.environ.get(name, "") for name in ("REDIS_URL", "AGENTS_REDIS_URL")]
    own_servers = (
        ValkeyAccess(own.valkey_port, own.valkey),
        ValkeyAccess(own.agents_port, own.valkey_agents, for_agents=True),
    )
    redis, agents = (
        url or _valkey_start(home, access, supervisor)
        for url, access in zip(given, own_servers, strict=True)
    )
    return Stores(admin, redis, agents)


def _valkey_start(home: Home, access: ValkeyAccess, supervisor: Supervisor) -> str:
    if free_port(access.port) != access.port:
        raise DemoError(
            f"Port {access.port} of 127.0.0.1, which the demo uses, is taken by another program."
            " End that one, or run: make clean-demo"
        )
    supervisor.start([valkey_prepare(home, access).program])
    return access.url


def program_environment(demo: Demo, own: Secrets, stores: Stores, role: str) -> dict[str, str]:
    """The environment of a portal process that connects as database role `role`."""
    password = {
        "portal_owner": own.owner,
        "portal_web": own.web,
        "portal_operators": own.operators,
        "portal_system": own.system,
    }[role]
    return {
        **_plain_environment(),
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "SECRET_KEY": own.django,
        # A web process derives no node's key.
        **({} if role == "portal_web" else {"AGENTS_MASTER_KEY": own.agents_master}),
        "DATABASE_URL": database_dsn(stores.admin, "portal", user=role, password=password),
        "REDIS_URL": stores.redis,
        "AGENTS_REDIS_URL": stores.agents_redis,
        "PUBLIC_URL": demo.url,
        "COOKIE_PREFIX": f"portal-{demo.port}",
        "MAIL_URL": f"file://{demo.var}/mail",
        "DEMO_FILE": str(demo.seeded),
        "LOG_LEVEL": os.environ.get("LOG_LEVEL", "WARNING"),
        **{name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ},
    }


def prepare(demo: Demo, environment: Mapping[str, str]) -> dict[str, str]:
    """Migrate and seed; returns one-time tokens for those nodes that never enrolled."""
    new = [name for name in AGENTS if not demo.identity(name).exists()]
    folder = demo.var / "tokens"
    shutil.rmtree(folder, ignore_errors=True)
    command = (sys.executable, "-m", "portal.launch.prepare", str(folder), *new)
    program = Program("prepare", command, environment, ROOT)
    done = subprocess.run(  # noqa: S603 (our own module, never a shell)
        program.command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **spawn_options(program),
    )
    if done.returncode:
        said = done.stdout.decode("utf-8", "replace")
        raise DemoError(f"The database could not be prepared:\n{said}")
    return {name: (folder / name).read_text(encoding="utf-8") for name in new}


def portal_programs(demo: Demo, own: Secrets, stores: Stores) -> list[Program]:
    """Web, operators' process, workers, beat and reader, each with the role that it needs."""
    inner = free_port()
    places = {"operators": ("127.0.0.1", inner), "web": (demo.host, demo.port)}
    return [
        _portal_program(
            each,
            {
                **program_environment(demo, own, stores, each.role),
                **dict.fromkeys(each.needs, f"http://127.0.0.1:{inner}"),
            },
            places.get(each.name),
        )
        for each in PROGRAMS
    ]


def _portal_program(
    one: PortalProgram, environment: Mapping[str, str], place: tuple[str, int] | None
) -> Program:
    command = (sys.executable, *one.arguments)
    # Celery fears code in pickled tasks of a worker that runs as root; ours take JSON only.
    quiet = {"PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges"}
    environment = {**environment, **one.settings, **quiet}
    if place is None:
        return Program(one.name, command, environment, ROOT)
    host, port = place
    return Program(
        name=one.name,
        command=(*command, "--host", host, "--port", str(port)),
        environment=environment,
        folder=ROOT,
        is_ready=lambda: http_answers(port, "/healthz"),
    )


def agent_programs(demo: Demo, tokens: Mapping[str, str], database: str) -> list[Program]:
    """The simulated nodes. They know the portal's address and their token, and no secret of it.

    One is ready when the portal, whose owner's `database` is asked, has heard it.
    """
    programs = []
    with psycopg.connect(database) as connection:
        (begun,) = connection.execute("SELECT now()").fetchone() or (None,)
    for name, hardware in AGENTS.items():
        environment = {
            **_plain_environment(),
            **({"GPU_AGENT_TOKEN": tokens[name]} if name in tokens else {}),
        }
        options = ("--name", name, "--simulate", hardware, "--state", str(demo.agent_state(name)))
        programs.append(
            Program(
                name=name,
                command=(
                    *(sys.executable, "-m", "allocation.agent", "--portal", demo.url),
                    *options,
                ),
                environment=environment,
                folder=ROOT,
                is_ready=partial(_node_is_connected, database, name, begun),
            )
        )
    return programs


def _node_is_connected(database: str, name: str, begun: object) -> bool:
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT last_seen > %s FROM allocation_node WHERE name = %s", [begun, name]
        )
        return row.fetchone() == (True,)


def demo_run(demo: Demo) -> None:
    """Run the demo until told to stop. Raises CannotRun, DidNotStart, ServerMissing, StopAsked."""
    lines = ProgramOutput(demo.var / "logs", is_quiet=True)
    supervisor = Supervisor(demo.var / "pids", lines)
    supervisor.listen()
    for name in leftovers_end(demo.var / "pids"):
        lines.say("launcher", f"{name} was still running from a killed start; ended")
    try:
        own = secrets_load(demo.var)
        _step("Starting PostgreSQL and Valkey")
        stores = stores_start(demo, own, supervisor)
        _step("preparing the database")
        roles_ensure(stores.admin, Passwords(own.owner, own.web, own.operators, own.system))
        owner = program_environment(demo, own, stores, "portal_owner")
        tokens = prepare(demo, owner)
        programs = portal_programs(demo, own, stores)
        _step("starting the portal")
        supervisor.start([program for program in programs if program.name != SOLVER_PROGRAM])
        _step(f"waiting for {len(AGENTS)} GPU nodes")
        supervisor.start(agent_programs(demo, tokens, owner["DATABASE_URL"]))
        # Before its nodes have come the fleet is out of service, and bookings would be refused.
        supervisor.start([program for program in programs if program.name == SOLVER_PROGRAM])
        welcome_print(demo)
        supervisor.run()
    finally:
        lines.say("launcher", "stopping")
        supervisor.stop()


def _step(words: str) -> None:
    """What the start is at, all on one line."""
    sys.stdout.write(f"{words} … ")
    sys.stdout.flush()


def welcome_print(demo: Demo) -> None:
    """Say where the portal is, who can sign in, and what to try."""
    seeded = json.loads(demo.seeded.read_text(encoding="utf-8"))
    researcher = seeded["passwords"]["researcher"]["username"]
    text = [f"\n\nThe portal is ready: {demo.url}", ""]
    text += sign_in_lines(seeded)
    text.append(f"Sign in as {researcher}, type `2 h100 6h`, and press Enter twice.")
    text.append(
        f"Ctrl-C stops everything; what you did is kept. Logs: {_shown(demo.var / 'logs')}\n"
    )
    sys.stdout.write("\n".join(text) + "\n")
    sys.stdout.flush()


def _shown(path: Path) -> str:
    """The path as one would type it here."""
    return os.path.relpath(path)


def sign_in_lines(seeded: Mapping[str, Any]) -> list[str]:
    """The names and passwords that `seed_demo` wrote, one sign-in on a line."""
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
    """Remove everything the demo keeps."""
    leftovers_end(demo.var / "pids")
    for folder in (server_home_folder(demo.var / "servers"), demo.var):
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: list[str] | None = None) -> int:
    """Parse options, run the demo; the exit status is 0 after Ctrl-C, 1 when it can't run."""
    parser = argparse.ArgumentParser(prog="python -m portal.local", description=__doc__)
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
    """Hold `var` for this process alone: a lock that dies with it."""
    var.mkdir(parents=True, exist_ok=True)
    # User 65534 must get through to its own folder, and reads nothing else.
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


def _plain_environment() -> dict[str, str]:
    """What any program needs; nothing else of our environment is passed on."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "PATH") if name in os.environ}
    return {**kept, "PYTHONUNBUFFERED": "1", "TZ": "UTC"}


if __name__ == "__main__":
    sys.exit(main())
