"""The operator's catalogue: forms with errors at their fields."""

import re

import pytest
from django.test import Client

from allocation.models import GpuModel
from tenants.models import GpuClass
from tests.builders import an_operator
from tests.roles import as_system
from tests.services.reported import a_gpu, an_inventory, enrolled

pytestmark = pytest.mark.django_db
URL = "/ops/catalogue"


@pytest.fixture
def operator() -> Client:
    client = Client()
    client.force_login(an_operator())
    return client


def refused(client: Client, sent: dict[str, str]) -> str:
    answer = client.post(URL, sent)
    assert answer.status_code == 422
    return answer.content.decode()


@pytest.mark.turn
def test_one_press_adds_all_known_models_that_wait(operator: Client) -> None:
    enrolled(an_inventory(a_gpu(0, "NVIDIA L4"), a_gpu(1, "NVIDIA H200"), a_gpu(2, "NVIDIA X100")))
    page = operator.get(URL).content.decode()
    assert "3 unnamed models" in page
    assert operator.post(URL, {"act": "models-known"}).status_code == 302
    page = operator.get(URL).content.decode()
    assert "1 unnamed model" in page
    assert "The built-in catalogue does not include this model" in page
    assert operator.post(URL, {"act": "model-shipped", "slug": "t4"}).status_code == 302
    with as_system():
        assert set(GpuClass.objects.values_list("slug", flat=True)) == {"l4", "h200", "t4"}
        assert dict(GpuModel.objects.values_list("slug", "memory_mb"))["t4"] == 15_360


@pytest.mark.turn
def test_what_is_wrong_stands_beside_its_field_and_what_was_typed_stays(operator: Client) -> None:
    enrolled(an_inventory(a_gpu(0, "NVIDIA L4")))
    operator.post(URL, {"act": "models-known"})
    page = refused(operator, {"act": "class-set", "slug": "l4", "label": "", "order": "3"})
    assert re.search(r'id="class-l4-label"[^>]*aria-invalid="true"', page)
    assert 'value="3"' in page
    page = refused(operator, {"act": "class-set", "is_new": "1", "slug": "l4", "label": "L4"})
    assert re.search(r'id="new-class-slug"[^>]*aria-invalid="true"', page)
    # GPUs keep their name; a model without any may be changed.
    terms = {"product_name": "NVIDIA L4", "gpu_class": "l4", "memory_mb": "81559"}
    sent = {"act": "model-set", "slug": "l4", "switch_seconds": "700", **terms}
    assert re.search(r'id="model-l4-switch_seconds"[^>]*aria-invalid="true"', refused(operator, sent))
    sent = {"act": "model-name", "by_hand": "1", "slug": "x", **terms, "gpu_class": "NO"}
    assert re.search(r'id="new-model-gpu_class"[^>]*aria-invalid="true"', refused(operator, sent))
    assert "is in use by 1 model and 1 GPU" in refused(operator, {"act": "class-remove", "slug": "l4"})
    operator.post(URL, {"act": "class-set", "is_new": "1", "slug": "l5", "label": "L5"})
    assert operator.post(URL, {"act": "class-remove", "slug": "l5"}).status_code == 302
    with as_system():
        assert GpuClass.objects.get().label == "L4 24 GB"
