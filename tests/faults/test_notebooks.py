"""Notebooks on the whole way, between real processes: portal, proxy, agent, and a site's program."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
from django.test import override_settings
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from agent.ports.notebook_programs import notebook_signal
from allocation.features.notebooks.entries import ENTER, ticket_make
from allocation.features.notebooks.models import Notebook
from allocation.features.notebooks.services import (
    NotebookTerms,
    notebook_end,
    notebook_start,
    orders_turn,
)
from allocation.models import Booking
from allocation.services.publish.publish import publish_due
from devtools.launch.embedded import free_port, http_answers
from devtools.launch.processes import Program, start
from tenants.models import Session, User
from tenants.platform.wall import tenant_tx
from tests.builders_allocation import an_ask
from tests.faults.test_site_killed import Site, is_enrolled
from tests.roles import as_owner, as_system
from tests.servers.servers import ROOT, Servers
from tests.servers.waiting import wait_until

pytestmark = [pytest.mark.faults]
SECONDS = 40.0
SESSION = b"s" * 32


class NotebookSite(Site):
    """A site that offers one program, and its proxy."""

    def __init__(self, servers: Servers, folder: Path, url: str) -> None:
        super().__init__(servers, folder, url)
        self.browsers: list[httpx.Client] = []
        self.port = free_port()
        self.notebook_url = f"http://notebook.localhost:{self.port}"
        program = f'"{sys.executable}", "-m", "tests.features.notebooks.program", "{{socket}}"'
        (folder / "notebooks.toml").write_text(
            f'portal = "http://127.0.0.1:{self.port}"\n'
            f'[programs.small]\ncommand = ["/usr/bin/env", "PYTHONPATH={ROOT}", {program}]\n'
            f'[programs.broken]\ncommand = ["/bin/sh", "-c", "echo no such licence; exit 3", "{{socket}}"]\n'
        )
        with as_owner():
            owner = User.objects.get(id=self.lab.actor.user_id)
            now = self.now()
            Session.objects.create(
                digest=SESSION, user=owner, created=now, last_seen=now, expires=now + timedelta(hours=1)
            )

    def agent(self, module: str = "devtools.simulated") -> None:
        options = ("--simulate", "h100:2", "--state", str(self.folder / "node"), "--name", "gpu-a1-01")
        notebooks = ("--notebooks", str(self.folder / "notebooks.toml"))
        self.start(
            "agent", "-m", module, *options, *notebooks, "--portal", self.url, GPU_AGENT_TOKEN=self.token
        )

    def proxy(self) -> None:
        program = Program(
            name="proxy",
            command=(sys.executable, "manage.py", "notebook_proxy", "--port", str(self.port)),
            environment={
                **os.environ,
                "DATABASE_URL": self.servers.dsn("portal_web"),
                "OPERATORS_URL": "http://127.0.0.1:1",
                "AGENTS_MASTER_KEY": "",
                "NOTEBOOK_URL": self.notebook_url,
            },
            folder=ROOT,
            is_ready=lambda: http_answers(self.port, "/healthz"),
        )
        self.running["proxy"] = (start(program), program)

    def stop(self) -> None:
        for browser in self.browsers:
            browser.close()
        super().stop()
        # A killed agent ends nothing.
        with as_system():
            for row in Notebook.objects.all():
                notebook_signal(row.id.hex, os.geteuid(), signal.SIGKILL)

    def turn(self) -> None:
        """What a worker does within seconds."""
        with as_system():
            orders_turn(self.now())
            publish_due(self.now())

    def notebook(self, booking: Booking, program: str = "small") -> Notebook:
        """Starts one, and waits until its node says how it is."""
        with tenant_tx(self.lab.tenant.id):
            terms = NotebookTerms(program=program)
            row = notebook_start(actor=self.lab.actor, reference=booking.label, terms=terms, now=self.now())
        self.turn()
        wait_until(lambda: self.state(row) in ("ready", "failed", "ended"), seconds=SECONDS)
        return row

    def state(self, row: Notebook) -> str:
        with as_system():
            return str(Notebook.objects.get(id=row.id).state)

    def ticket(self, booking: Booking) -> str:
        with tenant_tx(self.lab.tenant.id):
            url = ticket_make(actor=self.lab.actor, reference=booking.label, session=SESSION, now=self.now())
        return url.partition("ticket=")[2]

    def host(self, row: Notebook) -> str:
        return f"{row.label}.notebook.localhost:{self.port}"

    def browser(self, row: Notebook) -> httpx.Client:
        """A browser at the notebook's host that was not let in yet."""
        base, host = f"http://127.0.0.1:{self.port}", {"Host": self.host(row)}
        found = httpx.Client(base_url=base, headers=host, timeout=30)
        self.browsers.append(found)
        return found

    def entered(self, row: Notebook, booking: Booking) -> httpx.Client:
        """One that was."""
        browser = self.browser(row)
        answer = browser.get(ENTER, params={"ticket": self.ticket(booking)})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        browser.headers["Cookie"] = answer.headers["set-cookie"].partition(";")[0]
        return browser

    def running_booking(self) -> Booking:
        booking = self.request(an_ask())
        self.until_all("active", booking)
        return booking

    def socket_of(self, row: Notebook, cookie: str) -> ClientConnection:
        return connect(
            f"ws://{self.host(row)}/ws",
            sock=socket.create_connection(("127.0.0.1", self.port)),
            origin=Origin(f"http://{self.host(row)}"),
            additional_headers={"Cookie": cookie},
        )


