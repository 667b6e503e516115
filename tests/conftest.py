"""Real servers for all tests, started on first use, and the portal's settings pointed at them."""

import gc
import os
import shutil
import subprocess
from collections.abc import Iterator

import django
import pytest
import redis
from pytest_django import DjangoDbBlocker, Settings

from devtools.launch.embedded import free_port
from devtools.launch.processes import Program, StartFailed, start, stop
from tests.doors import doors_watch
from tests.servers.kept_session import session_kept
from tests.servers.live import operators_program, web_program
from tests.servers.servers import Servers

SERVERS = pytest.StashKey[Servers]()
pytest_plugins = ["tests.turns"]

# Collecting makes a million objects that stay: to look through them for rings takes a tenth of its
# time. `pytest_collection_finish` ends this.
gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage from now on, but never what collecting has made."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Say where the servers will be, before Django reads its settings.

    The process that only hands tests to xdist's workers needs none, and its environment, which
    the workers inherit, must not name any settings.
    """
    if config.getoption("numprocesses", None):
        os.environ.pop("DJANGO_SETTINGS_MODULE", None)
        return
    servers = Servers()
    config.stash[SERVERS] = servers
    config.add_cleanup(servers.close)
    os.environ.update(servers.environment())
    django.setup()
    doors_watch()


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> Servers:
    """The servers of this process; ask it to start what you need."""
    return pytestconfig.stash[SERVERS]


@pytest.fixture(scope="session")
def django_db_setup(servers: Servers) -> Iterator[None]:
    """In place of pytest-django's: migrated by the owner, used under row-level security."""
    servers.database_ensure()
    servers.valkey_ensure()
    yield
    from django.db import connections  # noqa: PLC0415 (settings are not there on import)

    connections.close_all()


@pytest.fixture
def real_db(
    request: pytest.FixtureRequest,
    servers: Servers,
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
) -> Iterator[Servers]:
    """A database whose transactions are real, for races and processes; renewed afterwards.

    Not together with the mark `django_db`, whose transaction other sessions can't look into.
    """
    from django.db import connection  # noqa: PLC0415 (settings are not there on import)

    if request.node.get_closest_marker("django_db"):
        pytest.fail("real_db is for tests without the mark django_db", pytrace=False)
    with django_db_blocker.unblock():
        try:
            yield servers
        finally:
            kept = session_kept(connection)
            if not servers.database_renew(kept):
                connection.close()


@pytest.fixture(scope="session")
def web_port(servers: Servers, django_db_setup: None) -> Iterator[int]:
    """The port of a running web process; most tests want `live_portal` instead."""
    port, operators_port = free_port(), free_port()
    programs = (
        operators_program(servers, operators_port, port),
        web_program(servers, port, operators_port),
    )
    path = servers.folder / "web.log"
    running: list[tuple[subprocess.Popen[bytes], Program]] = []
    with path.open("wb") as log:
        try:
            running.extend((start(program, log), program) for program in programs)
        except StartFailed as error:
            pytest.fail(f"{error}\n{path.read_text(encoding='utf-8')[-4000:]}", pytrace=False)
        yield port
        for process, program in reversed(running):
            stop(process, program)


@pytest.fixture
def live_portal(real_db: Servers, web_port: int) -> str:
    """The address of a real portal whose database is new for each test."""
    return f"http://localhost:{web_port}"


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """The machine's Chromium, for Playwright's `executable_path`; missing is a failure."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if not found:
        pytest.fail("No Chromium: install it (apt-get install chromium) or set CHROMIUM.")
    return found


@pytest.fixture(scope="session")
def owner_dsn(servers: Servers, django_db_setup: None) -> str:
    """The test database's address for psycopg, as the owner of its tables."""
    return servers.owner_dsn


@pytest.fixture(scope="session")
def valkey_url(servers: Servers) -> str:
    """The address of a running Valkey, without a database number, with all rights."""
    servers.valkey_ensure()
    return servers.access.url


@pytest.fixture
def redis_client(servers: Servers) -> Iterator["redis.Redis"]:
    """A client of the agents' server, which is empty at the start."""
    servers.valkey_ensure()
    with redis.Redis.from_url(servers.agents_access.url, decode_responses=False) as client:
        client.flushall()
        yield client


@pytest.fixture(autouse=True)
def _nothing_left_in_valkey(pytestconfig: pytest.Config) -> None:
    """A counter or a cached answer of one test is never seen by the next."""
    pytestconfig.stash[SERVERS].valkey_flush()


@pytest.fixture(autouse=True)
def _cheap_passwords(settings: Settings) -> None:
    """Argon2 takes 50 ms for a password, on purpose; `force_login` gives none."""
    settings.SESSION_ENGINE = "tests.sessions"
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(autouse=True)
def _kept_snapshots_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test keeps a snapshot of the one before, and a wrong one fails the test."""
    from allocation.services.decide.leading import queue_places  # noqa: PLC0415
    from allocation.services.snapshot.kept import snapshot_keeper  # noqa: PLC0415 (needs settings)

    def fail(sections: object) -> None:
        pytest.fail(f"the kept snapshot differs from a fresh one in {sections}", pytrace=False)

    snapshot_keeper.forget()
    queue_places.forget()
    monkeypatch.setattr("allocation.services.snapshot.kept.drift_note", fail)
