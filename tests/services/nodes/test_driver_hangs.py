"""What the portal makes of a GPU about which its node's driver hangs."""

import dataclasses

import pytest

import wire
from allocation.models import Gpu, GpuEvent
from allocation.services.bookings.creation import booking_request
from tests.builders_allocation import Lab, a_booking_request, a_lab
from tests.roles import as_system
from tests.services.plant import Plant, fresh, rows_of


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


def hangs_reported(plant: Plant, *hanging: int) -> None:
    """The agent's report, in which these GPUs do not answer and the others do."""
    version = plant.identity.signing_version
    plain = wire.open_report(plant.report(), plant.identity.keys)
    assert isinstance(plain, wire.Report)
    uuids = [gpu.uuid for gpu in plant.hardware.gpus]
    report = dataclasses.replace(
        plain,
        gpus=tuple(
            wire.ReportedGpu(uuid=uuid, mode="whole") for at, uuid in enumerate(uuids) if at not in hanging
        ),
        hanging=tuple(uuids[at] for at in hanging),
    )
    sealed = wire.seal(report, key=plant.identity.keys[version], key_version=version)
    assert plant.receive(sealed) == "applied"


def health() -> list[tuple[str, str]]:
    with as_system():
        return list(Gpu.objects.order_by("index").values_list("health", "health_reason"))


def events() -> list[bool]:
    with as_system():
        return [event.is_open for event in GpuEvent.objects.filter(kind="hang")]


def test_it_takes_no_new_work_until_it_answers_and_what_runs_goes_on(plant: Plant, lab: Lab) -> None:
    with as_system():
        first = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
    plant.round()
    (row,) = rows_of(first)
    hangs_reported(plant, row.gpu.index)
    hangs_reported(plant, row.gpu.index)
    assert health()[row.gpu.index] == ("draining", "Its driver does not answer.")
    assert (events(), fresh(first).state) == ([True], "active")
    hangs_reported(plant, 0, 1)
    with as_system():
        second = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
    plant.cycle()
    assert rows_of(second) == []

    hangs_reported(plant)
    assert health() == [("ok", ""), ("ok", "")]
    assert events() == [False, False]


def test_what_an_operator_took_out_stays_out_when_the_driver_answers(plant: Plant) -> None:
    with as_system():
        Gpu.objects.filter(index=0).update(health="draining", health_reason="Fan", needs_operator=1)
    hangs_reported(plant, 0)
    hangs_reported(plant)
    assert health() == [("draining", "Fan"), ("ok", "")]
