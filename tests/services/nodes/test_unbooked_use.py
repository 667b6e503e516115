"""Unbooked processes: enforcement by the node, and the record of it."""

import dataclasses

import pytest
from django.db import IntegrityError
from django.test import Client

import wire
from allocation.models import EventCounter, Gpu, GpuEvent, Node
from allocation.services.bookings.creation import booking_request
from allocation.services.nodes.fleet import enrolment_token_create
from allocation.services.nodes.unbooked_use import escalation_follow_policy, escalation_set
from allocation.services.policy.activations import policy_publish
from tenants.platform.errors import Refused
from tests.builders import a_tenant_admin, an_operator
from tests.builders_allocation import a_booking_request, a_lab
from tests.roles import as_system
from tests.services.paused import document
from tests.services.plant import NAME, Plant

pytestmark = pytest.mark.turn


def node() -> Node:
    with as_system():
        return Node.objects.get(name=NAME)


def rule(plant: Plant, warn: int | None, end: int | None) -> None:
    with as_system():
        escalation_set(operator=an_operator(), node=node(), warn_after=warn, end_after=end, now=plant.now)


def reported(plant: Plant, **values: object) -> None:
    plain = wire.open_report(plant.report(), plant.identity.keys)
    assert isinstance(plain, wire.Report)
    gpus = tuple(wire.ReportedGpu(uuid=g.uuid, mode="whole") for g in plant.hardware.gpus)
    report = dataclasses.replace(plain, gpus=gpus, **values)  # type: ignore[arg-type]
    version = plant.identity.signing_version
    sealed = wire.seal(report, key=plant.identity.keys[version], key_version=version)
    assert plant.receive(sealed) == "applied"


def events(*kinds: str) -> list[tuple[str, str]]:
    with as_system():
        rows = GpuEvent.objects.filter(kind__in=kinds).order_by("id")
        return [(row.kind, row.sentence) for row in rows]


def test_a_node_is_told_nothing_until_an_operator_says_so_and_hears_each_change(
    plant: Plant,
) -> None:
    plant.cycle()
    assert document(plant).ladder is None
    rule(plant, 120, 600)
    plant.cycle()
    assert document(plant).ladder == wire.Escalation(warn_after=120, end_after=600)
    rule(plant, None, None)
    plant.cycle()
    assert document(plant).ladder is None
    said = [sentence for _, sentence in events("operator")]
    assert [text.partition(" set: ")[2] for text in said] == [
        "Processes without a booking are reported, warned after 2 min, ended after 10 min.",
        "Processes without a booking are reported.",
    ]


@pytest.mark.parametrize(("warn", "end"), [(None, 600), (600, 600), (600, 659)])
def test_nobody_is_ended_without_a_warning(plant: Plant, warn: int | None, end: int) -> None:
    with pytest.raises(Refused, match="only after a warning"):
        rule(plant, warn, end)
    with as_system(), pytest.raises(IntegrityError, match="node_warns_before_it_ends"):
        Node.objects.update(unbooked_warn_after=warn, unbooked_end_after=end)


def test_an_agent_that_knows_nothing_of_it_is_told_nothing(plant: Plant) -> None:
    rule(plant, 120, None)
    with as_system():
        Node.objects.update(agent_version="0.3.0")
    with pytest.raises(Refused, match="Upgrade it to 0"):
        rule(plant, 60, None)
    plant.cycle()
    assert document(plant).ladder is None


def test_each_deed_is_written_down_once_and_counted(plant: Plant) -> None:
    gpu, at = plant.hardware.gpus[0].uuid, int(plant.now.timestamp())
    warned, asked = (
        wire.Enforcement(gpu=gpu, slot=None, pid=4711, step=step, user="<eve>", at=at)
        for step in ("warned", "asked")
    )
    strange = dataclasses.replace(warned, gpu="GPU-unknown", pid=-1)
    for actions in ((warned,), (warned, asked), (warned, asked, strange)):
        reported(plant, deeds=actions)
    assert events("warned", "asked", "killed") == [
        (
            "warned",
            "Process 4711 of <eve> was warned on its terminals that it has no booking there.",
        ),
        ("asked", "Process 4711 of <eve> was asked to end."),
    ]
    with as_system():
        counted = dict(EventCounter.objects.filter(name__startswith="unbooked").values_list())
    assert counted == {"unbooked_warned": 1, "unbooked_asked": 1}


