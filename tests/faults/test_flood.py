"""One node floods the server that nodes share; the reader is a process, as it always is."""

import os
import sys
from collections.abc import Iterator

import pytest

from allocation.models import Node, SolverState
from allocation.services.nodes.redis_accounts import agent_accounts_ensure
from devtools.launch.processes import Program, start, stop
from tests.bench.live.agents import SimulatedSender
from tests.bench.live.flood import ReportSenders, account, flood, peak_mb
from tests.bench.live.inside import nodes_add
from tests.bench.machine import spread
from tests.builders_allocation import a_model
from tests.roles import as_system
from tests.servers.servers import ROOT, Servers
from tests.servers.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.turn]
# More than the guard lets through; on a slow machine it looks late.
MEGABYTES = 480


@pytest.fixture
def reader(real_db: Servers) -> Iterator[int]:
    program = Program(
        name="reader",
        command=(sys.executable, "manage.py", "reports_reader", "--skip-checks"),
        environment={**os.environ, "DATABASE_URL": real_db.dsn("portal_system")},
        folder=ROOT,
    )
    process = start(program)
    yield process.pid
    stop(process, program)


def is_locked_out(node: str) -> bool:
    with as_system():
        return not Node.objects.get(name=node).link_digest


def test_a_flood_ends_with_its_node_and_the_others_do_not_notice(real_db: Servers, reader: int) -> None:
    a_model(enrolled=False)
    with as_system():
        agent_accounts_ensure()
        members = nodes_add("flood", 6, 1)
        bad, epoch = members[0].name, SolverState.objects.get(id=1).epoch
        url = account(bad)
    voices = ReportSenders(
        [SimulatedSender(member, epoch) for member in members[1:]], real_db.agents_access.url
    )
    with voices.speaking():
        before = peak_mb(reader)
        taken = flood(url, bad, MEGABYTES)
        wait_until(lambda: len(voices.lags) >= 50, seconds=40)
        after = peak_mb(reader)
        wait_until(lambda: is_locked_out(bad), seconds=40)
    assert taken < MEGABYTES, "nobody ended the flood"
    with as_system():
        assert Node.objects.filter(link_digest__isnull=False).count() == 5
    assert spread(voices.lags)["p99_ms"] <= 2000
    assert after - before < 64
