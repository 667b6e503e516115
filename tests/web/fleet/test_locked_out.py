"""Nodes whose agent has no account any more, on the operators' pages."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Node
from tests.builders import an_operator
from tests.roles import as_system
from tests.web.flat import flat
from tests.web.fleet_builders import a_node

pytestmark = pytest.mark.django_db


def _page(client: Client, url: str) -> str:
    answer = client.get(url)
    assert answer.status_code == 200, answer.content.decode()[:500]
    return answer.content.decode()


@pytest.fixture
def operator(client: Client) -> Client:
    """A browser in which an operator is signed in."""
    client.force_login(an_operator())
    return client


def test_a_node_that_is_drained_while_locked_out_needs_attention_until_it_is_enrolled(
    operator: Client,
) -> None:
    node = a_node(now=timezone.now())
    with as_system():
        Node.objects.filter(id=node.id).update(link_digest=b"d" * 32)
    operator.post(f"/ops/fleet/{node.name}/revoke", {"sure": "1"})
    for by in ("", f"{timezone.localtime() + timedelta(hours=2):%Y-%m-%dT%H:%M}"):
        answer = operator.post(f"/ops/fleet/{node.name}/drain", {"reason": "New riser", "by": by})
        assert answer.status_code == 302, answer.content
        node.refresh_from_db()
        assert node.state == Node.State.DRAINING
        assert node.state_words.startswith("Its agent is locked out; enrol it again. Drained: New riser")
        fleet = flat(_page(operator, "/ops/fleet"))
        attention = fleet[fleet.index("Needs attention") :].partition("</section>")[0]
        assert f"{node.name}: Draining, locked out" in attention
        assert "New riser" in attention
        assert "Enrol again" in _page(operator, f"/ops/fleet/{node.name}")
    with as_system():
        Node.objects.filter(id=node.id).update(link_digest=b"e" * 32)
    node.refresh_from_db()
    assert node.state_words.startswith("New riser")
    assert "locked out" not in _page(operator, "/ops/fleet")


def test_a_node_that_was_returned_while_locked_out_takes_no_work_and_says_why(
    operator: Client,
) -> None:
    """An earlier version could return it."""
    node = a_node(now=timezone.now())
    with as_system():
        Node.objects.filter(id=node.id).update(
            key_version=3, key_confirmed=3, unreachable_since=timezone.now()
        )
    node.refresh_from_db()
    assert not node.takes_work
    page = flat(_page(operator, f"/ops/fleet/{node.name}"))
    assert "locked out" in page
    assert "no account with which to end or report" in page
    assert "its network" not in page
