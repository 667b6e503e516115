"""What nodes say besides their bookings: processes of nobody, slices made by hand, odd errors."""

import dataclasses
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

import wire
from allocation.models import Booking, Gpu, GpuEvent, Node
from allocation.rules.states import State
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.invariants import invariants_check
from allocation.words.fleet import fleet_sentence
from tests.builders_allocation import Lab, a_booking_request, a_lab, a_node, an_ask
from tests.roles import as_system
from tests.services.plant import NAME, Plant, fresh, rows_of

pytestmark = pytest.mark.turn


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


def asked(plant: Plant, lab: Lab, count: int = 1, **ask: object) -> Booking:
    with as_system():
        request = a_booking_request(lab.project, an_ask(count, **ask))  # type: ignore[arg-type]
        booking = booking_request(actor=lab.actor, request=request, now=plant.now)
    plant.round()
    return fresh(booking)


def events() -> list[tuple[str, int | None, bool]]:
    with as_system():
        return [(e.kind, e.slot, e.is_open) for e in GpuEvent.objects.order_by("id")]


def gpu(index: int) -> Gpu:
    with as_system():
        return Gpu.objects.get(node__name=NAME, index=index)


def sealed(plant: Plant, *errors: wire.HardwareError, foreign: int = 0) -> wire.Envelope:
    """A report of this node that says these errors, signed by it."""
    report = wire.open_report(plant.report(), plant.identity.keys)
    assert isinstance(report, wire.Report)
    spots = tuple(wire.UnbookedDevice(gpu=gpu(0).uuid, slot=slot, processes=1) for slot in range(foreign))
    there = (wire.ReportedGpu(uuid=gpu(0).uuid, mode="whole"),)
    report = dataclasses.replace(report, gpus=there, errors=errors, foreign=spots)
    version = plant.identity.signing_version
    return wire.seal(report, key=plant.identity.keys[version], key_version=version)


def an_error(plant: Plant, code: int = 48, *, at: int | None = None) -> wire.HardwareError:
    moment = int(plant.now.timestamp()) if at is None else at
    return wire.HardwareError(gpu=gpu(0).uuid, kind="xid", code=code, instance=None, at=moment)


def test_a_gpu_that_somebody_uses_unasked_takes_no_booking_until_they_are_gone(
    plant: Plant, lab: Lab
) -> None:
    pid = plant.hardware.process_start(plant.hardware.gpus[0].uuid, label="x", user="eve")
    plant.later(timedelta(seconds=5))
    assert events() == [("unbooked", None, True)]
    assert gpu(0).health == Gpu.Health.DRAINING
    with as_system():
        assert "eve" in GpuEvent.objects.get().sentence
        # Names of people are the operator's, what tenants read says none.
        assert "eve" not in Gpu.objects.get(id=gpu(0).id).health_reason
    first, second = asked(plant, lab), asked(plant, lab)
    assert [row.gpu.index for row in rows_of(first)] == [1]
    assert second.state == State.QUEUED
    plant.hardware.process_signal(pid, force=True)
    plant.later(timedelta(seconds=5))
    assert events() == [("unbooked", None, False)]
    assert fresh(second).state == State.ACTIVE
    assert rows_of(second)[0].gpu.index == 0
    with as_system():
        assert invariants_check() == []


def test_what_an_operator_took_out_is_not_put_back_because_nobody_uses_it(plant: Plant, lab: Lab) -> None:
    # Negative control of the way back.
    with as_system():
        Gpu.objects.filter(id=gpu(0).id).update(
            health="draining", health_reason="Xid 63", needs_operator=True
        )
    plant.later(timedelta(minutes=2))
    assert gpu(0).health == Gpu.Health.DRAINING


def test_a_slice_made_by_hand_is_in_the_history_while_it_is_there(plant: Plant, lab: Lab) -> None:
    hardware = plant.hardware.gpus[0]
    booking = asked(plant, lab, 1, profile="1g.10gb")
    (place,) = rows_of(booking)
    hardware = plant.hardware.gpus[place.gpu.index]
    free = next(start for start in (0, 4) if not start <= place.start < start + 4)
    made = plant.hardware.instance_create(hardware, 9, free, 4)
    plant.later(timedelta(seconds=5))
    assert events() == [("drift", free, True)]
    # Nobody is on it: it is in nobody's way, and goes when its place is booked.
    assert gpu(place.gpu.index).health == Gpu.Health.OK
    plant.hardware.instance_destroy(hardware, made)
    plant.later(timedelta(seconds=5))
    assert events() == [("drift", free, False)]


def test_an_error_of_a_gpu_that_is_not_on_the_node_is_not_believed(plant: Plant, lab: Lab) -> None:
    far = a_node("gpu-b1-01")
    error = dataclasses.replace(an_error(plant, 79), gpu=far.gpus.get().uuid)
    assert plant.receive(sealed(plant, error)) == "applied"
    assert events() == []
    assert far.gpus.get().health == Gpu.Health.OK


@pytest.mark.parametrize("at", [-1, 0, 1 << 62])
def test_an_error_with_an_absurd_time_is_still_an_error(plant: Plant, lab: Lab, at: int) -> None:
    assert plant.receive(sealed(plant, an_error(plant, at=at))) == "applied"
    assert gpu(0).health == Gpu.Health.DRAINING
    with as_system():
        assert GpuEvent.objects.get().at <= plant.now + timedelta(minutes=5)


def test_an_error_that_no_row_can_hold_stops_nobody(plant: Plant, lab: Lab) -> None:
    huge = an_error(plant, code=1 << 40)
    assert plant.receive(sealed(plant, huge)) == "refused"
    assert plant.receive(sealed(plant, an_error(plant))) == "applied"


def test_one_report_opens_only_so_many_troubles(plant: Plant, lab: Lab) -> None:
    assert plant.receive(sealed(plant, foreign=500)) == "applied"
    assert len(events()) == 64


def test_the_worst_error_decides_and_a_lesser_one_does_not_soften_it(plant: Plant, lab: Lab) -> None:
    plant.receive(sealed(plant, an_error(plant, 79)))
    plant.receive(sealed(plant, an_error(plant, 79), an_error(plant, 63)))
    assert gpu(0).health == Gpu.Health.LOST
    assert gpu(0).health_words == "Xid 79: the GPU has fallen off the bus."
    assert fleet_sentence(gpu(0).health_text or "") == gpu(0).health_reason
    with as_system():
        # A code never outlives its sentence.
        with pytest.raises(IntegrityError, match="gpu_health_text_is_reason"), transaction.atomic():
            Gpu.objects.filter(id=gpu(0).id).update(health_reason="")
        assert Node.objects.get(name=NAME).state == Node.State.READY
