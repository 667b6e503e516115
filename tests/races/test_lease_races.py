"""A node's silence is decided once, and never against a heartbeat that is being taken."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import psycopg
import pytest
from django.db import transaction
from django.db.models import F

from allocation.models import Booking, Node
from allocation.services.decide.invariants import invariants_check
from allocation.services.runs.lost_runs import node_bookings_requeue
from tests.builders_allocation import a_lab, a_model, a_policy, a_price_book
from tests.races.together import apart, at_once
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until
from tests.services.nodes.test_leases import on_lease
from tests.services.plant import NAME, Plant, a_plant, fresh

pytestmark = pytest.mark.races
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture
def plant(real_db: Servers, tmp_path: Path) -> Iterator[Plant]:
    a_model(enrolled=False)
    a_policy()
    a_price_book()
    with a_plant(tmp_path, gpus=2) as found:
        yield found


def running(plant: Plant) -> tuple[Booking, Node]:
    booking = on_lease(plant, a_lab("helix", gpus=0))
    with as_system():
        return booking, Node.objects.get(name=NAME)


def test_a_heartbeat_that_is_just_being_taken_is_waited_for(plant: Plant, real_db: Servers) -> None:
    booking, node = running(plant)

    taken, go = Event(), Event()

    def heard() -> None:
        with transaction.atomic():
            Node.objects.filter(id=node.id).update(heartbeat_seq=F("heartbeat_seq") + 1)
            taken.set()
            assert go.wait(30)

    def replaced() -> int:
        return node_bookings_requeue(node_id=node.id, seq=node.heartbeat_seq, now=plant.now)

    with (
        ThreadPoolExecutor(2) as pool,
        psycopg.connect(real_db.admin_dsn, autocommit=True) as admin,
    ):
        heartbeat = pool.submit(lambda: apart(heard))
        try:
            assert taken.wait(30)
            waits = pool.submit(lambda: apart(replaced))

            def is_settled() -> bool:
                row = admin.execute(WAITING).fetchone()
                return waits.done() or (row is not None and row[0] > 0)

            wait_until(is_settled, seconds=20)
        finally:
            go.set()
        heartbeat.result(30)
        assert waits.result(30) == 0
    assert fresh(booking).state == "active"


def test_of_several_watchers_one_begins_it_anew(plant: Plant) -> None:
    booking, node = running(plant)
    done = at_once(lambda _: node_bookings_requeue(node_id=node.id, seq=node.heartbeat_seq, now=plant.now), 4)
    assert sorted(done) == [0, 0, 0, 1]
    assert fresh(booking).replacement_count == 1
    with as_system():
        assert invariants_check() == []
