"""Processes doubled and killed: solvers, beats, readers and the worker."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from allocation.models import Allocation, Booking, BookingEvent, Decision
from allocation.services.decide.invariants import invariants_check
from tests.builders_allocation import an_ask
from tests.faults.test_site_killed import Site, is_enrolled
from tests.roles import as_system
from tests.servers.live import worker_program
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.turn]
SECONDS = 120.0


class FullSite(Site):
    """Nobody but its own processes runs cycles."""

    def celery(self, name: str, queue: str | None = None) -> None:
        """A worker of a queue, or a beat."""
        command: tuple[str, ...] = ("-m", "celery", "--quiet", "-A", "portal", "beat", "--pidfile=")
        if queue is not None:
            command = worker_program(self.servers, queue).command[1:]
        self.start(name, *command, DATABASE_URL=self.servers.dsn("portal_system"))

    def until(self, seen: Callable[[], bool]) -> None:
        def look() -> bool:
            with as_system():
                return seen()

        wait_until(look, seconds=SECONDS)


@pytest.fixture
def site(real_db: Servers, live_portal: str, tmp_path: Path) -> Iterator[FullSite]:
    found = FullSite(real_db, tmp_path, live_portal)
    try:
        found.reader("reader one")
        found.reader("reader two")
        found.agent()
        for number in ("one", "two"):
            found.celery(f"solver {number}", "solver")
            found.celery(f"beat {number}")
        found.celery("worker", "default")
        yield found
    finally:
        found.stop()


# With kombu's own transport two of seven such kills left a solver that took no task any more.
KILLS = 8


def test_a_site_decides_after_each_kill_of_valkey(site: FullSite) -> None:
    """A short run of `tests.bench.live.kills`, which has the time limit of ten seconds."""
    site.until(is_enrolled)
    for _ in range(KILLS):
        site.request(an_ask(profile="1g.10gb"))
        process, _ = site.servers.running.pop("valkey")
        process.kill()
        process.wait()
        site.servers.valkey_ensure()
        probe = site.request(an_ask(profile="1g.10gb"))
        wait_until(partial(is_decided, probe), seconds=60)
    with as_system():
        assert invariants_check() == []


def is_decided(booking: Booking) -> bool:
    with as_system():
        return not Booking.objects.filter(id=booking.id, state="requested").exists()


def test_two_of_each_decide_once_and_any_of_them_may_be_killed(site: FullSite) -> None:
    site.until(is_enrolled)
    early = [site.request(an_ask(profile="1g.10gb")) for _ in range(5)]
    site.kill("solver one")
    site.kill("beat one")
    site.kill("reader one")
    late = [site.request(an_ask(profile="1g.10gb")) for _ in range(5)]
    site.until_all("active", *early, *late)
    for name in ("solver two", "beat two", "reader two", "worker"):
        site.kill(name)
    last = site.request(an_ask(profile="2g.20gb"))
    site.celery("solver three", "solver")
    site.celery("beat three")
    site.reader("reader three")
    site.celery("worker", "default")
    site.until_all("active", last)

    with as_system():
        assert invariants_check() == []
        assert Allocation.objects.count() == 11
        assert BookingEvent.objects.filter(kind="starting").count() == 11
        terms = list(Decision.objects.order_by("id").values_list("leader_term", flat=True))
        assert terms == sorted(set(terms)), "two cycles wrote under one term"
    assert len(site.hardware()) == 11
    site.ends_well(*early, *late, last)
