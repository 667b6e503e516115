"""Readings of nodes become five-minute rows: once, bounded, and never with a zero for unknown."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, transaction

import wire
from allocation.models import Allocation, EventCounter, Gpu, GpuSample, GpuUse
from allocation.queries.fleet.telemetry import (
    UseCurve,
    rollup_bucket_of,
    use_of_allocations,
    use_of_gpu,
)
from allocation.services.nodes import telemetry
from allocation.services.nodes.telemetry import samples_store, telemetry_sweep, usage_roll_up, usage_sum_up
from tenants.platform.wall import operator_tx, tenant_tx
from tests.builders_allocation import NOW, a_booking, a_lab, an_allocation
from tests.roles import as_system

pytestmark = pytest.mark.django_db
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def place() -> Allocation:
    """A whole GPU that works for somebody."""
    lab = a_lab("helix", gpus=1)
    with as_system():
        gpu = Gpu.objects.get()
    booking = a_booking(lab.project, lab.actor.user_id, state="active")
    return an_allocation(booking, gpu, state="active")


def a_sample(place: Allocation, **values: int) -> wire.Sample:
    blank: dict[str, Any] = dict.fromkeys(
        (
            "slot",
            "size",
            "utilisation",
            "memory_used_mb",
            "memory_total_mb",
            "power_mw",
            "temperature_c",
            "processes",
        )
    )
    with as_system():
        gpu = Gpu.objects.get(id=place.gpu_id)
    return wire.Sample(**{**blank, "gpu": gpu.uuid, "allocation": place.id.hex, **values})


def telemetry_sent(place: Allocation, at: datetime, *samples: wire.Sample, late: int = 0) -> None:
    """The portal receives at `at` what the node measured `late` seconds before."""
    with as_system():
        node = Gpu.objects.select_related("node").get(id=place.gpu_id).node
        message = wire.Telemetry(sent_at=int(at.timestamp()) - late, samples=samples)
        samples_store([(node.id, message)], at)


def read(
    place: Allocation,
    values: Sequence[int | None],
    *,
    first: datetime = NOW,
    step: timedelta = 10 * SECOND,
    **more: int | Callable[[int], int],
) -> datetime:
    """Readings of the use, one a step; returns when the next would be."""
    with as_system():
        GpuSample.objects.bulk_create(
            GpuSample(
                gpu_id=place.gpu_id,
                tenant_id=place.tenant_id,
                allocation_id=place.id,
                at=first + step * number,
                utilisation=value,
                **{name: each(number) if callable(each) else each for name, each in more.items()},
            )
            for number, value in enumerate(values)
        )
    return first + step * len(values)


def rolled(now: datetime) -> list[dict[str, Any]]:
    with as_system():
        usage_roll_up(now)
        return [dict(row) for row in GpuUse.objects.order_by("at", "id").values()]


def curve(place: Allocation, now: datetime, hours: float = 1, since: datetime = NOW) -> UseCurve:
    with tenant_tx(place.tenant_id):
        return use_of_allocations(
            allocations=[place.id], since=since, until=since + timedelta(hours=hours), now=now
        )


def test_five_minutes_become_one_row_with_least_mean_and_most(place: Allocation) -> None:
    end = read(place, [10, 20, 90] * 10, power_mw=200_000, memory_used_mb=lambda n: 100 + n, sm=30)
    (row,) = rolled(end)
    assert row["sm_avg"] == 30
    assert (row["busy_min"], row["busy_max"], row["at"]) == (10, 90, NOW)
    assert row["busy_avg"] == pytest.approx(40)
    assert (row["seconds"], row["measured"]) == (300, 300)
    assert (row["power_avg_mw"], row["memory_max_mb"]) == (200_000, 129)
    assert (row["tenant_id"], row["allocation_id"]) == (place.tenant_id, place.id)


def test_a_mean_is_weighted_by_time_and_a_gap_has_no_weight(place: Allocation) -> None:
    # Ten seconds of 90, then nothing for two minutes, then every five seconds idle.
    read(place, [90])
    read(place, [0] * 6, first=NOW + 2 * MINUTE, step=5 * SECOND)
    (row,) = rolled(NOW + 5 * MINUTE)
    assert row["seconds"] == 10 + 30 + 5 * 5
    assert row["busy_avg"] == pytest.approx(90 * 10 / 65)


def test_what_was_not_measured_stays_null_and_lowers_no_mean(place: Allocation) -> None:
    end = read(place, [None] * 30)
    end = read(place, [None, 80] * 15, first=end)
    blank, half = rolled(end)
    assert (blank["busy_avg"], blank["busy_min"], blank["measured"]) == (None, None, 0)
    assert blank["seconds"] == 300
    assert (half["busy_avg"], half["busy_min"], half["measured"]) == (80, 80, 150)
    blanks = ("power_avg_mw", "energy_mj", "throttled", "bandwidth_avg", "pcie_kb", "memory_max_mb", "sm_avg")
    assert [row[name] for row in (blank, half) for name in blanks] == [None] * 14


def test_seconds_with_a_clock_held_down_are_counted_and_idle_is_no_such_reason(
    place: Allocation,
) -> None:
    reasons = [0, 0x1, 0x2, 0x4, 0x40, 0x21]
    end = read(place, [50] * 30, throttle=lambda n: reasons[n % 6])
    (row,) = rolled(end)
    assert row["throttled"] == 150


def test_rolling_up_again_and_again_changes_nothing(place: Allocation) -> None:
    end = read(place, [50] * 90)
    first = rolled(end)
    assert len(first) == 3
    assert rolled(end) == first
    assert rolled(end + MINUTE) == first


def test_a_roll_up_that_dies_in_the_middle_is_done_again_as_if_it_never_began(
    place: Allocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = read(place, [50] * 5, step=4 * timedelta(hours=1))
    monkeypatch.setattr(telemetry, "_ROLL", telemetry._ROLL + " RETURNING 1 / (seconds - seconds)")
    with as_system(), pytest.raises(DatabaseError), transaction.atomic():
        usage_roll_up(end)
    monkeypatch.undo()
    assert len(rolled(end)) == 5


def test_without_its_key_a_row_would_be_counted_twice(place: Allocation) -> None:
    """The negative control: the constraint is what keeps it exact."""
    rolled(read(place, [50] * 30))
    with as_system():
        row = GpuUse.objects.get()
        row.id = None
        with pytest.raises(IntegrityError), transaction.atomic():
            row.save(force_insert=True)


def test_a_reading_that_comes_late_is_still_counted_in_its_row(place: Allocation) -> None:
    end = read(place, [50] * 60)
    before = rolled(end)
    telemetry_sent(place, end + MINUTE, a_sample(place, utilisation=100), late=63)
    after = rolled(end + MINUTE)
    assert [row["busy_max"] for row in before] == [50, 50]
    assert [row["busy_max"] for row in after] == [50, 100]


def test_the_same_message_twice_or_a_flood_of_them_is_one_reading(place: Allocation) -> None:
    for _ in range(3):
        telemetry_sent(place, NOW, a_sample(place, utilisation=40))
    for second in range(5):
        telemetry_sent(place, NOW + second * SECOND, a_sample(place, utilisation=90))
    with as_system():
        assert [row.utilisation for row in GpuSample.objects.all()] == [40]


@pytest.mark.parametrize("wrong", [-3600, 3600, 10**12])
def test_a_clock_that_is_wrong_is_not_believed(place: Allocation, wrong: int) -> None:
    telemetry_sent(place, NOW, a_sample(place, utilisation=40), late=wrong)
    with as_system():
        assert GpuSample.objects.get().at == NOW


def test_absurd_values_are_dropped_and_counted(place: Allocation) -> None:
    telemetry_sent(
        place,
        NOW,
        a_sample(
            place,
            utilisation=400,
            power_mw=-1,
            memory_used_mb=1 << 60,
            temperature_c=61,
            sm=101,
        ),
    )
    with as_system():
        row = GpuSample.objects.get()
        assert (row.utilisation, row.power_mw, row.memory_used_mb, row.sm) == (None, None, None, None)
        assert row.temperature_c == 61
        assert EventCounter.objects.get(name="telemetry_absurd").count == 4


def test_a_message_with_too_many_readings_is_cut_and_the_rest_counted(place: Allocation) -> None:
    telemetry_sent(place, NOW, *[a_sample(place, utilisation=1, slot=n % 8) for n in range(1000)])
    with as_system():
        assert GpuSample.objects.count() == 8
        assert EventCounter.objects.get(name="telemetry_too_many").count == 1000 - wire.SAMPLES_MAX


def test_energy_is_what_the_counter_rose_by_and_a_counter_that_fell_says_nothing(
    place: Allocation,
) -> None:
    counter = [0, 3000, 6000, 100, 3100]
    end = read(place, [50] * 5, energy_mj=lambda n: counter[n])
    (row,) = rolled(end + 5 * MINUTE)
    assert row["energy_mj"] == 9000


def test_readings_go_after_two_days_and_rows_after_ninety(place: Allocation) -> None:
    old = NOW - timedelta(days=91)
    for first in (old, NOW - timedelta(days=3), NOW - timedelta(hours=1)):
        read(place, [50] * 30, first=first)
        rolled(first + 10 * MINUTE)
    with as_system():
        while usage_sum_up(NOW):
            pass
        while telemetry_sweep(NOW):
            pass
        assert {rollup_bucket_of(row.at) for row in GpuSample.objects.all()} == {NOW - timedelta(hours=1)}
        kept = [row.at for row in GpuUse.objects.order_by("at")]
        assert kept == [NOW - timedelta(days=3), NOW - timedelta(hours=1)]


def test_what_was_never_rolled_up_is_not_thrown_away(place: Allocation) -> None:
    read(place, [50] * 30, first=NOW - timedelta(days=5))
    with as_system():
        assert telemetry_sweep(NOW) == 0
        assert usage_roll_up(NOW) == 1


def test_a_row_that_is_the_same_is_not_written_again(place: Allocation) -> None:
    """The young ones are made anew every two minutes: each would leave ten dead ones behind."""
    read(place, [50] * 30, first=NOW - timedelta(hours=1))
    with as_system():
        assert usage_roll_up(NOW) == 1
        assert usage_roll_up(NOW) == 0
    read(place, [90] * 30, first=NOW - timedelta(hours=1) + timedelta(seconds=5))
    with as_system():
        assert usage_roll_up(NOW) >= 1
        assert GpuUse.objects.order_by("at")[0].busy_max == 90


def test_a_short_curve_goes_by_the_minute_up_to_this_moment(place: Allocation) -> None:
    now = read(place, [50] * 30, sm=35, tensor=20)
    found = curve(place, now)
    assert {(point.sm, point.tensor) for point in found.points} == {(35, 20)}
    assert (found.step, len(found.points), found.devices) == (MINUTE, 5, 1)
    assert [point.busy for point in found.points] == [pytest.approx(50)] * 5


def test_a_long_curve_joins_old_rows_and_young_readings_without_a_seam(place: Allocation) -> None:
    since = NOW - timedelta(hours=5)
    end = read(place, [30] * 6 * 60 * 3, first=since)
    rolled(end)
    now = read(place, [90] * 6 * 60, first=end)
    found = curve(place, now, hours=9, since=since)
    busy = [point.busy for point in found.points]
    assert len(busy) == 48
    assert busy == [pytest.approx(30)] * 36 + [pytest.approx(90)] * 12
    assert sum(point.measured for point in found.points) == 4 * 3600
    rolled(now)
    again = curve(place, now, hours=9, since=since)
    assert [point.busy for point in again.points] == busy


def test_a_gap_in_a_curve_is_unknown_and_not_idle(place: Allocation) -> None:
    read(place, [50] * 6)
    read(place, [50] * 6, first=NOW + 3 * MINUTE)
    found = curve(place, NOW + 4 * MINUTE)
    assert [point.busy for point in found.points] == [50, None, None, 50]


def test_a_tenant_does_not_see_how_hard_another_works(place: Allocation) -> None:
    now = read(place, [50] * 60)
    rolled(now)
    other = a_lab("other", gpus=0)
    with tenant_tx(other.actor.tenant_id):
        found = use_of_allocations(allocations=[place.id], since=NOW, until=now, now=now + MINUTE)
        assert not GpuUse.objects.exists()
    assert found.devices == 0
    assert all(point.busy is None for point in found.points)


def test_an_operator_sees_a_device_over_weeks(place: Allocation) -> None:
    rolled(read(place, [50] * 60, power_mw=300_000))
    now = NOW + timedelta(days=20)
    with operator_tx():
        found = use_of_gpu(gpu=place.gpu_id, since=NOW, until=now, now=now)
    assert found.points[0].busy == pytest.approx(50)
    assert found.points[0].power_mw == 300_000
    assert len(found.points) <= 180


def test_a_row_is_whose_the_allocation_was(place: Allocation) -> None:
    """The negative control: use of nobody's allocation can't be written under a tenant."""
    with as_system(), pytest.raises(IntegrityError), transaction.atomic():
        GpuUse.objects.create(
            gpu_id=place.gpu_id,
            tenant_id=place.tenant_id,
            allocation_id=None,
            at=NOW,
            seconds=1,
            measured=0,
        )
