"""The primary PostgreSQL dies and its standby is promoted: streaming replication, synchronous.

The programs name both servers in `DATABASE_URL` and take the one that can be written to.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import httpx
import psycopg
import pytest

from devtools.launch.embedded import free_port, postgres_answers
from devtools.launch.processes import Program, identity_options, start, stop
from tests.servers.live import web_program, worker_program
from tests.servers.servers import DATABASE, ROOT, Servers
from tests.servers.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.long]
ACCEPTED_BEFORE, ACCEPTED_AFTER = 12, 3


class Pair(Servers):
    """Servers of their own, with a standby for the PostgreSQL; addresses name both."""

    standby = ""

    def dsn(self, user: str, database: str = DATABASE) -> str:
        both = quote(f"{self.sockets},{self.standby}" if self.standby else str(self.sockets))
        options = "&target_session_attrs=read-write" if self.standby else ""
        return f"postgresql://{user}:{self.password}@/{database}?host={both}{options}"

    def standby_start(self) -> None:
        """A copy of the primary that follows it; commits wait for it from now on."""
        _, primary = self.running["postgres"]
        binaries, home = Path(primary.command[0]).parent, self.folder / "run"
        data, sockets = home / "standby", home / "standby-sockets"
        sockets.mkdir(mode=0o700)
        if primary.user is not None:
            os.chown(sockets, primary.user, primary.user)
        command = (
            str(binaries / "pg_basebackup"),
            "-D",
            str(data),
            "-R",
            "-X",
            "stream",
            "--checkpoint=fast",
            "--dbname",
            self.admin_dsn,
        )
        subprocess.run(command, check=True, cwd=home, **identity_options(primary.user))
        admin = self.admin_dsn.replace(quote(str(self.sockets)), quote(str(sockets)))
        program = Program(
            name="standby",
            command=(
                *(str(binaries / "postgres"), "-D", str(data), "-c", "listen_addresses="),
                *("-c", f"unix_socket_directories={sockets}", "-c", "max_connections=200"),
            ),
            environment=primary.environment,
            folder=home,
            user=primary.user,
            stop_signal=primary.stop_signal,
            is_ready=lambda: postgres_answers(admin),
        )
        self._start(program)
        with psycopg.connect(self.admin_dsn, autocommit=True) as server:
            server.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            for role in ("portal_web", "portal_operators", "portal_system"):
                server.execute(f"ALTER ROLE {role} SET synchronous_commit = on")
            server.execute("SELECT pg_reload_conf()")
            wait_until(lambda: _is_synchronous(server), seconds=30)
        self.standby, self.standby_admin = str(sockets), admin

    def standby_promoted(self) -> None:
        with psycopg.connect(self.standby_admin, autocommit=True) as server:
            # There is nobody yet who would follow it.
            server.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            assert server.execute("SELECT pg_promote()").fetchone() == (True,)


def _is_synchronous(server: "psycopg.Connection[tuple[object, ...]]") -> bool:
    row = server.execute("SELECT sync_state FROM pg_stat_replication").fetchone()
    return row == ("sync",)


@contextmanager
def running(programs: list[Program]) -> Iterator[None]:
    begun = [(start(program), program) for program in programs]
    try:
        yield
    finally:
        for process, program in reversed(begun):
            stop(process, program)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    found = Pair()
    for name, value in found.environment().items():
        monkeypatch.setenv(name, value)
    try:
        found.database_ensure()
        found.valkey_ensure()
        found.standby_start()
        yield found
    finally:
        found.close()


def _python(pair: Pair, role: str, *command: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        text=True,
        check=True,
        env={**os.environ, "DATABASE_URL": pair.dsn(role), **environment},
        stdout=subprocess.PIPE,
    )
    return done.stdout


def _book(client: httpx.Client, key: str) -> str | None:
    """The number of a booking, or None where the portal could not take it."""
    request = {"project": "protein-folding", "request": "1 1g.10gb h100 1h"}
    try:
        answer = client.post("/bookings", json=request, headers={"Idempotency-Key": key})
    except httpx.TransportError:
        return None
    if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        return None
    assert answer.status_code == httpx.codes.CREATED, answer.text
    return str(answer.json()["id"])


def _is_decided(client: httpx.Client, booking: str) -> bool:
    answer = client.get(f"/bookings/{booking}")
    return answer.is_success and answer.json()["state"] != "requested"


def test_the_portal_goes_on_with_a_promoted_standby(pair: Pair, tmp_path: Path) -> None:
    port, keys = free_port(), tmp_path / "demo.json"
    prepared = ("-m", "devtools.demo.prepare", str(tmp_path / "tokens"))
    _python(pair, "portal_owner", *prepared, DEMO_FILE=str(keys))
    token = json.loads(keys.read_text())["tokens"]["researcher"]
    client = httpx.Client(
        base_url=f"http://127.0.0.1:{port}/api/v1",
        timeout=30,
        headers={"Authorization": f"Bearer {token}"},
    )
    with client, running([web_program(pair, port), worker_program(pair, "solver")]):
        accepted = [_book(client, str(uuid4())) for _ in range(ACCEPTED_BEFORE)]
        pair.postgres_killed()
        lost = str(uuid4())
        assert _book(client, lost) is None
        pair.standby_promoted()
        wait_until(lambda: _book(client, lost) is not None, seconds=60)
        accepted += [_book(client, lost), *(_book(client, str(uuid4())) for _ in range(2))]
        assert None not in accepted
        assert len(set(accepted)) == ACCEPTED_BEFORE + ACCEPTED_AFTER
        wait_until(lambda: all(_is_decided(client, str(b)) for b in accepted), seconds=60)
    _python(pair, "portal_system", "manage.py", "invariants")