@pytest.fixture
def site(real_db: Servers, live_portal: str, tmp_path: Path) -> Iterator[NotebookSite]:
    found = NotebookSite(real_db, tmp_path, live_portal)
    with override_settings(NOTEBOOK_URL=found.notebook_url):
        try:
            found.proxy()
            found.reader()
            found.agent()
            found.until(is_enrolled)
            yield found
        finally:
            found.stop()


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def are_gone(*pids: int) -> Callable[[], bool]:
    return lambda: all(is_gone(pid) for pid in pids)


def until_closed(opened: ClientConnection) -> None:
    """Within seconds: nothing is said on it meanwhile."""
    with pytest.raises(ConnectionClosed):
        opened.recv(timeout=15)


def test_a_notebook_from_the_button_to_the_end_of_its_booking(site: NotebookSite) -> None:
    booking = site.running_booking()
    row = site.notebook(booking)
    assert site.state(row) == "ready"
    browser = site.entered(row, booking)

    got = browser.post("/api/x%2f..%2fy?a=1", content=b"z" * 300_000).json()
    assert (got["method"], got["target"], got["body"]) == ("POST", "/api/x%2f..%2fy?a=1", 300_000)
    # Programs have the devices and the name of the booking, as under `gpu-agent run`.
    assert got["environment"]["GPU_BOOKING"] == booking.node_name
    assert got["environment"]["CUDA_VISIBLE_DEVICES"]
    sent = dict(got["headers"])
    assert sent["host"] == site.host(row)
    assert "gpu-notebook" not in sent.get("cookie", "")
    assert len(browser.get("/large").content) == 1_024_004

    with site.socket_of(row, browser.headers["Cookie"]) as opened:
        opened.send("hello")
        assert opened.recv() == "hello"
        site.release(booking)
        until_closed(opened)
    site.until_all("ended", booking)
    wait_until(are_gone(got["pid"], got["kernel"]), seconds=SECONDS)
    assert browser.get("/").status_code == 403
    site.turn()
    assert site.state(row) == "ended"


def test_a_connection_is_kept_for_the_next_request_or_said_to_be_over(site: NotebookSite) -> None:
    connection = HTTPConnection("127.0.0.1", site.port, timeout=10)
    connection.connect()
    connection.auto_open = 0
    for body in (None, None, "unread"):
        connection.request("POST" if body else "GET", "/healthz", body)
        answer = connection.getresponse()
        assert (answer.read(), answer.headers["Connection"]) == (b"ok", "close" if body else None)
    assert connection.sock is None


def test_who_has_no_right_to_a_notebook_gets_nothing_of_it(site: NotebookSite) -> None:
    booking = site.running_booking()
    row = site.notebook(booking)
    visitor = site.browser(row)
    assert visitor.get("/").status_code == 403
    assert visitor.get("/", headers={"Cookie": f"gpu-notebook={row.tenant_id.hex}.x"}).status_code == 403

    ticket = site.ticket(booking)
    # A ticket of one notebook opens no other host, and is used once.
    elsewhere = {"Host": f"{'0' * 20}.notebook.localhost:{site.port}"}
    assert visitor.get(ENTER, params={"ticket": ticket}, headers=elsewhere).status_code == 403
    entered = visitor.get(ENTER, params={"ticket": ticket})
    assert entered.status_code == 303
    assert visitor.get(ENTER, params={"ticket": ticket}).status_code == 403
    cookie = {"Cookie": entered.headers["set-cookie"].partition(";")[0]}
    assert visitor.get("/", headers=cookie).status_code == 200
    assert visitor.get("/", headers={**elsewhere, **cookie}).status_code == 403
    # A page of another origin, with the cookie of the person.
    evil = {"Origin": "http://evil.notebook.localhost"}
    assert visitor.get("/", headers={**cookie, **evil}).status_code == 403

    # Signed out at the portal: out of the notebook within seconds, with what is open.
    with site.socket_of(row, cookie["Cookie"]) as opened:
        with as_owner():
            Session.objects.filter(digest=SESSION).delete()
        until_closed(opened)
    with pytest.raises(InvalidStatus):
        site.socket_of(row, cookie["Cookie"])
    assert visitor.get("/", headers=cookie).status_code == 403


