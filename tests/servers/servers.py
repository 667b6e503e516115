"""One PostgreSQL and one Valkey per test process, started when the first test asks for them.

The tests connect as `portal_test`, which may become portal_web, portal_ops or portal_system and is
born as portal_web: row-level security is on, as it is for a web process.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psycopg
import redis
from psycopg import sql

from devtools.launch.embedded import (
    Home,
    ValkeyAccess,
    free_port,
    postgres_prepare,
    server_home_make,
    valkey_prepare,
)
from devtools.launch.processes import Program, start, stop
from portal.storage.database import Passwords, database_dsn, database_rights, roles_ensure
from tests.servers.kept_cluster import KeptCluster
from tests.servers.renewal import MOST_RENEWALS, Renewal

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = "portal_template"
DATABASE = "portal_test"


class MigrationFailed(Exception):
    """`manage.py migrate` failed; the message is its output."""


class Servers:
    """The servers of this test process; nothing runs until it is asked for."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gpup-"))
        # User 65534 runs the servers when the tests run as root.
        self.folder.chmod(0o711)
        self.kept = KeptCluster()
        self.password = self.kept.password
        self.access = ValkeyAccess(free_port(), secrets.token_hex(16))
        self.agents_access = ValkeyAccess(free_port(), secrets.token_hex(16), for_agents=True)
        self.running: dict[str, tuple[subprocess.Popen[bytes], Program]] = {}
        self.renewal: Renewal | None = None
        self.renewals = 0
        self.clients: dict[str, redis.Redis] = {}

    @property
    def sockets(self) -> Path:
        return self.folder / "run" / "sockets"

    @property
    def admin_dsn(self) -> str:
        return f"postgresql://postgres:{self.password}@/postgres?host={quote(str(self.sockets))}"

    @property
    def owner_dsn(self) -> str:
        """The test database, as the owner of its tables."""
        return self.dsn("portal_owner", DATABASE)

    def dsn(self, user: str, database: str = DATABASE) -> str:
        """The address of `database` for a login role."""
        return database_dsn(self.admin_dsn, database, user=user, password=self.password)

    def environment(self) -> dict[str, str]:
        """What portal processes and this one need to know; valid before anything runs."""
        options = quote("-c role=portal_web", safe="")
        return {
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "DATABASE_URL": f"{self.dsn('portal_test')}&options={options}",
            "REDIS_URL": self.access.url,
            "AGENTS_REDIS_URL": self.agents_access.url,
            "SECRET_KEY": self.password * 2,
            "AGENTS_MASTER_KEY": self.password * 2,
            "PUBLIC_URL": "http://localhost",
            "ALLOWED_HOSTS": "localhost,127.0.0.1,testserver",
            "DEBUG": "0",
            "LOG_LEVEL": "WARNING",
        }

    def valkey_ensure(self) -> None:
        """Start both Valkeys, unless they run."""
        for access in (self.access, self.agents_access):
            if access.name not in self.running:
                home = server_home_make(self.folder / "run")
                self._start(valkey_prepare(home, access, durable=False).program)

    def valkey_flush(self) -> None:
        """Empty the Valkeys that run. A connection for each test would take longer than that."""
        for access in (self.access, self.agents_access):
            if access.name in self.running:
                if access.url not in self.clients:
                    self.clients[access.url] = redis.Redis.from_url(access.url)
                self.clients[access.url].flushall()

    def postgres_killed(self) -> None:
        """kill -9 of PostgreSQL with all its children, as when a machine's memory runs out."""
        self._renewal_close()
        process, _ = self.running.pop("postgres")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in (process.pid, *map(int, children)):
            # A child may have ended by itself meanwhile.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def postgres_again(self) -> None:
        """What was killed starts, with the data that it had."""
        home = server_home_make(self.folder / "run")
        self._start(postgres_prepare(home, self.password, durable=False).program)

    def postgres_ensure(self) -> None:
        """Start PostgreSQL with the portal's roles and a migrated template, unless it runs."""
        if "postgres" in self.running:
            return
        home = server_home_make(self.folder / "run")
        with self.kept.alone():
            if not self.kept.copy_to(home.folder / "postgres"):
                self._cluster_make(home)
                self.kept.keep(home.folder / "postgres")
        self._start(postgres_prepare(home, self.password, durable=False).program)

    def database_ensure(self) -> None:
        """A migrated database of this process: real migrations, run by the owner."""
        self.postgres_ensure()
        if self.renewal is None:
            self._database_copy()

    def _cluster_make(self, home: Home) -> None:
        """Make a cluster whose template database is migrated, and stop it."""
        server = postgres_prepare(home, self.password, durable=False).program
        process = start(server)
        try:
            self._roles_make()
            self._migrate()
        finally:
            stop(process, server)

    def _roles_make(self) -> None:
        roles_ensure(
            self.admin_dsn,
            Passwords(self.password, self.password, self.password, self.password),
            database=TEMPLATE,
        )
        with psycopg.connect(self.admin_dsn, autocommit=True) as admin:
            admin.execute(
                sql.SQL("CREATE ROLE portal_test LOGIN NOINHERIT PASSWORD {}").format(
                    sql.Literal(self.password)
                )
            )
            admin.execute(
                "GRANT portal_web, portal_ops, portal_system, portal_owner TO portal_test"
                " WITH INHERIT FALSE, SET TRUE"
            )

    def _migrate(self) -> None:
        done = subprocess.run(
            [sys.executable, "manage.py", "migrate", "--no-input", "--skip-checks", "-v", "0"],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": self.dsn("portal_owner", TEMPLATE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise MigrationFailed(done.stdout)

    def database_renew(self, kept: int | None = None) -> bool:
        """Make the test database as it was after its migrations; ends all sessions but that of the
        process `kept`. Returns False if that one has ended, too.

        This also brings back what migrations put in, and is not stopped by append-only tables,
        which refuse TRUNCATE.
        """
        if self.renewal is not None and self.renewals < MOST_RENEWALS:
            self.renewals += 1
            # A test may have restarted PostgreSQL or replaced the database, or holds a lock.
            with suppress(psycopg.OperationalError):
                if self.renewal.restore(kept):
                    return kept is not None
        self._database_copy()
        return False

    def _database_copy(self) -> None:
        """Replace the test database by a fresh copy of the migrated one."""
        self._renewal_close()
        name, template = sql.Identifier(DATABASE), sql.Identifier(TEMPLATE)
        with psycopg.connect(self.admin_dsn, autocommit=True) as admin:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
            admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER portal_owner").format(name, template))
            # A copy has not the rights of what it was copied from.
            database_rights(admin, DATABASE)
            admin.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO portal_test").format(name))
        # Programs that run may connect again at once; who waits for them too long copies instead.
        limits = "-c lock_timeout=20s -c statement_timeout=60s"
        server = psycopg.connect(self.dsn("postgres"), autocommit=True, options=limits)
        self.renewal, self.renewals = Renewal.prepare(server), 0

    def _renewal_close(self) -> None:
        if self.renewal is not None:
            self.renewal.server.close()
            self.renewal = None

    def close(self) -> None:
        """Stop what runs and remove all files."""
        self._renewal_close()
        for client in self.clients.values():
            client.close()
        for process, program in reversed(self.running.values()):
            stop(process, program)
        self.running.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, program: Program) -> None:
        self.running[program.name] = (start(program), program)
