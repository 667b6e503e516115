"""Idle GPUs: what counts, the warning, *still needed*, and the end or pause for others."""

from datetime import timedelta
from decimal import Decimal

import pytest

import wire
from allocation.models import Booking, Node, Pause
from allocation.services.record.open_pauses import pauses_withdrawable
from allocation.services.runs.idle_use import VETO_TIME, booking_still_needed, idle_watch
from allocation.services.runs.no_shows import booking_check_in
from allocation.services.snapshot.running import idle_read
from allocation.services.snapshot.snapshot import notices_read
from billing.models import Transfer
from tenants.models import Tier
from tenants.platform.errors import Refused
from tests.builders import a_tier
from tests.builders_allocation import Lab, a_lab, an_ask
from tests.roles import as_system
from tests.services.inbox.test_protocol import signed
from tests.services.paused import all_is_well, requested, running, story
from tests.services.plant import NAME, Plant, fresh, rows_of

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)


@pytest.fixture
def lab(plant: Plant) -> Lab:
    lab = a_lab("helix", gpus=0)
    a_tier("standard", pausable=True, grace_seconds=60)
    return lab


def a_user(plant: Plant, lab: Lab, action: str) -> Booking:
    """A booking of both GPUs for four hours, in use, of a tier with this action."""
    booking = running(plant, lab, an_ask(2, hours=4))
    with as_system():
        Tier.objects.filter(slug="standard").update(idle_action=action)
        booking_check_in(actor=lab.actor, booking=booking, now=plant.now)
    return booking


def minutes(
    plant: Plant,
    booking: Booking,
    count: int = 1,
    *,
    use: tuple[int | None, ...] = (0, 4),
    silent: bool = False,
) -> int:
    """So many minutes pass with this use of each GPU; how often the owner was warned."""
    warned = 0
    for _ in range(count):
        plant.now += MINUTE
        if not silent:
            _measured(plant, booking, use)
        with as_system():
            warned += idle_watch(plant.now)
    return warned


def _measured(plant: Plant, booking: Booking, use: tuple[int | None, ...]) -> None:
    with as_system():
        rows = [(row.gpu.uuid, row.id.hex) for row in rows_of(booking) if row.state == "active"]
        seq = Node.objects.get(name=NAME).telemetry_seq + 1
    blank = dict.fromkeys(("memory_used_mb", "memory_total_mb", "power_mw", "temperature_c"))
    samples = tuple(
        wire.Sample(gpu=uuid, slot=None, size=None, allocation=name, processes=1, utilisation=used, **blank)
        for (uuid, name), used in zip(rows, use, strict=True)
    )
    said = wire.Telemetry(sent_at=int(plant.now.timestamp()), samples=samples, seq=seq)
    assert plant.receive(signed(plant, said)) == "applied"


def idled(booking: Booking, minutes: int, plant: Plant) -> None:
    """It was idle for so long until now."""
    with as_system():
        Booking.objects.filter(id=booking.id).update(idle_seconds=minutes * 60, idle_counted_at=plant.now)


def needed(plant: Plant, lab: Lab, booking: Booking) -> None:
    with as_system():
        booking_still_needed(actor=lab.actor, booking=booking, now=plant.now)


def test_the_owner_is_warned_and_it_ends_only_when_somebody_waits(plant: Plant, lab: Lab) -> None:
    booking = a_user(plant, lab, "end")
    idled(booking, 28, plant)
    assert minutes(plant, booking) == 0
    assert minutes(plant, booking) == 1
    warned = fresh(booking)
    assert warned.idle_veto_until == plant.now + VETO_TIME
    # The time to answer passes; nobody waits, so it keeps running.
    minutes(plant, booking, 11)
    plant.cycle()
    assert fresh(booking).state == "active"
    waiting = requested(plant, lab, an_ask(2, hours=1))
    plant.cycle()
    assert (fresh(booking).state, fresh(booking).outcome) == ("ending", "idle")
    released = plant.now
    for _ in range(2):
        plant.later(timedelta(seconds=20))
        plant.round()
    assert fresh(waiting).state == "active"
    # It is charged until then, at 4.80 an hour, and nothing else.
    over = fresh(booking)
    assert over.ready_at is not None
    assert over.charged is not None
    ran = (released - over.ready_at).total_seconds()
    cost = Decimal("4.80") * 2 * int(ran) / 3_600
    assert abs(over.charged - cost) < Decimal("0.01")
    with as_system():
        assert not Transfer.objects.filter(reference=booking.id, fee="no_show").exists()
    assert story(booking)[-3:] == ["idle_warned", "idle_ended", "ended"]
    assert all_is_well()


