"""The node's page shows the GPU topology that its agent reported."""

from datetime import UTC, datetime

import pytest
from django.test import Client

from allocation.models import Gpu
from allocation.queries.fleet.nodes import gpu_links_of
from tests.builders import a_member, a_project
from tests.roles import as_system
from tests.web.fleet_builders import a_node

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)


def test_the_matrix_is_on_the_page_of_a_node_whose_agent_told_it() -> None:
    member, node = a_member(a_project()), a_node(now=NOW, gpus=2)
    client = Client()
    client.force_login(member.user)
    url = f"/t/{member.tenant.slug}/fleet/{node.name}"
    assert "NVLink" not in client.get(url).content.decode()
    assert gpu_links_of(node.id) == []
    with as_system():
        Gpu.objects.filter(index=0).update(peers=[[1, 18, "numa"]])
        Gpu.objects.filter(index=1).update(peers=[[0, 18, None]])
    page = client.get(url).content.decode()
    assert page.count("18 NVLinks") == 2
    assert page.count("NUMA node") == 1
