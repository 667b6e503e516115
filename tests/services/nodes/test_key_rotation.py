"""A node's key is changed while everything runs, and the old one is worthless afterwards."""

import dataclasses

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction

import wire
from agent.state.enrol import identity_load
from allocation.models import Node
from allocation.services.bookings.creation import booking_request
from allocation.services.nodes.fleet import node_key, node_key_rotate
from allocation.services.nodes.redis_accounts import agents_redis
from allocation.services.publish.publish import publish_due
from tenants.platform.errors import Refused
from tests.builders import an_operator
from tests.builders_allocation import NOW, a_booking_request, a_lab, an_ask
from tests.roles import as_system
from tests.services.plant import NAME, Plant, fresh

pytestmark = pytest.mark.turn


def node() -> Node:
    with as_system():
        return Node.objects.get(name=NAME)


def rotate() -> None:
    operator = an_operator()
    with as_system(), transaction.atomic():
        node_key_rotate(operator=operator, node=Node.objects.get(name=NAME), now=NOW)


def envelope() -> wire.Envelope:
    raw = agents_redis().get(wire.desired_key(NAME))
    assert isinstance(raw, bytes)
    return wire.Envelope.from_json(raw)


def versions(plant: Plant) -> list[int]:
    return sorted(plant.node.keys.identity.keys)


def signed_with(plant: Plant, version: int) -> wire.Envelope:
    """A report that is right in everything but perhaps its key."""
    sealed = plant.report()
    report = wire.open_report(sealed, plant.identity.keys)
    return wire.seal(report, key=node_key(node(), version), key_version=version)


def test_both_keys_are_good_until_the_agent_signs_with_the_new_one_and_then_only_that(
    plant: Plant,
) -> None:
    (old,) = plant.identity.keys
    rotate()
    assert (node().key_confirmed, node().key_version) == (old, old + 1)
    with as_system():
        publish_due(plant.now)
    assert envelope().key_version == old
    assert plant.receive(signed_with(plant, old)) == "applied"

    plant.node_works()
    assert versions(plant) == [old, old + 1]
    plant.portal_reads()
    assert node().key_confirmed == old + 1
    with as_system():
        publish_due(plant.now)
    assert envelope().key_version == old + 1
    assert plant.receive(signed_with(plant, old)) == "refused"

    plant.node_works()
    assert versions(plant) == [old + 1]
    plant.portal_reads()
    assert node().observed_generation == node().generation


def test_what_runs_does_not_notice_and_what_comes_later_starts(plant: Plant) -> None:
    lab = a_lab("helix", gpus=0)
    with as_system():
        running = booking_request(actor=lab.actor, request=a_booking_request(lab.project, an_ask()), now=NOW)
    plant.round()
    said = len(plant.line.said)
    rotate()
    with as_system():
        later = booking_request(actor=lab.actor, request=a_booking_request(lab.project, an_ask()), now=NOW)
    plant.round()
    assert len(plant.line.said) > said
    assert fresh(running).state == fresh(later).state == "active"
    assert node().key_confirmed == node().key_version
    # Another time, with everything that the first one left behind.
    rotate()
    plant.round()
    plant.round()
    assert node().key_confirmed == node().key_version
    assert versions(plant) == [node().key_version]


def test_the_new_key_is_on_the_agents_disk_before_it_is_used(plant: Plant) -> None:
    rotate()
    with as_system():
        publish_due(plant.now)
    plant.node_works()
    saved = identity_load(plant.folder / "identity.json")
    assert saved is not None
    assert saved.keys == plant.node.keys.identity.keys
    assert saved.signing_version == plant.line.said[-1].key_version == node().key_version


def test_an_agent_whose_disk_is_full_goes_on_with_its_old_key_until_there_is_room(
    plant: Plant,
) -> None:
    (plant.folder / "identity.json.new").mkdir()
    rotate()
    with as_system():
        publish_due(plant.now)
    plant.node_works()
    (old,) = versions(plant)
    assert plant.line.said[-1].key_version == old
    plant.portal_reads()
    assert node().key_confirmed == old

    (plant.folder / "identity.json.new").rmdir()
    plant.round()
    assert versions(plant)[-1] == node().key_confirmed == node().key_version == old + 1


def test_the_key_never_travels_in_clear_and_the_old_one_alone_does_not_tell_it(
    plant: Plant,
) -> None:
    old, new = node_key(node()), node_key(node(), node().key_version + 1)
    rotate()
    with as_system():
        publish_due(plant.now)
    assert new.hex().encode() not in envelope().body
    desired = wire.open_desired(envelope(), plant.identity.keys)
    assert desired.rotation is not None
    shown = wire.key_unwrap(
        old=old, hidden=desired.rotation.hidden, node=NAME, version=desired.rotation.version
    )
    assert shown == new
    other = wire.key_unwrap(
        old=b"x" * 32, hidden=desired.rotation.hidden, node=NAME, version=desired.rotation.version
    )
    assert other != new


def test_a_second_rotation_waits_for_the_first(plant: Plant) -> None:
    rotate()
    with pytest.raises(Refused, match="rotation_running"):
        rotate()
    with pytest.raises(IntegrityError, match="node_two_keys_at_most"), as_system():
        Node.objects.update(key_version=99)


@pytest.mark.parametrize("version", ["0.1.0", "", "nonsense", "0.1.99"])
def test_an_agent_that_would_refuse_the_whole_document_is_not_told(plant: Plant, version: str) -> None:
    with as_system():
        Node.objects.update(agent_version=version)
    with pytest.raises(Refused, match="agent_too_old"):
        rotate()
    assert node().key_version == node().key_confirmed


def test_without_a_rotation_a_document_is_what_an_older_agent_can_read(plant: Plant) -> None:
    with as_system():
        publish_due(plant.now)
    assert b"rotation" not in envelope().body


def test_a_new_version_of_the_agent_is_told_anew(plant: Plant) -> None:
    before = node().generation
    newer = dataclasses.replace(plant.node.inventory(), agent="9.0.0")
    key = plant.identity.keys[plant.identity.signing_version]
    for _ in range(2):
        newer = dataclasses.replace(newer, seq=node().inventory_seq + 1)
        sealed = wire.seal(newer, key=key, key_version=plant.identity.signing_version)
        assert plant.receive(sealed) == "applied"
        assert node().generation == before + 1


def test_the_command_rotates_and_says_why_not(plant: Plant) -> None:
    operator = an_operator()
    with as_system():
        call_command("rotate_key", node=NAME, operator=operator.username)
        assert node().key_version == node().key_confirmed + 1
        with pytest.raises(CommandError, match="rotation_running"):
            call_command("rotate_key", node=NAME, operator=operator.username)
        with pytest.raises(CommandError):
            call_command("rotate_key", node="nothing", operator=operator.username)
