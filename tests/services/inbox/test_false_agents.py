"""Agents that reading: what they say of others, of the past, of their hardware and of its use.

One row for each attack that design names (A66 to A74) and that words alone can try; the others
need a server or a file system, and docs/faults.md says where they are tried.
"""

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest

import wire
from allocation.models import Booking, GpuSample, Node
from allocation.rules.nodes.plausibility import is_implausible
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_release
from tests.builders_allocation import Lab, a_booking_request, a_lab
from tests.roles import as_system
from tests.services.inbox.test_protocol import signed
from tests.services.inbox.test_reports import world
from tests.services.plant import NAME, Plant, fresh, rows_of

pytestmark = pytest.mark.turn

HOSTILE = "<script>alert(1)</script>\r\n\x00; rm -rf /"


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


@pytest.fixture
def running(plant: Plant, lab: Lab) -> Booking:
    with as_system():
        booking = booking_request(actor=lab.actor, request=a_booking_request(lab.project), now=plant.now)
    plant.round()
    assert fresh(booking).state == "active"
    return booking


def node() -> Node:
    with as_system():
        return Node.objects.get(name=NAME)


def words(plant: Plant, **values: object) -> wire.Report:
    plain = wire.open_report(plant.report(), plant.identity.keys)
    assert isinstance(plain, wire.Report)
    return dataclasses.replace(plain, **values)  # type: ignore[arg-type]


def of_another_key(plant: Plant, _: Booking) -> wire.Envelope:
    return wire.seal(words(plant), key=b"k" * 32, key_version=1)


def of_the_future(plant: Plant, _: Booking) -> wire.Envelope:
    return signed(plant, words(plant, observed_generation=node().generation + 9))


def of_the_past(plant: Plant, _: Booking) -> wire.Envelope:
    return signed(plant, words(plant, seq=1))


def of_a_booking_that_nobody_knows(plant: Plant, _: Booking) -> wire.Envelope:
    said = wire.ReportedAllocation(id=uuid4().hex, state="ready", devices=("GPU-0",), error=None, since=1)
    return signed(plant, words(plant, allocations=(said,)))


def of_a_gpu_that_it_has_not(plant: Plant, _: Booking) -> wire.Envelope:
    strange = wire.ReportedGpu(uuid="GPU-of-another", mode="sliced")
    error = wire.HardwareError(gpu=strange.uuid, kind="xid", code=79, instance=None, at=1)
    return signed(plant, words(plant, gpus=(strange,), errors=(error,)))


def with_a_gap_of_numbers_and_a_hostile_text(plant: Plant, _: Booking) -> wire.Envelope:
    return signed(plant, words(plant, seq=node().report_seq + 10_000, error=HOSTILE))


@pytest.mark.parametrize(
    ("attack", "outcome"),
    [
        (of_another_key, "refused"),
        (of_the_future, "stale"),
        (of_the_past, "stale"),
        (of_a_booking_that_nobody_knows, "applied"),
        (of_a_gpu_that_it_has_not, "applied"),
        (with_a_gap_of_numbers_and_a_hostile_text, "applied"),
    ],
)
def test_a_false_word_changes_nothing_that_is_anybodys(
    plant: Plant,
    running: Booking,
    attack: Callable[[Plant, Booking], wire.Envelope],
    outcome: str,
) -> None:
    before, generation = world()[:-1], node().generation
    assert plant.receive(attack(plant, running)) == outcome
    assert (world()[:-1], node().generation, node().state) == (before, generation, "ready")
    assert fresh(running).state == "active"
    counted = {"refused": node().refused, "stale": node().stale_dropped, "applied": 1}
    assert counted[outcome] == 1


def use(plant: Plant, booking: Booking, **values: int | None) -> None:
    """What a false agent reports of the booking's GPU, every ten seconds for ten minutes."""
    (row,) = rows_of(booking)
    blank = dict.fromkeys(
        ("utilisation", "memory_used_mb", "memory_total_mb", "power_mw", "temperature_c", "processes")
    )
    with as_system():
        uuid = row.gpu.uuid
    sample = wire.Sample(gpu=uuid, slot=None, size=None, allocation=row.id.hex, **{**blank, **values})
    for _ in range(60):
        plant.now += timedelta(seconds=10)
        seq = node().telemetry_seq + 1
        said = wire.Telemetry(sent_at=int(plant.now.timestamp()), samples=(sample,), seq=seq)
        assert plant.receive(signed(plant, said)) == "applied"


FALSE_READINGS: dict[str, dict[str, int | None]] = {
    "never at work": {"utilisation": 0, "processes": 0, "power_mw": 70_000},
    "always at work": {"utilisation": 100, "processes": 0, "power_mw": 700_000},
    "at work without power": {"utilisation": 100, "processes": 3, "power_mw": 2_000},
    "power without work": {"utilisation": 0, "processes": 3, "power_mw": 690_000},
    "more memory than there is": {"memory_used_mb": 90_000, "memory_total_mb": 81_559},
    "what can't be": {"utilisation": 4_000, "power_mw": -5},
    "nothing": {},
}
# What contradicts itself; the others may be true.
ODD = {"always at work", "at work without power", "power without work", "more memory than there is"}


@pytest.mark.parametrize(
    "reading",
    [
        pytest.param(reading, marks=[] if number < 2 else pytest.mark.long)
        for number, reading in enumerate(FALSE_READINGS)
    ],
)
def test_a_charge_is_for_the_time_of_the_assignment_whatever_the_node_measures(
    plant: Plant, lab: Lab, running: Booking, reading: str
) -> None:
    ready = fresh(running).ready_at
    use(plant, running, **FALSE_READINGS[reading])
    with as_system():
        assert GpuSample.objects.count() >= 60
        booking_release(actor=lab.actor, booking=fresh(running), now=plant.now)
    released = plant.now
    plant.later(timedelta(seconds=20))
    over = fresh(running)
    assert over.state == "ended"
    assert ready is not None
    assert over.charged is not None
    seconds = int((released - ready).total_seconds())
    assert over.charged == (over.price_per_hour * seconds / 3600).quantize(over.charged)
    assert (node().implausible >= 60) == (reading in ODD)


def test_a_slices_power_is_nobodys_and_what_is_not_known_contradicts_nothing() -> None:
    blank: dict[str, int | None] = dict.fromkeys(
        ("utilisation", "memory_used_mb", "memory_total_mb", "power_mw", "processes")
    )
    assert not is_implausible(blank, whole=True)
    busy = {**blank, "utilisation": 100, "power_mw": 2_000}
    assert is_implausible(busy, whole=True)
    assert not is_implausible(busy, whole=False)
    assert not is_implausible({**blank, "utilisation": 100, "power_mw": 700_000}, whole=True)
