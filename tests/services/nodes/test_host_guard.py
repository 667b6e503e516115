"""Host cores and memory in the database: never more than the node has at any instant."""

import psycopg
import pytest
from django.db import IntegrityError, transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from allocation.models import Allocation, Gpu, Node
from tests.builders_allocation import HOUR, NOW, Lab, a_booking, a_lab, a_node, a_row, an_ask
from tests.roles import as_system
from tests.servers.servers import Servers

pytestmark = pytest.mark.turn


@pytest.fixture
def site(real_db: Servers) -> Lab:
    """Four GPUs on a node with 32 cores and 128 GiB, and another node."""
    lab = a_lab("helix", gpus=4)
    a_node("gpu-a1-02", gpus=1)
    with as_system():
        Node.objects.update(cores=32, memory_mb=128 * 1_024)
    return lab


def write(
    lab: Lab,
    index: int,
    cores: int,
    since: float,
    until: float,
    *,
    memory: int = 0,
    node: str = "gpu-a1-01",
) -> bool:
    """Whether the database took a row of one GPU with so much of its node."""
    ask = an_ask(cores=cores, memory=memory)
    booking = a_booking(lab.project, lab.actor.user_id, ask=ask)
    with as_system():
        gpu = Gpu.objects.get(node__name=node, index=index)
        row = a_row(booking, gpu, starts=NOW + since * HOUR, ends=NOW + until * HOUR)
        Allocation.objects.bulk_create([row], ignore_conflicts=True)
        return Allocation.objects.filter(id=row.id).exists()


def test_cores_are_given_once_at_every_instant(site: Lab) -> None:
    assert write(site, 0, 20, 0, 2)
    assert not write(site, 1, 13, 1, 3)
    assert write(site, 1, 12, 1, 3)
    assert write(site, 2, 20, 2, 4), "what has ended is given back"
    assert not write(site, 3, 1, 1, 4), "full for one hour of three"
    assert write(site, 3, 0, 0, 4), "who asks for nothing is not counted"
    assert write(site, 0, 32, 0, 4, node="gpu-a1-02"), "each node has its own"


def test_memory_is_counted_like_cores(site: Lab) -> None:
    assert write(site, 0, 0, 0, 2, memory=100)
    assert not write(site, 1, 0, 1, 3, memory=29)
    assert write(site, 1, 0, 1, 3, memory=28)


def test_a_gang_on_one_node_is_counted_together(site: Lab) -> None:
    booking = a_booking(site.project, site.actor.user_id, ask=an_ask(3, cores=12))
    with as_system():
        gpus = Gpu.objects.filter(node__name="gpu-a1-01", index__lt=3)
        rows = [a_row(booking, gpu) for gpu in gpus]
        Allocation.objects.bulk_create(rows, ignore_conflicts=True)
        assert Allocation.objects.count() == 2, "the third is left out, and the writer counts"


def test_what_would_be_prolonged_beyond_the_node_is_an_error_and_all_else_is_not(
    site: Lab,
) -> None:
    assert write(site, 0, 20, 0, 1)
    assert write(site, 1, 20, 1, 2)
    with as_system():
        first = Allocation.objects.get(period__startswith=NOW)
        first.period = DateTimeTZRange(NOW, NOW + 2 * HOUR)
        with pytest.raises(IntegrityError, match="no more cores"), transaction.atomic():
            first.save(update_fields=["period"])
        Node.objects.update(cores=8)
        first.period = DateTimeTZRange(NOW, NOW + HOUR / 2)
        first.state = Allocation.State.ACTIVE
        first.save(update_fields=["period", "state"])


def test_the_control_without_the_trigger_a_node_gives_more_than_it_has(site: Lab, real_db: Servers) -> None:
    assert write(site, 0, 20, 0, 2)
    assert not write(site, 1, 20, 0, 2)
    with psycopg.connect(real_db.owner_dsn) as owner:
        owner.execute("DROP TRIGGER host_fits ON allocation_allocation")
    assert write(site, 1, 20, 0, 2)
