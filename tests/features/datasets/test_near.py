"""Bookings that name data: in words, in REST, on pages, and where the plan puts them."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.datasets.models import NodeCache
from allocation.models import Allocation, Booking, Node
from allocation.services.decide.cycle import cycle_run
from allocation.services.snapshot.kept import SnapshotKeeper
from allocation.services.snapshot.snapshot import snapshot_take
from solver import Cache, encode
from tests.api.builders import Site, a_site, said
from tests.features.datasets.builders import another_node, first_node, node_says
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.web.flat import flat

ASK = {"classes": ["h100"], "duration": 3600}


@pytest.fixture
def site(real_db: Servers) -> Site:
    """A site whose transactions end: a cycle has its own."""
    return a_site()


@pytest.fixture
def far(site: Site) -> Node:
    """A second node, which alone has imagenet."""
    node = another_node()
    node_says(node.id, "imagenet", "coco")
    node_says(first_node().id, "genomes")
    return node


def booked(site: Site, **body: Any) -> dict[str, Any]:  # noqa: ANN401 (of JSON)
    response = site.researcher.post("bookings", {"project": "folding", **body}, idempotency_key="k1")
    assert response.status_code in (201, 202), response.content
    found: dict[str, Any] = said(response)
    return found


def decided() -> tuple[Booking, set[str]]:
    """The only booking after a cycle, and its nodes."""
    with as_system():
        cycle_run(timezone.now())
        booking = Booking.objects.get()
        rows = Allocation.objects.filter(booking=booking).values_list("gpu__node__name", flat=True)
        return booking, set(rows)


def event_of(booking: Booking) -> str:
    """What the history says of the place of a booking."""
    with as_system():
        return str(booking.events.get(kind="scheduled").sentence)


@pytest.mark.turn
@pytest.mark.parametrize(
    "body",
    [{"request": "2 h100 for 3h with imagenet"}, {"ask": {**ASK, "data": ["imagenet"]}}],
)
def test_a_booking_gets_the_node_that_has_its_data(site: Site, far: Node, body: dict[str, Any]) -> None:
    made = booked(site, **body)
    assert made["ask"]["data"] == ["imagenet"]

    booking, nodes = decided()

    assert nodes == {far.name}
    (reason,) = [each for each in booking.reasons if each["code"] == "data_place"]
    assert reason["numbers"] == {"data": "imagenet", "has": far.name}
    assert f"imagenet: on {far.name}, which was preferred for that." in event_of(booking)
    client = Client()
    client.force_login(site.people["researcher"])
    page = flat(client.get(f"/t/helix/bookings/{booking.label}").content.decode())
    assert f"imagenet: on {far.name}, which was preferred for that." in page
    assert "near imagenet" in page


def test_without_data_it_gets_the_first_node(site: Site, far: Node) -> None:
    booked(site, ask=ASK)
    booking, nodes = decided()
    assert nodes == {first_node().name}
    assert "data" not in booking.ask


def test_data_that_no_node_has_delays_nothing(site: Site, far: Node) -> None:
    booked(site, ask={**ASK, "data": ["nowhere"]})
    booking, nodes = decided()
    assert nodes == {first_node().name}
    assert "nowhere: on no node." in event_of(booking)


@pytest.mark.parametrize(
    "data", ["imagenet", ["ImageNet"], ["../etc"], [1], [None], ["a"] * 9, {"a": 1}, None, [["a"]]]
)
def test_other_data_is_refused_and_named(site: Site, data: object) -> None:
    response = site.researcher.post("bookings", {"project": "folding", "ask": {**ASK, "data": data}})
    assert response.status_code == 400, response.content
    assert said(response)["param"].endswith("data")


def test_the_snapshot_has_the_data_that_somebody_names_and_no_other(site: Site, far: Node) -> None:
    with as_system():
        before = snapshot_take(timezone.now())
    assert before.caches == ()
    assert b"caches" not in encode(before)
    booked(site, ask={**ASK, "data": ["imagenet", "genomes"]})
    with as_system():
        found = snapshot_take(timezone.now())
    assert found.caches == (Cache("gpu-a1-01", ("genomes",)), Cache("gpu-a1-02", ("imagenet",)))
    assert [request.ask.data for request in found.requests] == [("genomes", "imagenet")]


def test_a_kept_snapshot_follows_what_nodes_say(site: Site, far: Node) -> None:
    keeper = SnapshotKeeper()
    booked(site, ask={**ASK, "data": ["imagenet"]})
    seen: list[object] = []
    for names in (("imagenet",), (), ("imagenet", "coco")):
        node_says(far.id, *names, at=timezone.now())
        with as_system():
            NodeCache.objects.update(said_at="2020-01-01T00:00:00Z")
            keeper.lead(len(seen) + 1)
            seen.append([each.data for each in keeper.take(timezone.now(), 100).snapshot.caches])
    assert seen == [[("imagenet",)], [], [("imagenet",)]]


def test_a_change_of_the_data_is_placed_anew(site: Site, far: Node) -> None:
    tomorrow = (timezone.now() + timedelta(days=1)).replace(microsecond=0)
    booked(site, ask={**ASK, "starts": tomorrow.isoformat()})
    booking, nodes = decided()
    assert nodes == {first_node().name}
    answer = site.researcher.send(
        "PATCH", f"bookings/{booking.label}", {"data": ["imagenet"]}, headers={"if_match": "*"}
    )
    assert answer.status_code in (200, 202), answer.content
    with as_system():
        cycle_run(timezone.now())
        booking.refresh_from_db()
        rows = booking.allocations.filter(state="planned").values_list("gpu__node__name", flat=True)
        assert set(rows) == {far.name}
    assert booking.ask["data"] == ["imagenet"]


def test_the_panel_understands_and_offers_the_data(site: Site, far: Node) -> None:
    client = Client()
    client.force_login(site.people["researcher"])
    page = client.get("/t/helix/book", {"q": "2 h100 for 3h with imagenet"}).content.decode()
    assert 'value="imagenet"' in page
    assert "near the data imagenet" in flat(page)
    assert '<option value="genomes">' in page
    unknown = flat(client.get("/t/helix/book", {"q": "2 h100 for 3h with pytorch"}).content.decode())
    assert "is not understood" in unknown


def test_the_neighbour_sees_no_name_of_a_booking(site: Site, far: Node) -> None:
    made = booked(site, ask={**ASK, "data": ["imagenet"]})
    assert site.outsider.get(f"bookings/{made['id']}").status_code == 404


def test_an_array_and_a_series_carry_it(site: Site, far: Node) -> None:
    array = booked(site, request="array of 3: 1 h100 1h with imagenet")
    with as_system():
        assert {tuple(each["data"]) for each in Booking.objects.values_list("ask", flat=True)} <= {
            ("imagenet",)
        }
    assert array
