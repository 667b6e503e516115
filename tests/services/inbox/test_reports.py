"""What the portal believes of what nodes say."""

import dataclasses
import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError

import wire
from allocation.models import Allocation, Booking, Gpu, GpuEvent, Node, Occupancy
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.decide.invariants import invariants_check
from allocation.services.inbox import apply, consumer
from allocation.services.nodes.fleet import node_key
from allocation.services.runs.start import allocations_ready
from tests.builders_allocation import (
    NOW,
    Lab,
    a_booking,
    a_booking_request,
    a_lab,
    a_node,
    an_allocation,
    an_ask,
)
from tests.roles import as_system
from tests.services.plant import NAME, Plant, fresh, rows_of

pytestmark = pytest.mark.turn


def world() -> list[Any]:
    """Everything that a report could change, but when nodes were heard."""
    with as_system():
        return [
            list(Booking.objects.order_by("id").values()),
            list(Allocation.objects.order_by("id").values("id", "state", "devices", "error")),
            list(Occupancy.objects.order_by("id").values()),
            list(Gpu.objects.order_by("id").values("id", "mode", "health")),
            list(Node.objects.order_by("id").values("id", "generation", "report_seq", "state")),
        ]


def a_word(name: str, state: wire.AllocationState = "ready") -> wire.ReportedAllocation:
    devices = ("GPU-1",) if state == "ready" else ()
    error = "no luck" if state == "failed" else None
    return wire.ReportedAllocation(id=name, state=state, devices=devices, error=error, since=1)


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


@pytest.fixture
def starting(plant: Plant, lab: Lab) -> Booking:
    """A booking of two GPUs that is starting on the node."""
    with as_system():
        booking = booking_request(actor=lab.actor, request=a_booking_request(lab.project, an_ask(2)), now=NOW)
    plant.cycle()
    return booking


def names(booking: Booking) -> list[str]:
    return [row.id.hex for row in rows_of(booking)]


def forged(plant: Plant, envelope: wire.Envelope) -> wire.Envelope:
    body = envelope.body.replace(b'"observed_generation"', b'"observed_generation" ')
    return dataclasses.replace(envelope, body=body)


def test_what_must_not_be_believed_changes_nothing(plant: Plant, starting: Booking) -> None:
    one, two = names(starting)
    a_node("gpu-a1-02")
    with as_system():
        other = Node.objects.get(name="gpu-a1-02")
        generation = Node.objects.get(name="gpu-a1-01").generation
    words = (a_word(one), a_word(two))
    right = plant.report(*words)
    other_key = wire.seal(
        wire.open_report(right, plant.identity.keys),
        key=node_key(other),
        key_version=right.key_version,
    )
    before = world()
    answers = {
        "of another epoch": plant.receive(plant.report(*words, epoch=99)),
        "of a generation to come": plant.receive(plant.report(*words, observed_generation=generation + 1)),
        "of an old number": plant.receive(plant.report(*words, seq=0)),
        "changed on its way": plant.receive(forged(plant, right)),
        "signed by another node": plant.receive(other_key),
        "with a key nobody has": plant.receive(dataclasses.replace(right, key_version=99)),
        "sent as another node": plant.receive(right, node="gpu-a1-02"),
        "from nowhere": plant.receive(right, node="gpu-zz"),
    }
    assert world() == before
    assert answers == {
        "of another epoch": "stale",
        "of a generation to come": "stale",
        "of an old number": "stale",
        "changed on its way": "refused",
        "signed by another node": "refused",
        "with a key nobody has": "refused",
        "sent as another node": "refused",
        "from nowhere": "unknown_node",
    }
    assert plant.receive(right) == "applied"
    assert fresh(starting).state == "active"


def test_a_node_can_not_speak_for_what_lies_on_another(plant: Plant, lab: Lab) -> None:
    a_node("gpu-a1-02")
    with as_system():
        far = Gpu.objects.get(node__name="gpu-a1-02")
    booking = a_booking(lab.project, lab.actor.user_id, state="starting")
    row = an_allocation(booking, far, state="starting")
    before = world()
    words = (a_word(row.id.hex), a_word(uuid4().hex), a_word("no-uuid", "empty"))
    assert plant.receive(plant.report(*words)) == "applied"
    after = world()
    # The number of the report is all that is new.
    assert before[:4] == after[:4]


def test_a_report_counts_once_however_often_it_comes(plant: Plant, starting: Booking) -> None:
    report = plant.report(*map(a_word, names(starting)))
    assert [plant.receive(report) for _ in range(3)] == ["applied", "stale", "stale"]


@pytest.mark.long
def test_every_old_message_again_in_any_order_changes_nothing(
    plant: Plant, lab: Lab, starting: Booking
) -> None:
    plant.round()
    plant.later(timedelta(minutes=20))
    assert fresh(starting).state == "active"
    with as_system():
        booking_release(actor=lab.actor, booking=starting, now=plant.now)
    plant.later(timedelta(seconds=5))
    assert fresh(starting).state == "ended"
    before = world()
    old = plant.line.said * 2
    assert len(old) > 10
    random.Random(7).shuffle(old)  # noqa: S311 (only an order)
    for envelope in old:
        plant.receive(envelope)
    assert world() == before
    with as_system():
        assert invariants_check() == []


