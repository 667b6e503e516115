"""The operator's table of speeds."""

import re
from decimal import Decimal

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Booking, WorkSpeed
from tests.builders import a_gpu_class, a_member, a_project, a_tier, an_operator
from tests.prices import price_book_publish
from tests.roles import as_system
from tests.web.flat import flat
from tests.web.fleet_builders import a_booking

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator() -> Client:
    a_gpu_class("h100")
    a_gpu_class("a100")
    client = Client()
    client.force_login(an_operator())
    return client


def stored() -> dict[tuple[str, str], int]:
    with as_system():
        rows = WorkSpeed.objects.values_list("workload", "gpu_class_id", "thousandths")
        return {(workload, name): speed for workload, name, speed in rows}


def test_a_kind_of_work_is_made_changed_and_taken_away(operator: Client) -> None:
    sent = {"act": "set", "workload": "Training", "speed-h100": "1", "speed-a100": "0.45"}
    assert operator.post("/ops/speeds", sent).status_code == 302
    assert stored() == {("training", "h100"): 1000, ("training", "a100"): 450}
    assert 'value="0.45"' in operator.get("/ops/speeds").content.decode()
    operator.post("/ops/speeds", sent | {"speed-a100": ""})
    assert stored() == {("training", "h100"): 1000}
    operator.post("/ops/speeds", {"act": "set", "workload": "training"})
    assert stored() == {}


@pytest.mark.parametrize("text", ["fast", "-1", "0", "1e3", "٢", "0.0001", "99999"])
def test_what_is_no_speed_comes_back_as_typed(operator: Client, text: str) -> None:
    sent = {"act": "set", "workload": "training", "speed-h100": text}
    answer = operator.post("/ops/speeds", sent)
    assert answer.status_code == 422
    assert f'value="{text}"' in answer.content.decode()
    assert stored() == {}


def test_a_class_that_is_not_there_and_a_name_that_is_none_are_refused(operator: Client) -> None:
    for sent in ({"workload": "training", "speed-b300": "1"}, {"workload": "A B"}):
        assert operator.post("/ops/speeds", {"act": "set", **sent}).status_code in (404, 422)
    assert stored() == {}


def test_a_card_compares_time_cost_and_use_of_the_same_work(operator: Client) -> None:
    member, now = a_member(a_project()), timezone.now()
    a_tier("standard", pausable=True)
    with as_system():
        prices = {("h100", "standard"): Decimal(4), ("a100", "standard"): Decimal(1)}
        price_book_publish(actor_id=None, valid_from=now, prices=prices, now=now)
        for name, thousandths in (("h100", 1000), ("a100", 400)):
            WorkSpeed.objects.create(workload="training", gpu_class_id=name, thousandths=thousandths)
    booking = a_booking(member, now=now)
    with as_system():
        Booking.objects.filter(id=booking.id).update(
            submitted=now, ask={**booking.ask, "workload": "training"}
        )
    page = flat(operator.get("/ops/speeds").content.decode())
    text = re.sub(r"(<[^>]+>)+", "|", page)
    assert "1 booking in 30 days, 1 open now" in text
    assert "Fastest on H100. Costs least on A100: €25.00 instead of €40.00 in Standard." in text
    rows = {
        name: re.sub(r"(<[^>]+>)+", " ", found)
        for name, found in re.findall(r'name="speed-(\w+)".*?>(.*?)</tr>', page)
    }
    assert [" ".join(rows[name].split()) for name in ("h100", "a100")] == [
        "10 h €40.00 1",
        "typical 0.45 1 d 1 h least €25.00 0",
    ]
    assert 'style="width:40.00%"' in page


def test_a_wrong_speed_is_told_beside_its_field_and_a_removed_workload_by_its_speeds(
    operator: Client,
) -> None:
    sent = {"act": "set", "workload": "training", "speed-h100": "1", "speed-a100": "0.45"}
    operator.post("/ops/speeds", sent)
    page = flat(operator.post("/ops/speeds", sent | {"speed-a100": "0"}).content.decode())
    error = re.search(r'id="speed-1-a100-note">.*?</svg>([^<]+)<', page)
    assert error is not None
    assert "more than 0" in error[1]
    assert "speed-1-h100-note" not in page
    for workload, words in (
        ("training", "training removed. Its speeds were:"),
        ("none", "nothing was saved"),
    ):
        answer = operator.post("/ops/speeds", {"act": "set", "workload": workload}, follow=True)
        assert words in answer.content.decode()
