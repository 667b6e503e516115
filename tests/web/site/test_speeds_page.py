"""The operator's table of speeds."""

import pytest
from django.test import Client

from allocation.models import WorkSpeed
from tests.builders import a_gpu_class, an_operator
from tests.roles import as_system

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