def test_a_reader_that_dies_in_the_middle_of_a_report_reads_it_again(
    plant: Plant, starting: Booking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(said: Mapping[UUID, Sequence[str]], now: datetime) -> None:
        allocations_ready(said, now)
        raise OperationalError("the connection is gone")

    report = plant.report(*map(a_word, names(starting)))
    before = world()
    monkeypatch.setattr(apply, "allocations_ready", dies)
    with pytest.raises(OperationalError):
        plant.receive(report)
    assert world() == before
    monkeypatch.undo()
    assert plant.receive(report) == "applied"
    assert fresh(starting).state == "active"


NUL = "\x00"


def test_a_node_that_says_what_no_row_can_hold_is_not_believed_and_stops_nobody(
    plant: Plant, starting: Booking
) -> None:
    one, two = names(starting)
    poison = dataclasses.replace(a_word(one, "failed"), error=f"no{NUL}luck")
    sick_gpu = wire.Inventory(
        hostname="x",
        driver=f"5{NUL}",
        agent="1",
        boot="b",
        cores=1 << 40,
        memory_mb=1,
        seq=1 << 60,
    )
    version = plant.identity.signing_version
    sealed = wire.seal(sick_gpu, key=plant.identity.keys[version], key_version=version)
    before = world()
    assert plant.receive(plant.report(poison)) == "refused"
    assert plant.receive(sealed) == "refused"
    assert world() == before
    assert plant.receive(plant.report(a_word(one), a_word(two))) == "applied"
    assert fresh(starting).state == "active"


def test_a_reader_takes_over_what_a_killed_one_had_not_finished(
    plant: Plant, starting: Booking, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant.node_works()
    monkeypatch.setattr(consumer, "TAKEN_OVER_MS", 0)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(consumer, "messages_apply", killed)
    with pytest.raises(KeyboardInterrupt):
        plant.portal_reads()
    assert fresh(starting).state == "starting"
    monkeypatch.undo()
    monkeypatch.setattr(consumer, "TAKEN_OVER_MS", 0)
    second = consumer.Reader("another", clock=lambda: plant.now)
    with as_system():
        second.turn(block_ms=0)
    assert fresh(starting).state == "active"


def test_a_proof_counts_only_from_a_node_that_has_read_its_newest_document(
    plant: Plant, lab: Lab, starting: Booking
) -> None:
    """Its next document may give the same work more time, so that it would continue."""
    plant.round()
    with as_system():
        booking_release(actor=lab.actor, booking=starting, now=plant.now)
    plant.cycle()
    words = [a_word(name, "empty") for name in names(starting)]
    with as_system():
        generation = Node.objects.get().generation
    assert plant.receive(plant.report(*words, observed_generation=generation - 1)) == "applied"
    assert fresh(starting).state == "ending"
    with as_system():
        assert Occupancy.objects.filter(closed=None).count() == 2
    assert plant.receive(plant.report(*words)) == "applied"
    assert fresh(starting).state == "ended"


@pytest.mark.parametrize("word", ["empty", "failed"])
def test_a_node_that_says_a_run_is_over_early_makes_no_time_free(
    plant: Plant, lab: Lab, starting: Booking, word: wire.AllocationState
) -> None:
    plant.round()
    ready = fresh(starting).ready_at
    assert ready is not None
    plant.now += timedelta(minutes=30)
    plant.receive(plant.report(*[a_word(name, word) for name in names(starting)]))
    again = fresh(starting)
    # Charged until the portal heard of it; the rest of its time is to be had elsewhere.
    assert (again.state, again.used_seconds) == ("queued", int((plant.now - ready).total_seconds()))
    assert again.reasons[0]["rule"] == "R110"
    with as_system():
        noted = GpuEvent.objects.filter(kind="conflict")
        assert [event.instance for event in noted] == names(starting)[:1]
        assert Node.objects.get(name=NAME).conflicts == 1
        booking_cancel(actor=lab.actor, booking=again, now=plant.now)
        over = fresh(again)
        paid = (over.price_per_hour * over.used_seconds / 3600).quantize(over.hold_amount)
        assert (over.state, over.charged) == ("cancelled", paid)
        assert paid > 0
        assert invariants_check() == []


@pytest.mark.parametrize("word", ["empty", "failed"])
def test_what_is_cleared_before_it_was_ready_fails_at_once_and_costs_nothing(
    plant: Plant, starting: Booking, word: wire.AllocationState
) -> None:
    """A node whose clock runs ahead takes it for over: nobody is held until the planned end."""
    plant.now += timedelta(minutes=1)
    for said in (word, "empty"):
        # It has read that it is to clear them before it says so again.
        plant.receive(plant.report(*[a_word(name, said) for name in names(starting)]))
    over = fresh(starting)
    assert (over.state, over.outcome, over.charged) == ("failed", "failed", Decimal(0))
    with as_system():
        assert not Occupancy.objects.filter(closed=None).exists()
        assert not GpuEvent.objects.filter(kind="conflict").exists()
        assert invariants_check() == []


@pytest.mark.parametrize("word", ["empty", "failed"])
def test_a_node_that_says_late_that_nothing_was_begun_is_counted(
    plant: Plant, starting: Booking, word: wire.AllocationState
) -> None:
    """Nothing but its word shows that nobody worked there meanwhile, and nothing is charged."""
    plant.now += timedelta(minutes=11)
    plant.receive(plant.report(*[a_word(name, word) for name in names(starting)]))
    assert fresh(starting).outcome == "failed"
    with as_system():
        noted = GpuEvent.objects.filter(kind="conflict")
        assert sorted(event.instance for event in noted) == sorted(names(starting))
        assert Node.objects.get(name=NAME).conflicts == 2
