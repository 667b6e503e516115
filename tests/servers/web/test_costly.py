"""Costly requests in a real web process: they hold up nobody else, and nothing is done in vain."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from django.utils import timezone

from devtools.launch.embedded import free_port
from devtools.launch.processes import start, stop
from portal.web.serving.gate import MOST_EACH
from tenants.models import Project
from tenants.services import token_create
from tests.builders_allocation import a_lab
from tests.roles import as_owner, as_system
from tests.servers.live import web_program
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until

pytestmark = pytest.mark.turn

WORKERS = 2
BLOCKED = """
SELECT count(*) FROM pg_locks WHERE relation = 'allocation_policyversion'::regclass AND NOT granted
"""


@dataclass(frozen=True)
class Web:
    """A web process with two workers; tokens of two people; the first has two."""

    process: "subprocess.Popen[bytes]"
    url: str
    servers: Servers
    tokens: tuple[str, ...]

    def client(self, token: int) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.tokens[token]}"},
            timeout=30,
            limits=httpx.Limits(max_connections=None),
        )

    @property
    def nursery(self) -> int:
        # The watchdog has no children.
        (pid,) = [each for each in children(self.process.pid) if children(each)]
        return pid

    def computing(self) -> int:
        """How many requests wait for the lock in the database."""
        with psycopg.connect(self.servers.owner_dsn) as connection:
            row = connection.execute(BLOCKED).fetchone()
        assert row is not None
        return int(row[0])

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Makes every quote take as long as this block: it can't read its policy."""
        with psycopg.connect(self.servers.owner_dsn) as connection:
            connection.execute("LOCK TABLE allocation_policyversion IN ACCESS EXCLUSIVE MODE")
            yield


