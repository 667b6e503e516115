"""Three machines of a site, each with an address of its own on loopback, and their servers.

The servers are started by `deploy/machines/server.sh`, as systemd and the containers start them.
Needs `make failover`: Patroni in an environment of its own, and etcd of Debian's packages.
"""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from subprocess import Popen
from typing import Any
from urllib.error import URLError

import psycopg
import redis
from psycopg import sql

from devtools.launch.embedded import (
    PLAIN_ENVIRONMENT,
    ServerMissing,
    ValkeyAccess,
    postgres_prepare,
    server_home_make,
    valkey_prepare,
)
from devtools.launch.processes import Program, identity_options, start, stop
from portal.storage.database import database_rights
from tenants.platform.stores.redis_servers import redis_client
from tests.servers.servers import ROOT, TEMPLATE, Servers
from tests.servers.waiting import wait_until

SCRIPT = ROOT / "deploy" / "machines" / "server.sh"
PATRONI = ROOT / ".venv-failover"
STORES = (1, 2)
MACHINES = (1, 2, 3)
SERVERS = ("etcd", "sentinel", "valkey", "valkey-agents", "patroni")
WITNESS = ("etcd", "sentinel")
PORTS = {"valkey": 6379, "valkey-agents": 6380}
SERVICES = {"valkey": "portal", "valkey-agents": "agents"}
SECRETS = (
    *("POSTGRES_PASSWORD", "REPLICATION_PASSWORD", "PATRONI_PASSWORD", "VALKEY_PASSWORD"),
    *("VALKEY_AGENTS_PASSWORD", "SENTINEL_PASSWORD", "SENTINEL_PORTAL_PASSWORD"),
)
ROLES = ("owner", "web", "operators", "system")
DATABASE = "portal"


def missing() -> list[str]:
    """What is not installed."""
    found = {"etcd": shutil.which("etcd"), "patroni": (PATRONI / "bin" / "patroni").exists()}
    return [name for name, there in found.items() if not there]


