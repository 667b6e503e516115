"""Requests share a few threads that last, and wait in line for them."""

import http.client
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest

from devtools.launch.embedded import free_port
from devtools.launch.processes import start, stop
from tests.servers.live import web_program
from tests.servers.servers import Servers

pytestmark = pytest.mark.turn

THREADS = 2


@pytest.fixture
def small_web(real_db: Servers, valkey_url: str) -> Iterator[int]:
    """The port of a web process with two threads."""
    port = free_port()
    plain = web_program(real_db, port)
    program = replace(plain, environment={**plain.environment, "WEB_THREADS": str(THREADS)})
    process = start(program)
    yield port
    stop(process, program)


def status_of(port: int) -> int:
    """What /readyz, which asks the database, answers on a connection of its own."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as client:
        client.request("GET", "/readyz")
        return client.getresponse().status


def sessions(servers: Servers) -> int:
    """Connections that the web has to the database now."""
    with psycopg.connect(servers.owner_dsn) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = 'portal_web'"
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_more_at_once_than_there_are_threads_wait_and_are_answered(small_web: int, real_db: Servers) -> None:
    with ThreadPoolExecutor(24) as crowd:
        assert set(crowd.map(status_of, [small_web] * 96)) == {200}
    # Each thread has kept its connection, and there was none without a thread.
    assert 1 <= sessions(real_db) <= THREADS


def test_who_sends_slowly_keeps_no_thread(small_web: int) -> None:
    slow = [http.client.HTTPConnection("127.0.0.1", small_web, timeout=20) for _ in range(3)]
    for client in slow:
        client.putrequest("POST", "/api/v1/bookings")
        client.putheader("Content-Length", "2")
        client.endheaders(b"{")
    assert status_of(small_web) == 200
    for client in slow:
        client.send(b"}")
        assert client.getresponse().status == 401
        client.close()


def test_who_goes_away_in_line_leaves_it_to_others(small_web: int) -> None:
    for _ in range(3 * THREADS):
        client = http.client.HTTPConnection("127.0.0.1", small_web, timeout=20)
        client.request("GET", "/readyz")
        client.close()
    assert status_of(small_web) == 200