def children(pid: int) -> list[int]:
    """The processes that it has started and that still run."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    return [int(each) for each in found.split()]


def has_ended(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] in {"Z", "X"}


@pytest.fixture
def web(real_db: Servers, valkey_url: str) -> Iterator[Web]:
    port = free_port()
    plain = web_program(real_db, port)
    own = {"WEB_THREADS": "2", "COSTLY_WORKERS": str(WORKERS)}
    program = replace(plain, environment={**plain.environment, **own})
    process = start(program)
    now = timezone.now()
    with as_system():
        # Both have a project of that name.
        labs = a_lab("helix", now=now), a_lab("north", gpus=0, now=now)
        for lab in labs:
            Project.objects.filter(id=lab.project.id).update(slug="nlp")
        with as_owner():
            tokens = [
                token_create(actor=lab.actor, name=name, days=1, now=now)[1]
                for lab, name in ((labs[0], "first"), (labs[1], "other"), (labs[0], "second"))
            ]
    yield Web(process, f"http://127.0.0.1:{port}", real_db, tuple(tokens))
    stop(process, program)


def quote(rest: httpx.AsyncClient) -> "asyncio.Task[httpx.Response]":
    body = {"project": "nlp", "request": "1 h100 2h"}
    return asyncio.create_task(rest.post("/api/v1/quotes", json=body))


async def all_computing(web: Web, count: int) -> None:
    await asyncio.to_thread(wait_until, lambda: web.computing() == count, seconds=20)


async def test_sixty_quotes_of_one_person_delay_nobody(web: Web) -> None:
    async with web.client(0) as one, web.client(2) as same, web.client(1) as other:
        async with web.locked():
            crowd = [quote(one) for _ in range(30)] + [quote(same) for _ in range(30)]
            refused: set[asyncio.Task[httpx.Response]] = set()
            while len(refused) < len(crowd) - MOST_EACH:
                done, _ = await asyncio.wait(crowd, return_when=asyncio.FIRST_COMPLETED)
                crowd = [each for each in crowd if each not in done]
                refused |= done
                crowd_answers = [each.result() for each in refused]
            assert {each.status_code for each in crowd_answers} == {429}
            # Both of its threads are free for others.
            for _ in range(8):
                pages = [other.get(path) for path in ("/sign-in", "/api/v1/projects", "/healthz")]
                assert {each.status_code for each in await asyncio.gather(*pages)} == {200}
            # The other's quote is computed next to the first one's, however many of those wait.
            others = quote(other)
            await all_computing(web, WORKERS)
        assert (await others).status_code == 200
        # Who has waited for too long is refused after all.
        statuses = [(await each).status_code for each in crowd]
        assert set(statuses) <= {200, 429}
        assert 200 in statuses
    problem = crowd_answers[0].json()
    assert (problem["code"], problem["owner"]) == ("too_many_requests", "operator")
    assert crowd_answers[0].headers["retry-after"] == str(problem["numbers"]["retry_after_seconds"])


async def test_pages_pass_the_same_gate(web: Web) -> None:
    async with web.client(0) as rest, web.locked():
        crowd = [quote(rest) for _ in range(MOST_EACH)]
        await all_computing(web, 1)
        for headers, kind in (({}, "text/html"), ({"X-Fragment": "1"}, "text/plain")):
            page = await rest.get("/t/helix/timeline", headers=headers)
            assert page.status_code == 429
            assert page.headers["retry-after"] == "1"
            assert page.headers["content-type"].startswith(kind)
            assert "Try again in 1 s." in page.text
        # What only reads a little, and what writes, does not.
        assert (await rest.get("/api/v1/quotes")).status_code == 405
        for each in crowd:
            each.cancel()


async def test_nothing_is_computed_for_a_client_that_has_gone(web: Web) -> None:
    async with web.client(0) as other, web.locked():
        async with web.client(1) as rest:
            crowd = [quote(rest) for _ in range(MOST_EACH)]
            await all_computing(web, 1)
            for each in crowd:
                each.cancel()
        # The query of the one that was computed is cancelled, and the others never begin.
        await all_computing(web, 0)
        later = [quote(other) for _ in range(MOST_EACH)]
        await all_computing(web, 1)
        assert not any(each.done() for each in later)
        for each in later:
            each.cancel()
    async with web.client(1) as rest:
        assert (await quote(rest)).status_code == 200


async def test_a_worker_that_dies_fails_one_request_and_is_replaced(web: Web) -> None:
    async with web.client(0) as rest:
        async with web.locked():
            asked = quote(rest)
            await all_computing(web, 1)
            for pid in children(web.nursery):
                os.kill(pid, signal.SIGKILL)
            answer = await asked
            assert answer.status_code == 503
            assert answer.json()["code"] == "busy"
            assert answer.headers["retry-after"] == "1"
        # Its successor may take longer to start than a request waits.
        statuses = [503]
        while statuses[-1] == 503 and len(statuses) < 10:
            statuses.append((await quote(rest)).status_code)
        assert statuses[-1] == 200


def test_all_processes_end_together(web: Web) -> None:
    workers = [web.nursery, *children(web.nursery)]
    assert len(workers) == 1 + WORKERS
    os.kill(web.process.pid, signal.SIGKILL)
    wait_until(lambda: all(map(has_ended, workers)), seconds=10)


def test_a_web_process_without_its_workers_ends(web: Web) -> None:
    os.kill(web.nursery, signal.SIGKILL)
    assert web.process.wait(20) == 0


async def test_what_became_of_costly_requests_is_counted(web: Web) -> None:
    from portal.traffic import traffic_read  # noqa: PLC0415 (settings are not there on import)

    def counted() -> dict[Any, float]:
        (found,) = [m for m in traffic_read() if m.name == "gpu_portal_costly_requests_total"]
        return {(v.labels["kind"], v.labels["outcome"]): v.number or 0 for v in found.values}

    before = counted()
    async with web.client(0) as rest:
        async with web.locked():
            crowd = [quote(rest) for _ in range(MOST_EACH + 1)]
            await asyncio.wait(crowd, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*crowd)

    def added() -> dict[Any, float]:
        return {each: count - before.get(each, 0) for each, count in counted().items()}

    wanted = {("quote", "served"): MOST_EACH, ("quote", "refused_yours"): 1}
    await asyncio.to_thread(wait_until, lambda: wanted.items() <= added().items(), seconds=10)
