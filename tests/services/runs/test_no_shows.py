"""Check-in and no-shows: presence, the time that counts, warnings, and costs."""

from datetime import datetime, timedelta
from decimal import Decimal

import pytest

import wire
from allocation.models import Booking, Node
from allocation.rules.charging import no_show_after
from allocation.rules.nodes.no_shows import PresencePolicy, presence_policy_of, warnings_expected
from allocation.services.policy.policies import policy_read
from allocation.services.runs.no_shows import booking_check_in, presence_watch
from billing.models import Transfer
from tenants.models import Tier
from tests.builders import a_tier
from tests.builders_allocation import Lab, a_lab, a_policy, an_ask
from tests.roles import as_system
from tests.services.inbox.test_protocol import signed
from tests.services.paused import all_is_well, noticed, running, saved, story
from tests.services.plant import NAME, Plant, fresh, rows_of

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)


@pytest.fixture
def lab(plant: Plant) -> Lab:
    lab = a_lab("helix", gpus=0)
    a_tier("standard", pausable=True)
    return lab


def minutes(
    plant: Plant,
    booking: Booking,
    count: int,
    *,
    processes: tuple[int | None, ...] = (0, 0),
    reports: bool = True,
) -> int:
    """So many minutes pass, measured on each of its GPUs; how many bookings ended as no-shows."""
    ended = 0
    for _ in range(count):
        plant.now += MINUTE
        if reports:
            _measured(plant, booking, processes)
        with as_system():
            ended += presence_watch(plant.now)
    return ended


def absent(booking: Booking, minutes: int, at: datetime) -> None:
    """Nobody was seen in it for so long until then."""
    with as_system():
        Booking.objects.filter(id=booking.id).update(
            absent_seconds=minutes * 60, absent_until=at, absence_warnings=2
        )


def _measured(plant: Plant, booking: Booking, processes: tuple[int | None, ...]) -> None:
    with as_system():
        rows = [(row.gpu.uuid, row.id.hex) for row in rows_of(booking) if row.state == "active"]
        seq = Node.objects.get(name=NAME).telemetry_seq + 1
    blank = dict.fromkeys(("utilisation", "memory_used_mb", "memory_total_mb", "power_mw", "temperature_c"))
    samples = tuple(
        wire.Sample(gpu=uuid, slot=None, size=None, allocation=name, processes=here, **blank)
        for (uuid, name), here in zip(rows, processes, strict=True)
    )
    said = wire.Telemetry(sent_at=int(plant.now.timestamp()), samples=samples, seq=seq)
    assert plant.receive(signed(plant, said)) == "applied"


def cleared(plant: Plant) -> None:
    plant.later(timedelta(seconds=20))


def test_who_never_comes_is_warned_twice_and_pays_a_quarter_of_what_is_left(plant: Plant, lab: Lab) -> None:
    booking = running(plant, lab, an_ask(2, hours=4))
    assert minutes(plant, booking, 14) == 0
    assert "no_show_warned" not in story(booking)
    minutes(plant, booking, 1)
    assert story(booking).count("no_show_warned") == 1
    minutes(plant, booking, 10)
    assert story(booking).count("no_show_warned") == 2
    assert minutes(plant, booking, 4) == 0
    assert fresh(booking).state == "active"
    assert minutes(plant, booking, 1) == 1
    assert (fresh(booking).state, fresh(booking).outcome) == ("ending", "no_show")
    cleared(plant)
    # Half an hour of two GPUs at 4.80, and a quarter of the other three and a half hours.
    assert fresh(booking).charged == Decimal("4.80") + Decimal("8.40")
    assert story(booking)[-3:] == ["no_show_warned", "no_show", "ended"]
    assert all_is_well()


def test_a_tier_has_a_time_and_a_share_of_its_own(plant: Plant, lab: Lab) -> None:
    booking = running(plant, lab, an_ask(2, hours=4))
    with as_system():
        Tier.objects.filter(slug="standard").update(no_show_after_seconds=1_200, no_show_share=50)
    assert minutes(plant, booking, 19) == 0
    assert minutes(plant, booking, 1) == 1
    cleared(plant)
    # Twenty minutes of two GPUs at 4.80, and half of the other three hours and forty minutes.
    with as_system():
        rows = Transfer.objects.filter(reference=booking.id, kind="settle").order_by("fee")
        assert [(r.fee, r.amount) for r in rows] == [
            ("", Decimal("3.20")),
            ("no_show", Decimal("17.60")),
        ]
    assert fresh(booking).charged == Decimal("20.80")
    assert all_is_well()


