"""Data that nodes fetch before a start: in their documents, as a step of the start, and when it fails."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

import wire
from allocation.features.datasets.models import NodeCache, Staging
from allocation.features.turn_round.services import turn_rounds
from allocation.models import Allocation, Booking, Gpu, Node
from allocation.rules.states import State
from allocation.services.inbox.apply import message_apply
from allocation.services.nodes.fleet import node_key
from allocation.services.publish.desired import desired_documents
from tests.api.builders import Site, said
from tests.builders_allocation import NOW, a_booking, a_lab, an_allocation
from tests.features.datasets.builders import first_node, node_says
from tests.features.turn_round.builders import runs
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db


@pytest.fixture
def starting(site: Site) -> Allocation:
    """A GPU that a booking with data is about to get, on a node that lists data sets."""
    node_says(first_node().id, "coco")
    booking = a_booking(site.project, site.people["researcher"].id, state=State.STARTING, starts=NOW)
    with as_system():
        booking.ask["data"] = ["coco", "imagenet"]
        Booking.objects.filter(id=booking.id).update(ask=booking.ask)
        gpu = Gpu.objects.earliest("number")
    row = an_allocation(booking, gpu, starts=NOW, state="starting")
    row.booking = booking
    return row


def reported(row: Allocation, state: wire.AllocationState, **more: Any) -> wire.ReportedAllocation:  # noqa: ANN401
    ready = state == "ready"
    values = {
        "id": row.id.hex,
        "state": state,
        "devices": ("GPU-0",) if ready else (),
        "error": None,
        "since": 1,
    }
    return wire.ReportedAllocation(**{**values, **more})


def sent(*items: wire.ReportedAllocation, seconds: float = 0) -> str:
    """The node sends a report."""
    with as_system():
        node = Node.objects.earliest("name")
        report = wire.Report(
            epoch=1, observed_generation=node.generation, seq=node.report_seq + 1, allocations=items
        )
        envelope = wire.seal(report, key=node_key(node), key_version=node.key_version)
        return message_apply(node_name=node.name, envelope=envelope, now=NOW + timedelta(seconds=seconds))


def kept() -> dict[str, Any]:
    with as_system():
        row = Staging.objects.first()
    return row.nodes["gpu-a1-01"] if row else {}


def test_documents_name_the_data_for_nodes_that_list_theirs(site: Site, starting: Allocation) -> None:
    def data() -> list[tuple[str, ...]]:
        with as_system():
            (document,) = desired_documents(list(Node.objects.all()), 1)
        return [each.data for gpu in document.gpus for each in gpu.allocations]

    assert data() == [("coco", "imagenet")]
    # As before the agent listed any.
    with as_owner():
        NodeCache.objects.all().delete()
    assert data() == [()]


def test_the_first_listing_makes_a_new_document(site: Site) -> None:
    before = first_node().generation
    node_says(first_node().id, "coco")
    assert first_node().generation == before + 1
    node_says(first_node().id, "genomes", at=NOW + timedelta(hours=1))
    assert first_node().generation == before + 1


def test_it_is_shown_as_a_step_of_the_start(site: Site, starting: Allocation) -> None:
    client = Client()
    client.force_login(site.people["researcher"])
    address = f"/t/helix/bookings/{starting.booking.label}"

    assert sent(reported(starting, "preparing", staging=("imagenet",))) == "applied"
    assert sent(reported(starting, "preparing", staging=("imagenet",)), seconds=60) == "applied"
    page = flat(client.get(address).content.decode())
    assert "Step of the start: gpu-a1-01 fetches imagenet since" in page
    assert "Nothing is charged until the GPUs are handed over." in page

    step = wire.PreparedStep(name="stage", began=int(NOW.timestamp() * 1000), took=95_400)
    assert sent(reported(starting, "ready", steps=(step,)), seconds=100) == "applied"
    (found,) = said(site.researcher.get(f"bookings/{starting.booking.label}"))["staging"]["nodes"]
    assert (found["node"], found["data"], found["seconds"], found["error"]) == (
        "gpu-a1-01",
        ["imagenet"],
        95.4,
        "",
    )
    assert "fetched imagenet in 95 s." in flat(client.get(address).content.decode())
    with as_system():
        assert Booking.objects.get().state == State.ACTIVE


def test_a_failed_fetch_is_said_and_costs_nothing(site: Site, starting: Allocation) -> None:
    sent(reported(starting, "preparing", staging=("imagenet",)))
    error = "the data set imagenet was not fetched: exit status 1 (disk full)"
    assert sent(reported(starting, "failed", error=error), seconds=30) == "applied"

    assert kept()["error"] == error
    with as_system():
        booking = Booking.objects.get()
        assert (booking.state, booking.outcome, booking.ready_at) == (State.ENDING, "failed", None)
        assert booking.settled == Decimal(0)
        assert error in booking.events.latest("id").sentence
    client = Client()
    client.force_login(site.people["researcher"])
    page = flat(client.get(f"/t/helix/bookings/{booking.label}").content.decode())
    assert "did not fetch the data" in page
    assert "disk full" in page


@pytest.mark.parametrize("staging", [("genomes",), ("imagenet",) * 500])
def test_a_lying_node_changes_little(site: Site, starting: Allocation, staging: tuple[str, ...]) -> None:
    sent(reported(starting, "preparing", staging=staging))
    assert set(kept()["data"]) <= {"coco", "imagenet"}
    assert len(kept()["data"]) <= 2


def test_a_booking_without_data_or_on_another_node_keeps_nothing(site: Site, starting: Allocation) -> None:
    with as_system():
        ask = {name: value for name, value in starting.booking.ask.items() if name != "data"}
        Booking.objects.update(ask=ask)
    sent(reported(starting, "preparing", staging=("imagenet",)))
    assert kept() == {}


def test_the_neighbour_and_another_organisation_see_nothing_of_it(site: Site, starting: Allocation) -> None:
    sent(reported(starting, "preparing", staging=("imagenet",)))
    assert site.outsider.get(f"bookings/{starting.booking.label}").status_code == 404


def test_turn_rounds_have_a_kind_of_their_own_for_it() -> None:
    lab = a_lab("helix", gpus=1)
    gpu = runs(lab, 4, clearing=2, preparing=90)
    with as_system():
        last = Allocation.objects.latest("period")
        Allocation.objects.filter(id=last.id).update(agent_steps=[["clear", 1, 2], ["stage", 1, 88_000]])
        rows = turn_rounds(NOW, gpu.node_id)[gpu.node_id]
    assert [(row.kind, row.changes) for row in rows] == [("whole", 2), ("data", 1)]
    assert rows[1].kind_text == "With data that was fetched"
