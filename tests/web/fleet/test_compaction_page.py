"""The page on which operators have running work moved together."""

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Allocation, CompactionOrder, Gpu
from allocation.rules.states import State
from tenants.models import Tier
from tests.builders import a_member, a_project, an_operator
from tests.builders_allocation import HOUR, a_booking, a_lab, an_allocation, an_ask
from tests.builders_pauses import a_decision
from tests.roles import as_system

PAGE = "/ops/compaction"
SLICE = "1g.10gb"

pytestmark = [pytest.mark.django_db, pytest.mark.turn]


@pytest.fixture
def operator() -> Client:
    client = Client()
    client.force_login(an_operator())
    return client


def a_full_site() -> None:
    """A slice on each of two GPUs, both pausable, and a booking that waits for a whole one."""
    now = timezone.now().replace(microsecond=0)
    lab = a_lab("helix", gpus=2, now=now)
    with as_system():
        gpus = list(Gpu.objects.order_by("index"))
    for gpu in gpus:
        began, ask = now - 2 * HOUR, an_ask(1, profile=SLICE, hours=6)
        booking = a_booking(
            lab.project, lab.actor.user_id, state=State.ACTIVE, hours=6, ask=ask, starts=began
        )
        an_allocation(
            booking,
            gpu,
            profile=SLICE,
            start=0,
            ends=now + 4 * HOUR,
            state=Allocation.State.ACTIVE,
            starts=began,
        )
    a_booking(lab.project, lab.actor.user_id, hours=2, starts=now)
    with as_system():
        Tier.objects.update(pausable=True, grace_seconds=120)


def test_one_press_orders_what_is_shown_and_the_page_says_what_became_of_it(
    operator: Client,
) -> None:
    a_full_site()
    page = operator.get(PAGE)
    (proposal,) = page.context["proposals"]
    assert f"Move 1 booking for {proposal.booking.label}" in page.content.decode()
    done = operator.post(PAGE, {"proposal": proposal.key}, follow=True)
    assert "The next decision carries it out or says why not" in done.content.decode()
    assert "Waiting for the next decision" in done.content.decode()
    decision = a_decision(timezone.now())
    answer = {"decided_at": timezone.now(), "decision": decision}
    with as_system():
        CompactionOrder.objects.update(declined="A place is taken.", **answer)
    assert "A place is taken." in operator.get(PAGE).content.decode()
    with as_system():
        CompactionOrder.objects.update(declined="")
    assert f"decision {decision.id}" in operator.get(PAGE).content.decode()


def test_what_is_no_proposal_any_more_changes_nothing(operator: Client) -> None:
    answer = operator.post(PAGE, {"proposal": "0" * 16})
    assert answer.status_code == 409
    assert "nothing was done" in answer.content.decode()
    with as_system():
        assert not CompactionOrder.objects.exists()


def test_to_everybody_else_the_page_is_not_there() -> None:
    client = Client()
    client.force_login(a_member(a_project()).user)
    assert client.get(PAGE).status_code == 404
    assert client.post(PAGE, {"proposal": "x"}).status_code == 404
