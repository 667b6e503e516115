"""A whole small site of real processes; agent, reader and Valkey are killed while people book."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from django.utils import timezone

from allocation.models import Booking, Node
from allocation.rules.ask import AskDocument
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_release
from allocation.services.decide.cycle import cycle_run
from allocation.services.decide.invariants import invariants_check
from allocation.services.nodes.fleet import enrolment_token_create
from allocation.services.nodes.redis_accounts import agents_redis
from devtools.launch.processes import Program, start, stop
from tests.builders_allocation import (
    Lab,
    a_booking_request,
    a_lab,
    a_model,
    a_policy,
    a_price_book,
    an_ask,
)
from tests.roles import as_system
from tests.servers.servers import ROOT, Servers
from tests.servers.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.turn]
NAME = "gpu-a1-01"
SECONDS = 40.0


class Site:
    """Processes by name, and the lab that books."""

    def __init__(self, servers: Servers, folder: Path, url: str) -> None:
        self.servers, self.folder, self.url = servers, folder, url
        self.running: dict[str, tuple[Popen[bytes], Program]] = {}
        now = self.now()
        a_model(enrolled=False)
        a_policy()
        a_price_book(valid_from=now)
        self.lab: Lab = a_lab("helix", gpus=0, now=now)
        with as_system():
            self.token = enrolment_token_create(node_name=NAME, rack_name="a1", now=now)

    def now(self) -> datetime:
        return timezone.now()

    def start(self, name: str, *command: str, **environment: str) -> None:
        program = Program(
            name=name,
            command=(sys.executable, *command),
            environment={**os.environ, **environment},
            folder=ROOT,
        )
        self.running[name] = (start(program), program)

    def agent(self, module: str = "devtools.simulated") -> None:
        options = ("--simulate", "h100:2", "--state", str(self.folder / "node"), "--name", NAME)
        self.start("agent", "-m", module, *options, "--portal", self.url, GPU_AGENT_TOKEN=self.token)

    def reader(self, name: str = "reader") -> None:
        dsn = self.servers.dsn("portal_system")
        self.start(name, "manage.py", "reports_reader", DATABASE_URL=dsn)

    def kill(self, name: str) -> None:
        process, _ = self.running.pop(name)
        process.kill()
        process.wait()

    def died(self, name: str) -> None:
        """Waits until a process has killed itself."""
        process, _ = self.running.pop(name)
        assert process.wait(SECONDS) == -9

    def valkey_killed(self) -> None:
        for name in ("valkey", "valkey-agents"):
            process, _ = self.servers.running.pop(name)
            process.kill()
            process.wait()

    def request(self, ask: AskDocument) -> Booking:
        with as_system():
            asked = a_booking_request(self.lab.project, ask)
            return booking_request(actor=self.lab.actor, request=asked, now=self.now())

    def release(self, booking: Booking) -> None:
        with as_system():
            booking_release(actor=self.lab.actor, booking=booking, now=self.now())

    def until(self, seen: Callable[[], bool]) -> None:
        """Cycles run until it is seen."""

        def turn() -> bool:
            with as_system():
                cycle_run(self.now())
                return seen()

        wait_until(turn, seconds=SECONDS)

    def until_all(self, state: str, *bookings: Booking) -> None:
        ids = [booking.id for booking in bookings]
        self.until(lambda: Booking.objects.filter(id__in=ids, state=state).count() == len(bookings))

    def hardware(self) -> list[Any]:
        """The MIG instances that the simulated GPUs hold, as their file says."""
        text = (self.folder / "node" / "simulated.json").read_text(encoding="utf-8")
        return [instance for gpu in json.loads(text).values() for instance in gpu["instances"]]

    def ends_well(self, *bookings: Booking) -> None:
        """Everything is given back, paid, gone from the hardware, and nothing is broken."""
        for booking in bookings:
            self.release(booking)
        self.until_all("ended", *bookings)
        assert self.hardware() == []
        with as_system():
            assert invariants_check() == []

    def stop(self) -> None:
        for process, program in self.running.values():
            stop(process, program)


@pytest.fixture
def site(real_db: Servers, live_portal: str, tmp_path: Path) -> Iterator[Site]:
    found = Site(real_db, tmp_path, live_portal)
    found.reader()
    yield found
    found.stop()
    real_db.valkey_ensure()


def is_enrolled() -> bool:
    return Node.objects.filter(name=NAME, state=Node.State.READY).exists()


def test_an_agent_killed_while_it_makes_a_slice_makes_it_once(site: Site) -> None:
    site.agent("tests.faults.crashing_agent")
    site.until(is_enrolled)
    booking = site.request(an_ask(profile="3g.40gb"))
    site.until_all("starting", booking)
    site.died("agent")
    assert len(site.hardware()) == 1
    with as_system():
        assert invariants_check() == []

    site.agent()
    site.until_all("active", booking)
    assert len(site.hardware()) == 1
    site.ends_well(booking)


def test_bookings_go_on_while_valkey_loses_everything_and_dies(site: Site) -> None:
    site.agent()
    site.until(is_enrolled)
    first = site.request(an_ask())
    site.until_all("active", first)

    agents_redis().flushall()
    second = site.request(an_ask(profile="3g.40gb"))
    site.until_all("active", first, second)

    site.valkey_killed()
    third = site.request(an_ask(profile="1g.10gb"))
    site.until_all("starting", third)
    with as_system():
        assert Booking.objects.get(id=first.id).state == "active"
        assert invariants_check() == []
    site.servers.valkey_ensure()
    site.until_all("active", first, second, third)
    assert len(site.hardware()) == 2
    site.ends_well(first, second, third)


def test_agent_and_reader_killed_together_lose_no_word(site: Site) -> None:
    site.agent()
    site.until(is_enrolled)
    booking = site.request(an_ask(profile="2g.20gb"))
    site.until_all("active", booking)
    site.kill("reader")
    site.release(booking)
    site.until_all("ending", booking)
    wait_until(lambda: site.hardware() == [], seconds=SECONDS)
    site.kill("agent")
    site.agent()
    site.reader()
    site.until_all("ended", booking)
    with as_system():
        assert invariants_check() == []


def test_bookings_go_on_while_valkey_is_full(site: Site) -> None:
    site.agent()
    site.until(is_enrolled)
    agents_redis().config_set("maxmemory", "1")
    try:
        booking = site.request(an_ask(profile="2g.20gb"))
        site.until_all("starting", booking)
        with as_system():
            assert invariants_check() == []
    finally:
        agents_redis().config_set("maxmemory", "0")
    site.until_all("active", booking)
    site.ends_well(booking)
