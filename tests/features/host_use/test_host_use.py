"""Host CPU, memory, disk and network of bookings: summed once, bounded, and shown as what they are."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client

import wire
from allocation.features.host_use.models import HostUse
from allocation.models import Allocation, Booking, Gpu, Node
from allocation.points import host_signals
from allocation.rules.states import State
from allocation.services.nodes.telemetry import samples_store
from tests.api.builders import Site, said
from tests.builders_allocation import NOW, a_booking, a_node, an_allocation
from tests.roles import as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db


@pytest.fixture
def running(site: Site) -> Allocation:
    """A GPU of a booking that runs."""
    booking = a_booking(site.project, site.people["researcher"].id, state=State.ACTIVE, starts=NOW)
    with as_system():
        Booking.objects.filter(id=booking.id).update(ready_at=NOW)
        booking.refresh_from_db()
        gpu = Gpu.objects.earliest("number")
    row = an_allocation(booking, gpu, starts=NOW, state="active")
    row.booking = booking
    return row


def use(row: Allocation | UUID, **more: Any) -> wire.HostUse:  # noqa: ANN401 (as the message)
    identifier = row.id if isinstance(row, Allocation) else row
    values: dict[str, Any] = {"ms": 10_000, "cpu_ms": 60_000, "cores": 8, "memory_mb": 1_000}
    return wire.HostUse(allocation=identifier.hex, **{**values, **more})


def node_says(*uses: wire.HostUse, at: datetime = NOW, sent: datetime | None = None) -> None:
    with as_system():
        node = Node.objects.earliest("name").id
        samples_store([(node, wire.Telemetry(sent_at=int((sent or at).timestamp()), host=uses))], at)


def kept() -> HostUse | None:
    with as_system():
        return HostUse.objects.first()


def test_sums_grow_with_each_message_and_the_peak_stays(running: Allocation) -> None:
    node_says(use(running, read_kb=2_048, written_kb=1_024))
    node_says(use(running, cpu_ms=20_000, memory_mb=400, read_kb=1_024), at=NOW + timedelta(seconds=10))

    row = kept()
    assert row is not None
    assert (row.seconds, row.cpu_seconds, row.core_seconds, row.cpu) == (20, 80, 160, 2_000)
    assert (row.memory_mb, row.peak_memory_mb, row.read_mb, row.written_mb) == (400, 1_000, 3, 1)
    assert (row.received_mb, row.sent_mb) == (None, None)
    with as_system():
        found = host_signals([running.booking.id])[running.booking.id]
        assert (found.cpu, found.network_gib) == (50.0, None)
        assert host_signals([]) == {}


@pytest.mark.parametrize(
    "more",
    [{"ms": 0}, {"ms": 10_000_000}, {"cpu_ms": (1 << 31) - 1, "ms": 1}, {"cores": 16_000}],
)
def test_impossible_values_change_nothing(running: Allocation, more: dict[str, int]) -> None:
    node_says(use(running, **more))
    assert kept() is None


def test_only_what_runs_on_the_node_counts(running: Allocation) -> None:
    node_says(use(uuid4()))
    late = NOW + timedelta(hours=1)
    node_says(use(running), at=late, sent=NOW)
    with as_system():
        Allocation.objects.update(state="ended")
    node_says(use(running))
    assert kept() is None


def test_one_booking_said_twice_in_a_message_counts_once(running: Allocation) -> None:
    node_says(*(use(running) for _ in range(500)))
    row = kept()
    assert row is not None
    assert row.seconds == 10


def test_it_is_on_the_page_and_in_rest_with_what_is_not_measured(site: Site, running: Allocation) -> None:
    address = f"bookings/{running.booking.label}/host-use"
    assert said(site.researcher.get(address))["nodes"] == []
    client = Client()
    client.force_login(site.people["researcher"])
    page = flat(client.get(f"/t/helix/bookings/{running.booking.label}").content.decode())
    assert "are not measured on its nodes" in page

    node_says(use(running))

    (row,) = said(site.researcher.get(address))["nodes"]
    assert (row["cpu_cores"], row["cores"], row["cpu_percent"], row["memory_mb"]) == (6.0, 8, 75.0, 1_000)
    assert (row["read_mb"], row["not_measured"]) == (None, ["disk", "network"])
    page = flat(client.get(f"/t/helix/bookings/{running.booking.label}").content.decode())
    assert "6.0 of 8 cores" in page
    assert "not measured" in page


def test_another_organisation_sees_none_of_it(site: Site, running: Allocation) -> None:
    node_says(use(running))
    assert site.outsider.get(f"bookings/{running.booking.label}/host-use").status_code == 404
    assert site.viewer.get(f"bookings/{running.booking.label}/host-use").status_code == 200


def test_the_network_of_a_gang_is_what_its_nodes_exchange(running: Allocation, site: Site) -> None:
    """The lesser of received and sent, by node, of the time in which it was measured."""
    node_says(use(running, received_kb=30 << 20, sent_kb=20 << 20))
    with as_system():
        first = HostUse.objects.get()
        assert (first.network_seconds, first.received_mb, first.sent_mb) == (10, 30 << 10, 20 << 10)
        assert host_signals([running.booking.id])[running.booking.id].network_gib is None, "one node"
        other = a_node("other", gpus=0)
        first.pk, first.node, first.received_mb = None, other, 10 << 10
        first.save()
        assert host_signals([running.booking.id])[running.booking.id].network_gib == 1.5
        HostUse.objects.filter(node=other).update(network_seconds=4)
        assert host_signals([running.booking.id])[running.booking.id].network_gib is None, (
            "measured too little"
        )
    shown = said(site.researcher.get(f"bookings/{running.booking.label}/host-use"))["nodes"][0]
    assert (shown["network_seconds"], shown["network_mb_s"], shown["not_measured"]) == (10, 5_120, ["disk"])
