"""Modes that change by a reset, from the booking to the node and back."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import transaction

from agent.act.apply import STUCK_S
from allocation.models import Booking, Gpu, GpuEvent, GpuModel
from allocation.rules.states import State
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.nodes.gpu_modes import mode_pin, modes_request
from tenants.models import AuditEntry
from tenants.platform.errors import Refused
from tests.builders import a_gpu_class, an_operator
from tests.builders_allocation import Lab, a_booking_request, a_lab, a_policy, a_price_book, an_ask
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.plant import Plant, a_plant, fresh, rows_of

pytestmark = pytest.mark.turn

SWITCH = timedelta(seconds=30)


@pytest.fixture
def plant(real_db: Servers, tmp_path: Path) -> Iterator[Plant]:
    """A node of three A100s in the class `h100`, the last of them in slices."""
    gpu_class = a_gpu_class()
    with as_system():
        GpuModel.objects.create(
            slug="a100-80gb",
            product_name="NVIDIA A100-SXM4-80GB",
            gpu_class=gpu_class,
            memory_mb=81_920,
            mode_switch="reset",
            switch_seconds=30,
        )
    a_policy()
    a_price_book()
    with a_plant(tmp_path, simulate="a100:2,a100+mig:1") as found:
        yield found


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


def asked(plant: Plant, lab: Lab, count: int = 1, profile: str | None = None) -> Booking:
    """A booking that was asked for and decided."""
    with as_system():
        ask = an_ask(count, profile=profile)
        booking = booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=plant.now)
    plant.round()
    return fresh(booking)


def gpus() -> list[tuple[str, str, str]]:
    """Mode, requested mode, health."""
    with as_system():
        rows = Gpu.objects.order_by("index").values_list("mode", "mode_wanted", "health")
        return [*rows]


def gpu(index: int) -> Gpu:
    with as_system():
        return Gpu.objects.get(index=index)


def pin(plant: Plant, index: int, mode: str) -> None:
    with as_system(), transaction.atomic():
        mode_pin(operator=an_operator(), gpu=gpu(index), mode=mode, note="for the course", now=plant.now)


@pytest.mark.long
def test_all_gpus_of_a_node_are_had_once_the_slices_have_changed(plant: Plant, lab: Lab) -> None:
    booking = asked(plant, lab, 3)
    assert booking.state == State.SCHEDULED
    assert booking.planned_starts == plant.now + SWITCH
    assert [reason["rule"] for reason in booking.reasons] == ["R96"]
    # The change was requested at once, and has proven the mode before the booking starts.
    assert gpus() == [("whole", "", "ok")] * 3
    assert [gpu.mig for gpu in plant.hardware.gpus] == [False] * 3
    plant.later(SWITCH)
    assert fresh(booking).state == State.ACTIVE
    with as_system():
        (event,) = GpuEvent.objects.filter(kind="mode")
        assert (event.until is not None, event.gpu_id) == (True, gpu(2).id)


def test_nothing_is_told_while_a_slice_is_in_use(plant: Plant, lab: Lab) -> None:
    first = asked(plant, lab, profile="3g.40gb")
    assert fresh(first).state == State.ACTIVE
    booking = asked(plant, lab, 3)
    assert booking.state == State.QUEUED
    assert booking.planned_starts == fresh(first).planned_ends + SWITCH  # type: ignore[operator]
    with as_system():
        assert modes_request(plant.now + timedelta(hours=1)) == 0
    assert gpus()[2] == ("sliced", "", "ok")


@pytest.mark.long
def test_a_booking_that_is_given_up_leaves_the_gpu_as_it_became(plant: Plant, lab: Lab) -> None:
    booking = asked(plant, lab, 3)
    with as_system():
        booking_cancel(actor=lab.actor, booking=booking, now=plant.now)
    plant.round()
    resets = len(plant.hardware.resets)
    plant.later(SWITCH)
    assert gpus() == [("whole", "", "ok")] * 3
    assert len(plant.hardware.resets) == resets == 1


@pytest.mark.long
def test_a_change_that_fails_takes_the_gpu_out_and_its_booking_elsewhere(plant: Plant, lab: Lab) -> None:
    plant.hardware.reset_fails = "no such luck"
    booking = asked(plant, lab, profile="3g.40gb")
    one_more = asked(plant, lab, profile="3g.40gb")
    waits = asked(plant, lab, profile="3g.40gb")
    assert [fresh(each).state for each in (booking, one_more)] == [State.ACTIVE, State.ACTIVE]
    assert fresh(waits).state == State.SCHEDULED
    for _ in range(12):
        plant.later(timedelta(seconds=STUCK_S / 5))
    out = [row for row in gpus() if row[2] == "draining"]
    assert len(out) == 2, "the first, and the one that was tried instead"
    with as_system():
        reasons = set(Gpu.objects.filter(health="draining").values_list("health_reason", flat=True))
    assert all("no such luck" in reason for reason in reasons)
    assert fresh(waits).state == State.QUEUED
    assert len(plant.hardware.resets) < 30, "no livelock"
    plant.hardware.reset_fails = None
    for _ in range(12):
        plant.later(timedelta(seconds=10))
    assert {row[2] for row in gpus()} == {"ok"}
    assert fresh(waits).state == State.ACTIVE


class TestPins:
    def test_a_pinned_gpu_is_changed_when_it_is_empty_and_stays_so(self, plant: Plant, lab: Lab) -> None:
        pin(plant, 0, "sliced")
        plant.round()
        assert gpus()[0] == ("sliced", "", "ok")
        refused = asked(plant, lab, 3)
        assert refused.state == State.REFUSED
        assert [reason["rule"] for reason in refused.reasons] == ["R95"]
        with as_system():
            said = GpuEvent.objects.get(kind="operator").sentence
            (kept,) = AuditEntry.objects.filter(action="node.gpu_mode_pinned")
        assert "pinned it to slices: for the course." in said
        assert kept.detail == {
            "before": {"gpu": 0, "mode": ""},
            "after": {"gpu": 0, "mode": "sliced", "note": "for the course"},
        }

    def test_what_is_planned_in_the_other_mode_is_placed_elsewhere(self, plant: Plant, lab: Lab) -> None:
        with as_system():
            ask = an_ask(1, starts=plant.now + timedelta(hours=1))
            booking = booking_request(
                actor=lab.actor, request=a_booking_request(lab.project, ask), now=plant.now
            )
        plant.round()
        (row,) = rows_of(booking)
        pin(plant, row.gpu.index, "sliced")
        plant.round()
        live = [each.gpu.index for each in rows_of(booking) if each.state == "planned"]
        assert live not in ([], [row.gpu.index])
        assert gpu(row.gpu.index).mode == "sliced"

    def test_without_the_pin_it_changes_again(self, plant: Plant, lab: Lab) -> None:
        pin(plant, 2, "sliced")
        assert asked(plant, lab, 3).state == State.REFUSED
        pin(plant, 2, "")
        assert asked(plant, lab, 3).state == State.SCHEDULED

    def test_a_gpu_is_pinned_only_to_what_it_can_be(self, plant: Plant) -> None:
        with pytest.raises(Refused, match="whole or to sliced"):
            pin(plant, 0, "shared")


def test_slices_of_a_gpu_with_twelve_slots_are_booked_made_and_ended(
    real_db: Servers, tmp_path: Path
) -> None:
    gpu_class = a_gpu_class()
    with as_system():
        GpuModel.objects.create(
            slug="rtx",
            product_name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
            gpu_class=gpu_class,
            memory_mb=97_887,
        )
    a_policy()
    a_price_book()
    with a_plant(tmp_path, simulate="rtx-pro-6000:1") as plant:
        lab = a_lab("helix", gpus=0)
        half, small = asked(plant, lab, profile="2g.48gb"), asked(plant, lab, 2, "1g.24gb")
        assert {half.state, small.state} == {State.ACTIVE}
        (hardware,) = plant.hardware.gpus
        made = sorted((each.start, each.profile.size) for each in hardware.instances.values())
        assert [size for _, size in sorted(made, key=lambda each: each[1])] == [3, 3, 6]
        assert len({slot for start, size in made for slot in range(start, start + size)}) == 12
        rows = rows_of(half) + rows_of(small)
        assert sorted((row.start * 3, row.size * 3) for row in rows) == made
        # The full GPU has no place for a third.
        third = asked(plant, lab, profile="1g.24gb")
        assert third.state == State.QUEUED
        plant.later(timedelta(hours=3))
        assert [each.profile.size for each in hardware.instances.values()] == [3]
        assert fresh(third).state == State.ACTIVE