def test_others_beside_a_booking_are_told_of_and_do_not_take_the_gpu_from_it(plant: Plant) -> None:
    lab = a_lab("helix", gpus=0)
    with as_system():
        booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
    plant.round()
    gpu = plant.hardware.gpus[0].uuid
    outside = wire.UnbookedDevice(gpu=gpu, slot=None, processes=2, users=("eve",), booked=True)
    reported(plant, foreign=(outside,))
    assert events("outside") == [("outside", "2 processes outside the booking: eve.")]
    with as_system():
        assert set(Gpu.objects.values_list("health", flat=True)) == {"ok"}
        reported(plant)
        assert not GpuEvent.objects.filter(kind="outside", until=None).exists()


def test_an_operator_sets_it_on_the_nodes_page(plant: Plant) -> None:
    operator = Client()
    with as_system():
        operator.force_login(an_operator())
    page = f"/ops/fleet/{NAME}"
    assert operator.post(f"{page}/unbooked", {"warn": "2", "end": "10"}).status_code == 302
    found = node()
    assert (found.unbooked_warn_after, found.unbooked_end_after) == (120, 600)
    body = operator.get(page).content.decode()
    assert "reported, warned after 2 min, ended after 10 min" in body
    assert operator.post(f"{page}/unbooked", {"warn": "", "end": "10"}).status_code == 422
    assert operator.post(f"{page}/unbooked", {"warn": "-1", "end": ""}).status_code == 422
    assert operator.post("/ops/fleet/none/unbooked", {"warn": "2"}).status_code == 404
    assert node().unbooked_end_after == 600
    operator.post(f"{page}/unbooked", {"warn": "", "end": ""})
    assert node().unbooked_warn_after is None
    assert node().unbooked_override
    body = operator.get(page).content.decode()
    assert "Set for this node only" in body
    operator.post(f"{page}/unbooked", {"by_policy": "on"})
    assert not node().unbooked_override
    assert "Processes without a booking: reported</summary>" in operator.get(page).content.decode()


def test_nobody_else_may_set_it(plant: Plant) -> None:
    member = Client()
    with as_system():
        member.force_login(a_tenant_admin(a_lab("helix", gpus=0).tenant).user)
    assert member.post(f"/ops/fleet/{NAME}/unbooked", {"warn": "2"}).status_code == 404
    assert node().unbooked_warn_after is None


# By policy.


def by_policy(plant: Plant, **entries: int) -> None:
    with as_system():
        policy_publish(document=entries, now=plant.now)


def test_the_policy_says_it_for_every_node_that_has_no_ladder_of_its_own(plant: Plant) -> None:
    with as_system():
        enrolment_token_create(node_name="other", rack_name="a1", now=plant.now)
    rule(plant, 60, None)
    by_policy(plant, unbooked_warn_after=120, unbooked_end_after=600)
    with as_system():
        found = {n.name: (n.unbooked_warn_after, n.unbooked_end_after) for n in Node.objects.all()}
        enrolment_token_create(node_name="new", rack_name="a1", now=plant.now)
        assert Node.objects.get(name="new").unbooked_end_after == 600
    assert found == {NAME: (60, None), "other": (120, 600)}
    plant.cycle()
    assert document(plant).ladder == wire.Escalation(warn_after=60, end_after=None)
    with as_system():
        escalation_follow_policy(operator=an_operator("olga"), node=node(), now=plant.now)
    plant.cycle()
    assert document(plant).ladder == wire.Escalation(warn_after=120, end_after=600)
    by_policy(plant)
    plant.cycle()
    assert document(plant).ladder is None
    with as_system():
        events_of_node = GpuEvent.objects.filter(kind="operator", node__name=NAME).order_by("id")
        sentences = list(events_of_node.values_list("sentence", flat=True))
    assert sentences[-2:] == [
        "olga set: follows the policy. "
        "Processes without a booking are reported, warned after 2 min, ended after 10 min.",
        "The policy changed. Processes without a booking are reported.",
    ]


def test_a_policy_that_says_nothing_new_tells_no_node_anything(plant: Plant) -> None:
    by_policy(plant, unbooked_warn_after=120)
    before = node().generation
    by_policy(plant, unbooked_warn_after=120, grid=60)
    assert node().generation == before


@pytest.mark.parametrize(
    "entries",
    [
        {"unbooked_end_after": 600},
        {"unbooked_warn_after": 600, "unbooked_end_after": 659},
        {"unbooked_warn_after": 0},
        {"unbooked_warn_after": 604_801},
    ],
)
def test_a_policy_that_ends_without_a_warning_or_beyond_its_range_is_refused(
    plant: Plant, entries: dict[str, int]
) -> None:
    with pytest.raises(Refused, match="unbooked_"):
        by_policy(plant, **entries)
    assert (node().unbooked_warn_after, node().unbooked_override) == (None, False)
