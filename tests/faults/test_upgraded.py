"""An upgrade in the documented order: every program of the portal is stopped for longer than a
lease lasts, and no run is ended or paused.

What the same outage does without the first step: `services/test_planned_outages.py`.
"""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from allocation.models import Booking, BookingEvent, Node
from allocation.rules.nodes.leases import MARGIN_SECONDS, TTL_SECONDS
from devtools.launch.embedded import free_port
from devtools.launch.processes import start
from tenants.models import Tier
from tests.builders import a_tier, an_operator
from tests.builders_allocation import an_ask
from tests.faults.test_site_killed import SECONDS, Site, is_enrolled
from tests.roles import as_system
from tests.servers.live import web_program
from tests.servers.servers import ROOT, Servers
from tests.servers.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.turn]
# A program of its own ends its work this long after the last heartbeat that was answered.
WITHOUT = TTL_SECONDS - MARGIN_SECONDS + 3


@pytest.fixture
def site(real_db: Servers, live_portal: str, tmp_path: Path) -> Iterator[Site]:
    found = Site(real_db, tmp_path, live_portal)
    found.reader()
    yield found
    found.stop()


def web(site: Site, port: int) -> None:
    program = web_program(site.servers, port)
    site.running["web"] = (start(program), program)


def migrated(site: Site) -> None:
    dsn = site.servers.dsn("portal_owner")
    command = [sys.executable, "manage.py", "migrate", "--no-input", "-v", "0"]
    environment = {**site.running["agent"][1].environment, "DATABASE_URL": dsn}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def assert_undisturbed(booking: Booking) -> None:
    kinds = {"replaced", "broken_off", "ending", "pausing", "paused"}
    with as_system():
        found = Booking.objects.get(id=booking.id)
        assert (found.state, found.replacement_count, found.pause_count) == ("active", 0, 0)
        assert not BookingEvent.objects.filter(kind__in=kinds).exists()
        assert Node.objects.get().conflicts == 0


def assert_refuses_changes(port: int) -> None:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    link.request("POST", "/api/v1/bookings", "{}", {"Content-Type": "application/json"})
    refused = link.getresponse()
    assert (refused.status, json.load(refused)["code"]) == (503, "portal_upgrading")
    assert 0 < int(refused.headers["Retry-After"]) <= 120
    link.close()


def test_an_upgrade_ends_no_run_and_pauses_none(site: Site) -> None:
    port, operator = free_port(), an_operator()
    web(site, port)
    a_tier("standard", pausable=True)
    with as_system():
        Tier.objects.update(replace_on_lost=True)
    site.agent()
    site.until(is_enrolled)
    booking = site.request(an_ask(profile="3g.40gb"))
    site.until_all("active", booking)
    (instance,) = site.hardware()

    # 1. Leases are lengthened, and every agent confirms; then changes are refused.
    said = StringIO()
    with as_system():
        call_command("outage", "begin", length="2m", operator=operator.username, stdout=said)
    assert "Confirmed: 1 of 1 node." in said.getvalue()
    assert_refuses_changes(port)

    # 2. The programs stop, the database is migrated, new ones start; no cycle runs meanwhile.
    for name in ("web", "reader"):
        site.kill(name)
    stopped = time.monotonic()
    migrated(site)
    wait_until(lambda: time.monotonic() - stopped > WITHOUT, seconds=SECONDS)
    assert site.hardware() == [instance]
    site.reader()
    web(site, port)

    # 3. Back to normal.
    with as_system():
        seq = Node.objects.get().heartbeat_seq
        call_command("outage", "end", operator=operator.username, stdout=said)
    site.until(lambda: Node.objects.get().heartbeat_seq > seq)
    assert_undisturbed(booking)
    assert site.hardware() == [instance]
    site.ends_well(booking)