def test_18_paused_for_idleness_it_comes_back_only_after_a_check_in(plant: Plant, lab: Lab) -> None:
    booking = a_user(plant, lab, "pause")
    idled(booking, 29, plant)
    minutes(plant, booking, 12)
    waiting = requested(plant, lab, an_ask(2, hours=1))
    plant.cycle()
    assert fresh(booking).state == "pausing"
    with as_system():
        # It leaves because it is idle, whatever becomes of the booking that waits.
        assert pauses_withdrawable(plant.now).get().booking_id == booking.id
        assert notices_read(plant.now) == ()
    for _ in range(4):
        plant.later(timedelta(seconds=45))
        plant.round()
    assert (fresh(booking).state, fresh(waiting).state) == ("paused", "active")
    with as_system():
        pause = Pause.objects.get(booking=booking)
    # Charged to the release, without a credit.
    assert (pause.relation, pause.credit) == ("idle", Decimal(0))
    plant.later(timedelta(hours=1, minutes=2))
    plant.round()
    assert (fresh(booking).state, fresh(waiting).state) == ("paused", "ended")
    with as_system():
        booking_check_in(actor=lab.actor, booking=booking, now=plant.now)
    for _ in range(3):
        plant.later(timedelta(seconds=30))
        plant.round()
    assert fresh(booking).state == "active"
    assert (fresh(booking).awaits_check_in, fresh(booking).idle_seconds) == (False, 0)
    assert all_is_well()


def test_still_needed_at_most_twice_in_a_row_and_anew_after_use(plant: Plant, lab: Lab) -> None:
    booking = a_user(plant, lab, "end")
    with pytest.raises(Refused, match="not about to be taken"):
        needed(plant, lab, booking)
    for _ in range(2):
        idled(booking, 29, plant)
        assert minutes(plant, booking) == 1
        needed(plant, lab, booking)
        assert fresh(booking).idle_veto_until is None
        with as_system():
            assert idle_read(plant.now) == ()
    idled(booking, 29, plant)
    minutes(plant, booking)
    with pytest.raises(Refused, match="2 times"):
        needed(plant, lab, booking)
    minutes(plant, booking, use=(0, 40))
    assert (fresh(booking).idle_vetoes, fresh(booking).idle_veto_until) == (0, None)
    assert story(booking)[-1] == "idle_over"
    idled(booking, 29, plant)
    minutes(plant, booking)
    needed(plant, lab, booking)


def test_16_a_check_in_by_cron_is_no_use(plant: Plant, lab: Lab) -> None:
    booking = a_user(plant, lab, "end")
    idled(booking, 28, plant)
    for _ in range(2):
        with as_system():
            booking_check_in(actor=lab.actor, booking=booking, now=plant.now)
        minutes(plant, booking)
    assert fresh(booking).idle_veto_until is not None


def test_17_silence_and_unknown_use_are_no_idleness(plant: Plant, lab: Lab) -> None:
    booking = a_user(plant, lab, "end")
    idled(booking, 20, plant)
    minutes(plant, booking, 3, silent=True)
    minutes(plant, booking, 2, use=(0, None))
    assert fresh(booking).idle_seconds == 20 * 60
    # One GPU in use is the use of a gang.
    minutes(plant, booking, use=(5, 0))
    assert fresh(booking).idle_seconds == 0
    # A warned booking is not taken while its node is silent.
    idled(booking, 29, plant)
    minutes(plant, booking)
    with as_system():
        assert len(idle_read(plant.now)) == 1
        assert idle_read(plant.now + 3 * MINUTE) == ()


def test_a_tier_that_tells_takes_nothing(plant: Plant, lab: Lab) -> None:
    booking = a_user(plant, lab, "tell")
    idled(booking, 29, plant)
    assert minutes(plant, booking, 3) == 1
    assert fresh(booking).idle_veto_until is None
    with as_system():
        assert idle_read(plant.now) == ()
