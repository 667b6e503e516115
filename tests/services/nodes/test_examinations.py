"""What agents find on their nodes: kept while it fits, and acted on where no work can be served."""

import json

import pytest
from django.db import DatabaseError, connection, transaction

import wire
from allocation.models import Node, NodeExamination
from allocation.queries.fleet.nodes import examination_of
from allocation.services.nodes.fleet import enrolment_token_create, node_approve, node_enrol
from tests.builders import an_operator
from tests.roles import as_role, as_system
from tests.services.plant import NAME, Plant

pytestmark = pytest.mark.turn


def examined(plant: Plant, *states: tuple[str, wire.CheckState], seq: int, seen: str = "530.41") -> str:
    checks = tuple(
        wire.CheckResult(name=name, state=state, seen=seen, do="change it") for name, state in states
    )
    return sent(plant, wire.Examination(at=int(plant.now.timestamp()), checks=checks, seq=seq))


def sent(plant: Plant, message: wire.Examination) -> str:
    version = plant.identity.signing_version
    envelope = wire.seal(message, key=plant.identity.keys[version], key_version=version)
    return plant.receive(envelope)


def node() -> Node:
    with as_system():
        return Node.objects.get(name=NAME)


def kept() -> NodeExamination | None:
    with as_system():
        return NodeExamination.objects.first()


def approved(plant: Plant) -> None:
    with as_system():
        node_approve(operator=an_operator(), node=node(), now=plant.now)


def test_what_keeps_a_node_from_being_served_waits_for_an_operator_once(plant: Plant) -> None:
    driver = "driver's version"
    assert examined(plant, (driver, "ok"), ("GPUs", "fail"), ("setfacl", "warn"), seq=1) == "applied"
    assert node().state == Node.State.READY

    assert examined(plant, (driver, "fail"), seq=2) == "applied"
    assert (node().state, list(node().difference_words)) == (
        Node.State.QUARANTINED,
        ["The check of driver's version fails: 530.41. Fix: change it."],
    )
    approved(plant)
    # The operator has seen it: a restart of the agent says it again and changes nothing.
    examined(plant, (driver, "fail"), seq=3)
    assert node().state == Node.State.READY
    examined(plant, (driver, "fail"), ("state folder", "fail"), seq=4)
    assert [text.split(" fails")[0] for text in list(node().difference_words)] == [
        "The check of state folder"
    ]
    approved(plant)
    # What was well meanwhile is news when it fails again.
    examined(plant, (driver, "ok"), seq=5)
    examined(plant, (driver, "fail"), seq=6)
    assert node().state == Node.State.QUARANTINED


def test_an_old_word_changes_nothing_and_a_new_enrolment_forgets(plant: Plant) -> None:
    assert examined(plant, ("driver", "ok"), seq=9) == "applied"
    assert examined(plant, ("driver", "fail"), seq=8) == "stale"
    assert node().state == Node.State.READY
    with as_system():
        token = enrolment_token_create(node_name=NAME, rack_name="a1", now=plant.now)
    inventory = json.loads(json.dumps(wire.inventory_to_plain(plant.node.inventory())))
    node_enrol(token=token, inventory=inventory, now=plant.now)
    assert kept() is None


@pytest.mark.parametrize("text", ["a\x00b", "two\nlines", "\u202eevil", "\x1b[31m", "x" * 301, "\u2028"])
def test_text_that_no_page_should_show_is_refused(plant: Plant, text: str) -> None:
    assert examined(plant, ("driver", "fail"), seq=1, seen=text) == "refused"
    assert (kept(), node().refused, node().state) == (None, 1, Node.State.READY)


def test_a_node_that_lies_fills_no_more_than_its_room_and_sets_no_time_to_come(
    plant: Plant,
) -> None:
    much = wire.CheckResult(name='"' * 300, state="warn", seen="\U0001f600" * 300, do='"' * 300)
    assert sent(plant, wire.Examination(at=1 << 40, checks=(much,) * 200, seq=1 << 60)) == "applied"
    found = kept()
    assert found is not None
    assert (len(found.checks), found.at) == (wire.CHECKS_MAX, plant.now)
    for checks in ("{}", "[" + "1," * wire.CHECKS_MAX + "1]"):
        with as_system(), pytest.raises(DatabaseError), transaction.atomic():
            _written(checks)


def _written(checks: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE allocation_nodeexamination SET checks = %s::jsonb", [checks])


def test_no_web_request_of_a_tenant_reads_it(plant: Plant) -> None:
    examined(plant, ("driver", "ok"), seq=1)
    with (
        as_role("portal_web"),
        pytest.raises(DatabaseError, match="permission denied"),
        transaction.atomic(),
    ):
        NodeExamination.objects.count()


def test_results_are_shown_by_their_codes_and_facts(plant: Plant) -> None:
    facts = (wire.CheckFact(name="mib", value="12"),) * 2 * wire.CHECK_FACTS_MAX
    checks = (
        wire.CheckResult(
            name="room",
            state="fail",
            seen="12 MB",
            do="make room",
            seen_code="free",
            do_code="fix_free",
            facts=facts,
        ),
        wire.CheckResult(name="GPUs", state="ok", seen="8 of these", do="", seen_code="of_later"),
    )
    assert sent(plant, wire.Examination(at=1, checks=checks, seq=1)) == "applied"
    with as_system():
        found = examination_of(node().id)
    assert found is not None
    room, gpus = found.checks
    assert (room.seen_text, room.do_text) == (
        "12 MiB free",
        "free some space: without it, the agent can't store keys and its state",
    )
    assert (gpus.seen_text, gpus.do_text) == ("8 of these", "")