@pytest.mark.turn
def test_what_a_notebook_answers_reaches_no_other_origin(site: NotebookSite) -> None:
    booking = site.running_booking()
    row = site.notebook(booking)
    browser = site.entered(row, booking)
    cookies = browser.get("/cookies").headers.get_list("set-cookie")
    assert cookies == ["mine=1; Path=/"]
    away = browser.get("/away")
    assert (away.status_code, away.headers["location"]) == (302, "http://localhost/t/helix/")
    assert "alt-svc" not in away.headers

    for raw, status in (
        (
            b"POST / HTTP/1.1\r\nHost: H\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"400",
        ),
        (b"POST / HTTP/1.1\r\nHost: H\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd", b"400"),
        (b"GET / HTTP/1.1\r\nHost: H\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET http://localhost/ HTTP/1.1\r\nHost: H\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: H\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nHost: H\r\nX : a\r\n\r\n", b"400"),
        (b"GET / HTTP/1.0\r\n\r\n", b"400"),
        (b"\x16\x03\x01 nonsense\r\n\r\n", b"400"),
        (b"GET /tunnel HTTP/1.1\r\nHost: a\r\nUpgrade: gpu-notebook\r\nConnection: Upgrade\r\n\r\n", b"403"),
    ):
        answer = said_to(site.port, raw.replace(b"Host: H", b"Host: " + site.host(row).encode()))
        assert answer.split(b" ", 2)[1] == status, raw[:60]
    # None of them has disturbed it.
    assert browser.get("/").status_code == 200


def said_to(port: int, raw: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as opened:
        opened.sendall(raw)
        opened.shutdown(socket.SHUT_WR)
        return opened.recv(1_000)


@pytest.mark.turn
def test_agent_and_proxy_are_killed_and_the_notebook_goes_on(site: NotebookSite) -> None:
    booking = site.running_booking()
    row = site.notebook(booking)
    browser = site.entered(row, booking)
    before = browser.get("/").json()

    site.kill("agent")
    assert browser.get("/").json()["pid"] == before["pid"]
    site.agent()
    site.kill("proxy")
    site.proxy()

    def is_back() -> bool:
        return status_of(browser) == 200 and browser.get("/").json()["pid"] == before["pid"]

    wait_until(is_back, seconds=SECONDS)
    assert site.state(row) == "ready"
    # The new agent ends what the old one started.
    with tenant_tx(site.lab.tenant.id):
        notebook_end(actor=site.lab.actor, reference=booking.label, now=site.now())
    assert status_of(browser) in (0, 200, 403)
    site.turn()
    wait_until(are_gone(before["pid"], before["kernel"]), seconds=SECONDS)
    wait_until(lambda: status_of(browser) == 403, seconds=SECONDS)
    folder = site.folder / "node" / "notebooks"
    wait_until(lambda: list(folder.iterdir()) == [], seconds=SECONDS)


@pytest.mark.turn
def test_a_program_that_fails_says_why_and_another_can_be_started(site: NotebookSite) -> None:
    booking = site.running_booking()
    row = site.notebook(booking, "broken")
    with as_system():
        found = Notebook.objects.get(id=row.id)
    assert found.state == "failed"
    assert "no such licence" in found.reason
    again = site.notebook(booking)
    assert again.id != row.id
    browser = site.entered(again, booking)
    pid = browser.get("/").json()["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(partial(is_over, site, again), seconds=SECONDS)


def status_of(browser: httpx.Client) -> int:
    """What the notebook answers; 0 where a kept connection ended meanwhile. A browser asks again."""
    try:
        return browser.get("/").status_code
    except httpx.TransportError:
        return 0


def is_over(site: NotebookSite, row: Notebook) -> bool:
    return site.state(row) == "ended"
