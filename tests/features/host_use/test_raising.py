"""Free host cores for work that waits for input: chosen by the project, said to the owner, taken back."""

from datetime import timedelta

import pytest
from django.test import Client

from allocation.features.host_use.models import HostUse, RaisedCores
from allocation.features.host_use.raising import raise_turn
from allocation.models import Allocation, Booking, Gpu, GpuSample, Node
from allocation.rules.states import State
from allocation.services.publish.desired import desired_documents
from tests.api.builders import Site, said
from tests.builders_allocation import NOW, a_booking, an_allocation
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db
BEGAN, AT = NOW, NOW + timedelta(minutes=30)


@pytest.fixture
def waiting(site: Site) -> Allocation:
    """A GPU whose booking waits for its host, with its eight cores in full use, and twelve free ones."""
    booking = a_booking(site.project, site.people["researcher"].id, state=State.ACTIVE, starts=BEGAN)
    with as_system():
        Booking.objects.filter(id=booking.id).update(
            ready_at=BEGAN, ask={**booking.ask, "cores": 8}, planned_class="h100"
        )
        booking.refresh_from_db()
        gpu = Gpu.objects.earliest("number")
        Node.objects.update(agent_version="0.7.0", host_limits="enforced", cores=64, memory_mb=1 << 20)
    row = an_allocation(booking, gpu, starts=BEGAN, state="active")
    row.booking = booking
    with as_system():
        GpuSample.objects.bulk_create(
            GpuSample(
                gpu=gpu,
                tenant_id=booking.tenant_id,
                allocation_id=row.id,
                at=BEGAN + timedelta(seconds=10 * number),
                utilisation=40,
                processes=1,
                bandwidth=10,
                tensor=8,
            )
            for number in range(180)
        )
        HostUse.objects.create(
            tenant_id=booking.tenant_id,
            booking=booking,
            node_id=gpu.node_id,
            at=AT,
            seconds=1_800,
            cpu_seconds=7.6 * 1_800,
            core_seconds=8 * 1_800,
            cores=8,
            spare=12,
            cpu=7_600,
        )
    return row


def chosen(site: Site, *, on: bool) -> None:
    answer = site.lead.put("projects/folding/spare-cores", {"on": on})
    assert said(answer) == {"on": on}


def turned(minutes: int = 0) -> int:
    with as_system():
        return raise_turn(AT + timedelta(minutes=minutes))


def ordered() -> list[int]:
    with as_system():
        (document,) = desired_documents(list(Node.objects.all()), 1)
    return [each.more_cores for gpu in document.gpus for each in gpu.allocations]


def test_it_is_off_until_a_lead_sets_it_on(site: Site, waiting: Allocation) -> None:
    assert turned() == 0
    assert said(site.researcher.get("projects/folding/spare-cores")) == {"on": False}
    assert site.outsider.get("projects/folding/spare-cores").status_code == 404
    assert site.researcher.put("projects/folding/spare-cores", {"on": True}).status_code == 403
    assert site.outsider.put("projects/folding/spare-cores", {"on": True}).status_code == 404
    for wrong in ({}, {"on": "maybe"}, {"on": True, "cores": 3}, {"on": None}):
        assert site.lead.put("projects/folding/spare-cores", wrong).status_code == 400
    chosen(site, on=True)
    assert said(site.researcher.get("projects/folding/spare-cores")) == {"on": True}
    assert turned() == 1
    assert ordered() == [12]


def test_the_owner_is_notified_with_the_numbers(site: Site, waiting: Allocation) -> None:
    chosen(site, on=True)
    turned()

    with as_system():
        event = waiting.booking.events.get(kind="cores_raised")
    assert "up to 12 for each GPU: its GPUs were 40 % busy and its own cores 95 %." in event.sentence
    found = said(site.researcher.get(f"bookings/{waiting.booking.label}/host-use"))
    assert found["lent_cores"] == 12
    client = Client()
    client.force_login(site.people["researcher"])
    page = flat(client.get(f"/t/helix/bookings/{waiting.booking.label}").content.decode())
    assert "Free cores are lent to it since" in page
    # Once: nothing more is said or changed while it lasts.
    assert turned(1) == 0


def test_a_lead_sets_it_on_the_page_and_sees_what_is_lent(
    site: Site, waiting: Allocation, client: Client
) -> None:
    page, link = "/t/helix/p/folding/spare-cores", "/p/folding/spare-cores"
    booking = f"/t/helix/bookings/{waiting.booking.label}"
    client.force_login(site.people["researcher"])
    assert "A lead of the project chooses it." in flat(client.get(page).content.decode())
    assert link not in client.get(booking).content.decode()
    assert client.post(page, {"act": "set", "on": "on"}).status_code == 403
    client.force_login(site.people["outsider"])
    assert client.get(page).status_code == 404
    client.force_login(site.people["lead"])
    assert link in client.get(booking).content.decode()
    assert client.post(page, {"act": "set", "on": "on"}).status_code == 302
    assert turned() == 1
    shown = flat(client.get(page).content.decode())
    assert waiting.booking.label in shown
    assert '<td class="num">12</td>' in shown
    client.post(page, {"act": "set"})
    assert turned(1) == 1, "what was lent is taken back"
    assert "No booking of this project has lent cores." in flat(client.get(page).content.decode())


@pytest.mark.parametrize(
    "change",
    [{"spare": 0}, {"cores": 0}, {"cpu_seconds": 1_800}, {"at": AT - timedelta(hours=1)}],
    ids=["nothing free", "no limit", "cores not in use", "old"],
)
def test_without_cause_or_room_nothing_is_lent(
    site: Site, waiting: Allocation, change: dict[str, object]
) -> None:
    chosen(site, on=True)
    with as_system():
        HostUse.objects.update(**change)
    assert turned() == 0
    assert ordered() == [0]


def test_work_that_is_busy_or_was_not_measured_gets_none(site: Site, waiting: Allocation) -> None:
    chosen(site, on=True)
    with as_owner():
        GpuSample.objects.update(utilisation=97)
    assert turned() == 0
    with as_owner():
        GpuSample.objects.update(utilisation=None)
    assert turned() == 0


def test_it_is_taken_back_when_the_project_does_not_want_it(site: Site, waiting: Allocation) -> None:
    chosen(site, on=True)
    turned()
    chosen(site, on=False)
    assert turned(1) == 1
    assert ordered() == [0]
    with as_system():
        assert waiting.booking.events.filter(kind="cores_returned").count() == 1
    chosen(site, on=True)
    with as_system():
        HostUse.objects.update(at=AT + timedelta(minutes=2))
    assert turned(2) == 1
    assert ordered() == [12]


def test_it_ends_with_the_run(site: Site, waiting: Allocation) -> None:
    chosen(site, on=True)
    turned()
    with as_system():
        Booking.objects.update(state=State.ENDING)
    assert turned(1) == 1
    with as_system():
        assert RaisedCores.objects.get().ended_at is not None
