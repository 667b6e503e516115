"""The line between a node and its server breaks, in one direction or both, and heals."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from allocation.models import Booking, GpuEvent, Node
from allocation.rules.nodes.node_policy import NodePolicy
from allocation.services.decide.invariants import invariants_check
from allocation.services.runs.start import slow_starts_notify
from allocation.words.reasons import stored_sentence
from tests.builders_allocation import an_ask
from tests.faults.proxy import Mode, Proxy
from tests.faults.test_site_killed import SECONDS, Site, is_enrolled
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.turn]
NODE = "node"


class CutSite(Site):
    """A site whose one node of two GPUs reaches the server through a line that can break."""

    line: Proxy

    def behind(self, line: Proxy) -> None:
        """Enrols the node, and lets it come back by the line."""
        self.line = line
        self.agent()
        identity = self.folder / NODE / "identity.json"
        wait_until(identity.exists, seconds=SECONDS)
        self.until(is_enrolled)
        self.kill("agent")
        enrolled = json.loads(identity.read_bytes())
        port = str(self.servers.agents_access.port)
        enrolled["redis_url"] = enrolled["redis_url"].replace(f":{port}/", f":{line.port}/")
        identity.write_text(json.dumps(enrolled))
        self.agent()

    def heals(self) -> None:
        """The line passes again, and old connections end as a router would end them."""
        self.line.set()
        self.line.cut()

    def seen(self) -> float:
        """Seconds since the node was last heard."""
        last = Node.objects.get().last_seen
        assert last is not None
        return (timezone.now() - last).total_seconds()

    def state(self, booking: Booking) -> str:
        with as_system():
            return str(Booking.objects.get(id=booking.id).state)

    def holds(self) -> None:
        with as_system():
            assert invariants_check() == []


@pytest.fixture
def site(real_db: Servers, live_portal: str, tmp_path: Path) -> Iterator[CutSite]:
    found = CutSite(real_db, tmp_path, live_portal)
    with Proxy(real_db.agents_access.port) as line:
        try:
            found.reader()
            found.behind(line)
            yield found
        finally:
            found.stop()


def both(site: CutSite) -> None:
    site.line.set(up=Mode.DROP, down=Mode.DROP)


def deaf(site: CutSite) -> None:
    site.line.set(down=Mode.DROP)


def mute(site: CutSite) -> None:
    site.line.set(up=Mode.DROP)


def held(site: CutSite) -> None:
    site.line.set(up=Mode.HOLD, down=Mode.HOLD)


@pytest.mark.parametrize("breaks", [both, deaf, mute, held])
def test_room_is_given_away_only_when_a_node_that_was_cut_off_has_proven_it_empty(
    breaks: Callable[[CutSite], None], site: CutSite
) -> None:
    first = site.request(an_ask(2))
    site.until_all("active", first)
    breaks(site)
    site.release(first)
    second = site.request(an_ask(profile="7g.80gb"))
    site.until_all("ending", first)
    # The calendar is free for it, and the hardware is not known to be.
    site.until(lambda: site.state(second) in ("queued", "scheduled"))
    site.until(lambda: site.seen() > 6)
    assert (site.state(first), site.state(second)) == ("ending", site.state(second))
    assert site.state(second) in ("queued", "scheduled")
    site.holds()

    site.heals()
    site.until_all("ended", first)
    site.until_all("active", second)
    assert len(site.hardware()) == 1
    site.ends_well(second)


def test_a_short_break_changes_nothing_for_who_works(site: CutSite) -> None:
    booking = site.request(an_ask(profile="3g.40gb"))
    site.until_all("active", booking)
    with as_system():
        before = list(booking.events.values_list("kind", flat=True))
    both(site)
    site.until(lambda: site.seen() > 2)
    site.heals()
    site.until(lambda: site.seen() < 2)
    with as_system():
        assert list(booking.events.values_list("kind", flat=True)) == before
    assert len(site.hardware()) == 1
    site.ends_well(booking)


def test_a_slow_line_only_makes_it_slower(site: CutSite) -> None:
    site.line.set(up=Mode.DELAY, down=Mode.DELAY)
    booking = site.request(an_ask())
    site.until_all("active", booking)
    site.ends_well(booking)


def test_an_agent_that_stands_still_makes_nobody_active_or_charged(site: CutSite) -> None:
    process, _ = site.running["agent"]
    os.kill(process.pid, signal.SIGSTOP)
    try:
        booking = site.request(an_ask())
        site.until(lambda: site.seen() > 7)
        with as_system():
            row = Booking.objects.get(id=booking.id)
            assert (row.state, row.ready_at, row.charged) == ("starting", None, None)
            # Its owner and the operator are notified when it has taken too long, once.
            late = site.now() + timedelta(seconds=NodePolicy().start_slow)
            assert (slow_starts_notify(late), slow_starts_notify(late)) == (1, 0)
            said = Booking.objects.get(id=booking.id).reasons[0]
            assert said["rule"] == "R86"
            assert "does not answer" in stored_sentence(said)
            assert GpuEvent.objects.filter(kind="slow", until=None).count() == 1
        site.holds()
    finally:
        os.kill(process.pid, signal.SIGCONT)
    site.until_all("active", booking)
    wait_until(lambda: site.seen() < SECONDS, seconds=SECONDS)
    site.ends_well(booking)
