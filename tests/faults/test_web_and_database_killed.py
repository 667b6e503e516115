"""kill -9 of a web process in the middle of a booking, and of PostgreSQL under writers."""

import dataclasses
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest
from django.db import connections

from allocation.models import Booking
from allocation.services.decide.invariants import invariants_check
from billing.models import Transfer
from devtools.launch.embedded import free_port, http_answers
from devtools.launch.processes import Program, start, stop
from tests.api.builders import Site, a_site
from tests.faults.crashing_web import POINTS
from tests.roles import as_system
from tests.servers.live import web_program
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.turn]
REQUEST = {"project": "folding", "tier": "standard", "request": "1g.10gb h100 for 10m"}
WRITERS = 4
ENOUGH = 24


@pytest.fixture
def site(real_db: Servers) -> Site:
    return a_site(budget="100000")


def posted(url: str, site: Site, key: str) -> httpx.Response:
    """A booking asked for; raises httpx.TransportError when nobody answers."""
    headers = {"Authorization": f"Bearer {site.researcher.token}", "Idempotency-Key": key}
    return httpx.post(f"{url}/api/v1/bookings", json=REQUEST, headers=headers, timeout=30)


@pytest.fixture
def dying_web(real_db: Servers, request: pytest.FixtureRequest) -> Iterator[str]:
    port = free_port()
    program: Program = dataclasses.replace(
        web_program(real_db, port),
        command=(sys.executable, "-m", "tests.faults.crashing_web", request.param, str(port)),
        is_ready=lambda: http_answers(port, "/healthz"),
    )
    process = start(program)
    yield f"http://127.0.0.1:{port}"
    stop(process, program)


@pytest.mark.parametrize(("dying_web", "point"), [(p, p) for p in POINTS], indirect=["dying_web"])
def test_a_booking_whose_web_process_was_killed_is_made_once_by_the_same_key(
    dying_web: str, point: str, site: Site, live_portal: str
) -> None:
    with pytest.raises(httpx.TransportError):
        posted(dying_web, site, "the one")
    with as_system():
        assert Booking.objects.count() == (1 if point == "after the commit" else 0)
        assert invariants_check() == []

    again = posted(live_portal, site, "the one")
    assert again.status_code == 201
    assert posted(live_portal, site, "the one").json()["id"] == again.json()["id"]
    with as_system():
        assert Booking.objects.count() == 1
        assert Transfer.objects.filter(kind="hold").count() == 1
        assert invariants_check() == []


class Writers:
    """Book until asked to stop, each request under a key of its own; keep what was answered."""

    def __init__(self, url: str, site: Site) -> None:
        self.url, self._site = url, site
        self.stopped = threading.Event()
        self.accepted: dict[str, str] = {}
        self.unknown: set[str] = set()

    def write(self, writer: int) -> None:
        number = 0
        while not self.stopped.is_set():
            number += 1
            key = f"{writer}-{number}"
            try:
                answer = posted(self.url, self._site, key)
            except httpx.TransportError:
                self.unknown.add(key)
                # Nobody answers: what comes next would be refused as well.
                self.stopped.wait(0.1)
                continue
            self.note(key, answer)

    def note(self, key: str, answer: httpx.Response) -> bool:
        """Whether the key has its booking now. Anything but yes and "later" is a mistake."""
        if answer.status_code == 201:
            self.accepted[key] = answer.json()["id"]
            self.unknown.discard(key)
            return True
        assert answer.status_code in (409, 503), answer.text
        self.unknown.add(key)
        return False

    def retry(self) -> bool:
        """Everything that is not known is asked for again; whether all of it is known now."""
        answered = [self._retried(key) for key in sorted(self.unknown)]
        return all(answered)

    def _retried(self, key: str) -> bool:
        try:
            return self.note(key, posted(self.url, self._site, key))
        except httpx.TransportError:
            return False


def test_a_web_process_that_is_asked_to_end_answers_what_it_has_taken(
    site: Site, live_portal: str, real_db: Servers
) -> None:
    port = free_port()
    program = web_program(real_db, port)
    process = start(program)
    writers = Writers(f"http://127.0.0.1:{port}", site)
    with ThreadPoolExecutor(WRITERS) as pool:
        running = [pool.submit(writers.write, number) for number in range(WRITERS)]
        try:
            wait_until(lambda: len(writers.accepted) >= WRITERS, seconds=60)
            process.terminate()
            # After its last answer it dies of the signal, as programs do that clean up first.
            assert process.wait(30) == -signal.SIGTERM
            wait_until(lambda: len(writers.unknown) >= WRITERS, seconds=60)
        finally:
            stop(process, program)
            writers.stopped.set()
        for each in running:
            each.result(60)
    writers.url = live_portal
    wait_until(writers.retry, seconds=120)
    with as_system():
        assert Booking.objects.count() == len(writers.accepted)
        assert invariants_check() == []


def test_what_was_answered_is_there_after_postgresql_was_killed_under_writers(
    site: Site, live_portal: str, real_db: Servers
) -> None:
    # As in production: a commit is on its way to the disk before anybody learns of it.
    with psycopg.connect(real_db.admin_dsn, autocommit=True) as admin:
        admin.execute("ALTER ROLE portal_web SET synchronous_commit = on")
    writers = Writers(live_portal, site)
    with ThreadPoolExecutor(WRITERS) as pool:
        running: list[Any] = [pool.submit(writers.write, number) for number in range(WRITERS)]
        try:
            wait_until(lambda: len(writers.accepted) >= ENOUGH, seconds=60)
            before = dict(writers.accepted)
            connections.close_all()
            real_db.postgres_killed()
            wait_until(lambda: len(writers.unknown) >= WRITERS, seconds=60)
            real_db.postgres_again()
            wait_until(lambda: len(writers.accepted) > len(before) + WRITERS, seconds=60)
        finally:
            writers.stopped.set()
        for each in running:
            each.result(60)
    wait_until(writers.retry, seconds=60)
    with as_system():
        there = {each.hex for each in Booking.objects.values_list("id", flat=True)}
        notified = {UUID(name.removeprefix("bk_")).hex for name in writers.accepted.values()}
        assert notified == there
        assert len(there) == len(writers.accepted)
        assert Transfer.objects.filter(kind="hold").count() == len(there)
        assert invariants_check() == []
    with psycopg.connect(real_db.admin_dsn, autocommit=True) as admin:
        admin.execute("ALTER ROLE portal_web RESET synchronous_commit")