class Machines:
    """The servers of all three machines, in folders below `folder`."""

    def __init__(self, folder: Path) -> None:
        """Nothing runs yet."""
        folder.chmod(0o711)
        self.home = server_home_make(folder / "servers")
        self.logs = folder / "logs"
        self.logs.mkdir()
        number = os.getpid()
        net = f"127.{64 + number // 250 % 128}.{number % 250 + 1}"
        self.address = {machine: f"{net}.{machine}" for machine in MACHINES}
        self.secrets = {name: secrets.token_hex(16) for name in SECRETS}
        self.passwords = {role: secrets.token_hex(16) for role in ROLES}
        self.portal_secrets = {name: secrets.token_hex(32) for name in ("SECRET_KEY", "AGENTS_MASTER_KEY")}
        self.running: dict[tuple[int, str], Popen[bytes]] = {}
        self._binaries = self._servers_copied()

    def cluster_take(self) -> None:
        """Begins with a migrated cluster, as a site does that had one machine before."""
        with closing(Servers()) as servers:
            servers.postgres_ensure()
            self.secrets["POSTGRES_PASSWORD"] = servers.password
            self.passwords = dict.fromkeys(ROLES, servers.password)
            with psycopg.connect(servers.admin_dsn, autocommit=True) as admin:
                made = sql.SQL("CREATE ROLE replicator REPLICATION LOGIN PASSWORD {}")
                admin.execute(made.format(sql.Literal(self.secrets["REPLICATION_PASSWORD"])))
                admin.execute(f"CREATE DATABASE {DATABASE} TEMPLATE {TEMPLATE} OWNER portal_owner")
                database_rights(admin, DATABASE)
            process, program = servers.running.pop("postgres")
            stop(process, program)
            self._data(1)
            shutil.move(servers.folder / "run" / "postgres", self._data(1) / "postgres")

    def _data(self, machine: int) -> Path:
        data = self.home.folder / f"machine-{machine}"
        data.mkdir(exist_ok=True, mode=0o700)
        if self.home.user is not None:
            os.chown(data, self.home.user, self.home.user)
        return data

    def _servers_copied(self) -> dict[str, str]:
        """Programs where the servers' user can reach them."""
        for folder in ("postgres", "valkey"):
            shutil.rmtree(self.home.folder / folder, ignore_errors=True)
        postgres = postgres_prepare(self.home, "x" * 16, durable=False).program
        valkey = valkey_prepare(self.home, ValkeyAccess(1, "x"), durable=False).program
        shutil.rmtree(self.home.folder / "postgres")
        shutil.copytree(SCRIPT.parent, self.home.folder / "deploy")
        program = self.home.folder / "patroni"
        (packages,) = PATRONI.glob("lib/python*/site-packages")
        shutil.copytree(packages, self.home.folder / "patroni-packages")
        command = f"PYTHONPATH={self.home.folder}/patroni-packages exec {self._python()}"
        program.write_text(f'#!/bin/sh\n{command} -m patroni "$@"\n')
        program.chmod(0o755)
        return {
            "PATRONI_POSTGRESQL_BIN_DIR": str(Path(postgres.command[0]).parent),
            "VALKEY_SERVER": valkey.command[0],
            "PATRONI": str(program),
        }

    def _python(self) -> str:
        """An interpreter that the servers' user can start, with the packages of Patroni."""
        for path in (str(Path(sys.executable).resolve()), "/usr/bin/python3"):
            done = subprocess.run(
                [*("/usr/bin/env", path), "-c", "import patroni, psutil, psycopg"],
                env={**PLAIN_ENVIRONMENT, "PYTHONPATH": f"{self.home.folder}/patroni-packages"},
                cwd=self.home.folder,
                stderr=subprocess.DEVNULL,
                check=False,
                **identity_options(self.home.user),
            )
            if done.returncode == 0:
                return path
        raise ServerMissing("No Python that user 65534 may start has the version of .venv-failover.")

    def server_start(self, machine: int, name: str) -> None:
        """Starts one server of a machine, as its unit or its container would."""
        environment = {
            **PLAIN_ENVIRONMENT,
            **self.secrets,
            **self._binaries,
            **{f"MACHINE_{number}": address for number, address in self.address.items()},
            "MACHINE": str(machine),
            "DATA": str(self._data(machine)),
        }
        program = Program(
            name=f"{name}-{machine}",
            command=("/bin/sh", str(self.home.folder / "deploy" / SCRIPT.name), name),
            environment=environment,
            folder=self.home.folder,
            user=self.home.user,
        )
        self.program_start(machine, name, program)

    def program_start(self, machine: int, name: str, program: Program) -> None:
        """Starts a program of a machine; its output is in a file of its name."""
        with (self.logs / f"{name}-{machine}.log").open("ab") as output:
            self.running[machine, name] = start(program, output)

    def start(self) -> None:
        """Starts all servers, in an order in which each finds what it needs."""
        for machine in MACHINES:
            for name in WITNESS if machine == 3 else SERVERS:
                # The first one makes the cluster, or has it.
                if (machine, name) != (2, "patroni"):
                    self.server_start(machine, name)
        wait_until(lambda: self.leader() != 0, seconds=120)
        self.server_start(2, "patroni")
        for name in PORTS:
            wait_until(lambda name=name: self.replicas(name) == 1, seconds=60)  # type: ignore[misc]
        wait_until(lambda: self.standby() is not None, seconds=120)

    def kill(self, machine: int, *names: str) -> None:
        """`kill -9` of programs at once, with all that they started."""
        for name in names:
            process = self.running.pop((machine, name))
            for pid in (process.pid, *descendants(process.pid)):
                _signal(pid, signal.SIGKILL)
            process.wait()

    def postgres_kill(self, machine: int) -> None:
        """`kill -9` of PostgreSQL alone. It is no child of Patroni, so that it outlives it."""
        for pid in self._postgres(machine):
            _signal(pid, signal.SIGKILL)

    def _postgres(self, machine: int) -> list[int]:
        path = self.home.folder / f"machine-{machine}" / "postgres" / "postmaster.pid"
        if not path.exists():
            return []
        pid = int(path.read_text().split()[0])
        return [pid, *descendants(pid)]

    def kill_machine(self, machine: int) -> list[str]:
        """Kills all that runs on a machine; returns what that was."""
        names = [name for number, name in self.running if number == machine]
        # Stopped first, so that none notices that the others are gone.
        for name in names:
            for pid in (self.running[machine, name].pid, *descendants(self.running[machine, name].pid)):
                _signal(pid, signal.SIGSTOP)
        self.postgres_kill(machine)
        self.kill(machine, *names)
        return names

    def close(self) -> None:
        """Kills everything."""
        for machine, name in list(self.running):
            self.kill(machine, name)
        for machine in STORES:
            self.postgres_kill(machine)
        shutil.rmtree(self.home.folder, ignore_errors=True)

    # What the servers say.

    def cluster(self) -> list[dict[str, Any]]:
        """The members of the PostgreSQL cluster, as a Patroni sees them."""
        for machine in STORES:
            try:
                with urllib.request.urlopen(
                    f"http://{self.address[machine]}:8008/cluster", timeout=2
                ) as answer:
                    return list(json.load(answer)["members"])
            except (OSError, URLError, ValueError):
                continue
        return []

    def _member(self, role: str, state: tuple[str, ...]) -> int | None:
        found = [m["name"] for m in self.cluster() if m["role"] == role and m["state"] in state]
        return int(found[0].removeprefix("machine-")) if found else None

    def leader(self) -> int:
        """The machine of the primary PostgreSQL; 0: none."""
        return self._member("leader", ("running",)) or 0

    def standby(self) -> int | None:
        """The machine that has each commit, too."""
        return self._member("sync_standby", ("running", "streaming"))

    def primary(self, name: str) -> int:
        """The machine of the primary Valkey, as the Sentinels say."""
        with redis_client(self.redis_url(name), socket_timeout=2) as client:
            client.ping()
            pool: Any = client.connection_pool
            host, _ = pool.master_address
        return int(str(host).rpartition(".")[2])

    def replicas(self, name: str) -> int:
        """How many replicas the primary Valkey has; 0 also where there is no primary."""
        try:
            with redis_client(self.redis_url(name), socket_timeout=2) as client:
                return int(client.info("replication")["connected_slaves"])
        except redis.RedisError:
            return 0

    # Addresses.

    def redis_url(self, name: str) -> str:
        """The portal's address of a Valkey, by the Sentinels."""
        password = self.secrets["VALKEY_PASSWORD" if name == "valkey" else "VALKEY_AGENTS_PASSWORD"]
        places = ",".join(f"{address}:26379" for address in self.address.values())
        own = f"sentinel_user=portal&sentinel_password={self.secrets['SENTINEL_PORTAL_PASSWORD']}"
        return f"redis+sentinel://portal:{password}@{places}/{SERVICES[name]}?{own}"

    def dsn(self, user: str, database: str = DATABASE) -> str:
        """The address of the database: of both servers, to take the one that can be written to."""
        password = (
            self.secrets["POSTGRES_PASSWORD"]
            if user == "postgres"
            else self.passwords[user.removeprefix("portal_")]
        )
        places = ",".join(f"{self.address[machine]}:5432" for machine in STORES)
        options = (
            "target_session_attrs=read-write&connect_timeout=3"
            "&keepalives_idle=3&keepalives_interval=2&keepalives_count=2&tcp_user_timeout=7000"
        )
        return f"postgresql://{user}:{password}@{places}/{database}?{options}"

    def environment(self, role: str, **more: str) -> Mapping[str, str]:
        """What a program of the portal with this role of the database is given."""
        agents = ",".join(f"{self.address[machine]}:6380" for machine in STORES)
        keys = {"SECRET_KEY": self.portal_secrets["SECRET_KEY"]}
        if role != "portal_web":
            keys = self.portal_secrets
        return {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
            **keys,
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "DATABASE_URL": self.dsn(role),
            "REDIS_URL": self.redis_url("valkey"),
            "AGENTS_REDIS_URL": self.redis_url("valkey-agents"),
            "AGENTS_REDIS_PUBLIC_URL": f"redis://{agents}",
            "PUBLIC_URL": "http://localhost:8000",
            "ALLOWED_HOSTS": ",".join(("localhost", *self.address.values())),
            "LOG_LEVEL": "WARNING",
            "PYTHONUNBUFFERED": "1",
            "CALLS_PER_ADDRESS": "1000000",
            "CALLS_PER_TOKEN": "1000000",
            **more,
        }

    def python(self, role: str, *command: str, **more: str) -> str:
        """Runs a command of the portal; returns what it prints."""
        done = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            text=True,
            check=True,
            env=dict(self.environment(role, **more)),
            stdout=subprocess.PIPE,
        )
        return done.stdout

    def database_make(self, folder: Path) -> dict[str, Any]:
        """Makes roles, tables and demo data, as far as they are missing; returns who may sign in."""
        given = {f"PORTAL_{role.upper()}_PASSWORD": word for role, word in self.passwords.items()}
        admin = {"DATABASE_ADMIN_URL": self.dsn("postgres", "postgres"), **given}
        self.python("portal_owner", "-m", "portal.storage.database", **admin)
        keys = folder / "demo.json"
        # Nobody waits for these commits to be on both machines.
        given = {"DEMO_FILE": str(keys), "PGOPTIONS": "-c synchronous_commit=local"}
        self.python("portal_owner", "-m", "devtools.demo.prepare", str(folder / "tokens"), **given)
        return dict(json.loads(keys.read_text()))

    def is_writable(self) -> bool:
        """Whether the database takes a write now."""
        try:
            with psycopg.connect(self.dsn("postgres", "postgres"), connect_timeout=2) as session:
                session.execute("SELECT pg_logical_emit_message(true, 'test', '')")
        except psycopg.Error:
            return False
        return True


def descendants(pid: int) -> list[int]:
    """All processes below one, also those that lead groups of their own."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [each for child in children for each in (int(child), *descendants(int(child)))]


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