def test_one_process_on_one_gpu_is_the_presence_of_a_gang(plant: Plant, lab: Lab) -> None:
    booking = running(plant, lab, an_ask(2, hours=4))
    minutes(plant, booking, 1, processes=(0, 1))
    assert fresh(booking).checked_in_at is not None
    absent(booking, 30, plant.now)
    assert minutes(plant, booking, 2) == 0
    assert fresh(booking).state == "active"


def test_the_button_and_a_save_are_presence(plant: Plant, lab: Lab) -> None:
    booking = running(plant, lab, an_ask(2, hours=4))
    with as_system():
        booking_check_in(actor=lab.actor, booking=booking, now=plant.now)
    absent(booking, 30, plant.now)
    assert minutes(plant, booking, 1) == 0
    with as_system():
        Booking.objects.update(checked_in_at=None)
    saved(plant, booking)
    assert minutes(plant, booking, 1) == 0
    assert fresh(booking).checked_in_at is not None


@pytest.mark.parametrize("processes", [(0, None), (None, None)])
def test_a_node_that_can_not_tell_makes_nobody_a_no_show(
    plant: Plant, lab: Lab, processes: tuple[int | None, ...]
) -> None:
    booking = running(plant, lab, an_ask(2, hours=4))
    assert minutes(plant, booking, 3, processes=processes) == 0
    assert fresh(booking).absent_seconds == 0


def test_only_time_in_which_the_node_reported_counts(plant: Plant, lab: Lab) -> None:
    booking = running(plant, lab, an_ask(2, hours=4))
    minutes(plant, booking, 2)
    minutes(plant, booking, 10, reports=False)
    assert fresh(booking).absent_seconds == 120
    minutes(plant, booking, 2)
    assert fresh(booking).absent_seconds == 240


def test_a_look_that_comes_late_or_after_a_jump_counts_for_a_minute(plant: Plant, lab: Lab) -> None:
    booking = running(plant, lab, an_ask(2, hours=4))
    minutes(plant, booking, 1)
    plant.now += 60 * MINUTE
    minutes(plant, booking, 1)
    assert fresh(booking).absent_seconds == 120
    with as_system():
        presence_watch(plant.now - 30 * MINUTE)
    assert fresh(booking).absent_seconds == 120


def test_after_a_resume_there_is_no_fee_and_the_time_begins_anew(plant: Plant, lab: Lab) -> None:
    rival = a_lab("rivals", gpus=0)
    booking = running(plant, lab, an_ask(2, hours=4))
    absent(booking, 20, plant.now)
    noticed(plant, booking, rival, ask=an_ask(2, hours=1))
    plant.later(10 * MINUTE)
    assert fresh(booking).state == "paused"
    plant.later(60 * MINUTE)
    plant.later(timedelta(seconds=5))
    again = fresh(booking)
    assert (again.state, again.absent_seconds) == ("active", 0)
    minutes(plant, booking, 1)
    absent(booking, 29, plant.now)
    assert minutes(plant, booking, 1) == 1
    assert fresh(booking).fee_seconds == 0


def test_the_operator_can_switch_it_off_and_set_the_share(plant: Plant, lab: Lab) -> None:
    booking = running(plant, lab, an_ask(2, hours=4))
    a_policy(no_show_after=0)
    absent(booking, 30, plant.now)
    assert minutes(plant, booking, 2) == 0
    a_policy(no_show_share=0)
    assert minutes(plant, booking, 1) == 1
    assert fresh(booking).fee_seconds == 0


@pytest.mark.parametrize(("length", "limit"), [(240, 30), (120, 30), (80, 20), (20, 10), (5, 10)])
def test_the_limit_is_a_quarter_of_the_length_and_ten_minutes_at_least(length: int, limit: int) -> None:
    assert no_show_after(length * 60, 1800) == limit * 60


def test_warnings_come_at_half_and_five_minutes_before() -> None:
    due = [warnings_expected(minute * 60, 1800) for minute in (14, 15, 24, 25, 29)]
    assert due == [0, 1, 1, 2, 2]


def test_the_policy_names_both_entries_and_zero_is_never() -> None:
    assert presence_policy_of({"no_show_share": 101}) == PresencePolicy()
    assert presence_policy_of({"no_show_after": 0}).no_show_after == 0
    policy_read({"no_show_after": 0, "no_show_share": 100}, 1)
    with pytest.raises(ValueError, match="from 0 to 100"):
        policy_read({"no_show_share": 101}, 1)
