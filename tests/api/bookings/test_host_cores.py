"""Work without a GPU: cores of hosts are booked, priced, limited and run as GPUs are."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Allocation, Booking, Gpu, GpuModel, Node, Rack
from allocation.services.decide.cycle import cycle_run
from allocation.services.runs.start import starts_due
from tenants.models import GpuClass, Tier
from tests.api.builders import Site, a_site, said
from tests.builders import a_quota
from tests.prices import price_book_publish
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.web.flat import flat

pytestmark = pytest.mark.races
CORES, MEMORY_MB = 16, 65_536


@pytest.fixture
def site(real_db: Servers) -> Site:
    """A site, and Valkey for what is said after a commit."""
    real_db.valkey_ensure()
    return a_site()


@pytest.fixture
def cores(site: Site) -> Node:
    """A node with 16 cores and 64 GiB for work without a GPU, of which Helix may use 16."""
    now = timezone.now() - timedelta(seconds=30)
    with as_system():
        cpu = GpuClass.objects.create(slug="cpu", label="CPU cores", kind="host", order=9)
        model = GpuModel.objects.create(
            slug="host-core", product_name="Host core", gpu_class=cpu, memory_mb=MEMORY_MB // CORES
        )
        node = Node.objects.create(
            name="cpu-a1-01",
            rack=Rack.objects.get(name="a1"),
            state=Node.State.READY,
            cores=CORES,
            memory_mb=MEMORY_MB,
        )
        Gpu.objects.bulk_create(
            Gpu(number=100 + n, node=node, index=n, uuid=f"CORE-a-{n}", model=model, gpu_class=cpu)
            for n in range(CORES)
        )
        prices = {("h100", tier): Decimal("4.80") for tier in ("standard", "spot")}
        prices |= {("cpu", tier): Decimal("0.04") for tier in ("standard", "spot")}
        price_book_publish(actor_id=None, valid_from=now, prices=prices, now=now)
    a_quota(site.tenant, cpu, guaranteed=16, limit=16)
    return node


def booked(site: Site, line: str = "16 cores 64 GB 4h", **more: Any) -> Any:  # noqa: ANN401 (the client's response)
    return site.researcher.post("bookings", {"project": "folding", "request": line, **more})


def decided() -> None:
    with as_system():
        cycle_run(timezone.now())


@pytest.mark.turn
@pytest.mark.usefixtures("cores")
def test_a_line_books_cores_with_memory_on_one_node_at_the_price_of_a_core_hour(site: Site) -> None:
    answer = booked(site)
    assert answer.status_code == 201, said(answer)
    found = said(answer)
    assert found["ask"]["classes"] == ["cpu"]
    assert (found["ask"]["count"], found["ask"]["memory"], found["ask"]["cores"]) == (16, 4, 0)
    assert (found["ask"]["together"], found["ask"]["required"], found["ask"]["host"]) == ("node", True, True)
    decided()
    with as_system():
        booking = Booking.objects.get()
        rows = list(Allocation.objects.select_related("gpu__node"))
        assert len(rows) == 16
        assert {row.gpu.node.name for row in rows} == {"cpu-a1-01"}
        assert booking.state in ("scheduled", "starting")
        # 16 cores for 4 hours at 4 cents.
        assert booking.hold_amount == Decimal("2.56")


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize(
    ("ask", "code", "works"),
    [
        ({"classes": ["cpu"], "cores": 8}, "host_cores_only", {"count": 8, "cores": 0, "profile": None}),
        ({"classes": ["cpu"], "profile": "1g.10gb"}, "host_cores_only", {"cores": 0, "profile": None}),
        ({"classes": ["cpu", "h100"]}, "cores_or_gpus", {"gpu_class": "cpu"}),
        ({"groups": [{"gpu_class": "cpu"}, {"gpu_class": "h100"}]}, "cores_or_gpus", {"gpu_class": "h100"}),
        ({"classes": ["cpu"], "count": 17}, "tenant_quota", {"count": 16}),
        ({"classes": ["cpu"], "count": 4, "memory": 30}, "host_too_small", {"memory": 16}),
    ],
)
def test_what_cores_are_not_is_refused_with_what_would_work(
    site: Site, ask: dict[str, Any], code: str, works: dict[str, Any]
) -> None:
    answer = site.researcher.post("bookings", {"project": "folding", "ask": {"duration": 3600, **ask}})
    found = said(answer)
    assert (answer.status_code // 100, found["code"]) == (4, code), found
    assert any(works.items() <= each.items() for each in found["alternatives"]), found["alternatives"]


@pytest.mark.usefixtures("cores")
def test_a_quote_offers_no_gpu_in_place_of_cores_and_no_cores_in_place_of_a_gpu(site: Site) -> None:
    def options(line: str) -> list[dict[str, Any]]:
        answer = site.researcher.post("quotes", {"project": "folding", "request": line})
        found: list[dict[str, Any]] = said(answer)["options"]
        return found

    cores = options("8 cores 4h")
    assert {each["gpu_class"] for each in cores} == {"cpu"}
    assert cores[0]["request"] == "8 cores 4h 32 gb ram"
    assert {each["gpu_class"] for each in options("2 h100 4h")} == {"h100"}
    refused = said(booked(site, "8 h100 4h"))
    assert refused["alternatives"]
    assert "cpu" not in {each.get("gpu_class") for each in refused["alternatives"]}


@pytest.mark.turn
@pytest.mark.usefixtures("cores")
def test_cores_count_as_no_gpus_of_a_person(site: Site) -> None:
    with as_system():
        Tier.objects.filter(slug="standard").update(max_open_gpus=2)
    found = said(booked(site))
    assert found.get("state") == "requested", found


@pytest.mark.turn
@pytest.mark.usefixtures("cores")
def test_gpus_are_booked_as_if_there_were_no_cores(site: Site) -> None:
    found = said(booked(site))
    assert found.get("state") == "requested", found
    assert booked(site, "2 h100 1h").status_code == 201
    decided()
    with as_system():
        states = dict(Booking.objects.values_list("planned_class", "state"))
    assert set(states) == {"cpu", "h100"}
    assert set(states.values()) <= {"scheduled", "starting"}


@pytest.mark.turn
@pytest.mark.usefixtures("cores")
def test_sentences_about_cores_name_no_gpu(site: Site) -> None:
    label = said(booked(site))["number"]
    decided()
    with as_system():
        starts_due(timezone.now())
    events = [each["sentence"] for each in said(site.researcher.get(f"bookings/{label}/events"))["items"]]
    assert any("the cores" in each for each in events), events
    client = Client()
    client.force_login(site.people["researcher"])
    for path in (f"bookings/{label}", f"bookings/{label}?act=release"):
        page = client.get(f"/t/helix/{path}").content.decode()
        assert "GPU" not in flat(page[page.index("<main") : page.index("</main>")])
    page = flat(client.get("/t/helix/book?q=500+cores+4h").content.decode())
    assert "Ask for 484 more cores" in page
