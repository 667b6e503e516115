"""From a request to the last line of the bill, through the real agent."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

import wire
from allocation.models import Booking, BookingEvent, Decision, Gpu, Node, Occupancy
from allocation.rules.ask import AskDocument
from allocation.services.bookings.change.changes import booking_extend
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.decide.cycle import cycle_run, is_anything_due, tick_run
from allocation.services.decide.invariants import invariants_check
from allocation.services.runs.end import generations_raise
from allocation.services.snapshot.snapshot import CLEARING_SECONDS
from billing.queries import reference_totals
from tenants.platform.errors import Refused
from tests.builders_allocation import (
    HOUR,
    NOW,
    Lab,
    a_booking,
    a_booking_request,
    a_budget,
    a_lab,
    a_node,
    a_row,
    an_allocation,
    an_ask,
)
from tests.prices import price_book_add
from tests.roles import as_system
from tests.services.plant import Plant, fresh, rows_of

pytestmark = pytest.mark.turn

NOTHING = Decimal(0)
MINUTE = timedelta(minutes=1)
CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


def requested(plant: Plant, lab: Lab, ask: AskDocument | None = None) -> Booking:
    with as_system():
        return booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=plant.now)


def released(plant: Plant, lab: Lab, booking: Booking) -> None:
    with as_system():
        booking_release(actor=lab.actor, booking=booking, now=plant.now)


def story(booking: Booking) -> list[str]:
    with as_system():
        return list(BookingEvent.objects.filter(booking=booking).values_list("kind", flat=True))


def money_of(booking: Booking) -> tuple[Decimal, Decimal]:
    """Still held, and charged."""
    with as_system():
        return reference_totals(tenant_id=booking.tenant_id, reference=booking.id)


def all_is_well() -> bool:
    with as_system():
        assert invariants_check() == []
    return True


def decisions() -> int:
    with as_system():
        return Decision.objects.count()


def test_a_booking_goes_all_the_way_and_is_charged_to_the_second(plant: Plant, lab: Lab) -> None:
    booking = requested(plant, lab, an_ask(profile="2g.20gb"))
    assert plant.cycle().outcome == "decided"
    assert fresh(booking).state == "starting"
    assert all_is_well()

    plant.now += timedelta(seconds=7)
    plant.node_works()
    plant.portal_reads()
    booking = fresh(booking)
    assert (booking.state, booking.ready_at) == ("active", NOW + timedelta(seconds=7))
    (row,) = rows_of(booking)
    assert (row.state, row.devices[0][:4]) == ("active", "MIG-")
    assert len(plant.hardware.gpus[row.gpu.index].instances) == 1
    assert all_is_well()

    plant.later(timedelta(minutes=37, seconds=13))
    released(plant, lab, booking)
    assert fresh(booking).state == "ending"
    plant.later(timedelta(seconds=20))
    booking = fresh(booking)
    # 2g.20gb is two sevenths of 4.80 an hour, for 2233 seconds.
    assert (booking.state, booking.outcome) == ("ended", "released")
    assert booking.charged == Decimal("0.850667")
    assert money_of(booking) == (NOTHING, booking.charged)
    assert plant.hardware.gpus[row.gpu.index].instances == {}
    assert story(booking) == ["requested", "scheduled", "starting", "started", "ending", "ended"]
    with as_system():
        assert Occupancy.objects.filter(closed=None).count() == 0
    assert all_is_well()


def test_a_booking_ends_on_time_by_itself(plant: Plant, lab: Lab) -> None:
    booking = requested(plant, lab)
    plant.round()
    assert fresh(booking).state == "active"
    plant.later_until(NOW + 2 * HOUR - timedelta(seconds=1))
    assert fresh(booking).state == "active"
    plant.later(timedelta(seconds=1))
    booking = fresh(booking)
    assert (booking.state, booking.outcome) == ("ended", "completed")
    assert (booking.released_at, booking.charged) == (NOW + 2 * HOUR, Decimal("9.60"))
    assert all_is_well()


def test_an_agent_whose_clock_is_first_still_ends_it_right(plant: Plant, lab: Lab) -> None:
    booking = requested(plant, lab)
    plant.round()
    plant.agent.wait_s()
    plant.now += 2 * HOUR
    plant.node_works()
    plant.portal_reads()
    booking = fresh(booking)
    assert (booking.state, booking.charged) == ("ended", Decimal("9.60"))
    assert all_is_well()


def test_a_fixed_window_starts_on_time(plant: Plant, lab: Lab) -> None:
    booking = requested(plant, lab, an_ask(starts=NOW + HOUR))
    plant.round()
    assert fresh(booking).state == "scheduled"
    plant.later_until(NOW + HOUR - timedelta(seconds=1))
    assert fresh(booking).state == "scheduled"
    plant.later(timedelta(seconds=1))
    assert fresh(booking).state == "active"
    assert all_is_well()


def test_a_fixed_window_that_is_busy_is_refused_with_what_would_work(plant: Plant, lab: Lab) -> None:
    first = requested(plant, lab, an_ask(2))
    plant.round()
    second = requested(plant, lab, an_ask(starts=NOW + HOUR))
    plant.round()
    second = fresh(second)
    assert (fresh(first).state, second.state) == ("active", "refused")
    assert second.reasons
    assert second.alternatives
    assert (money_of(second), second.charged) == ((NOTHING, NOTHING), NOTHING)
    assert all_is_well()


def test_a_queued_booking_has_a_promise_and_nothing_new_is_not_decided_again(plant: Plant, lab: Lab) -> None:
    requested(plant, lab, an_ask(2))
    plant.round()
    queued = requested(plant, lab)
    plant.round()
    queued, count = fresh(queued), decisions()
    assert (queued.state, queued.planned_starts) == ("queued", NOW + 2 * HOUR)
    assert queued.reasons
    assert plant.cycle().outcome == "unchanged"
    assert (decisions(), fresh(queued).version) == (count, queued.version)
    assert story(queued) == ["requested", "queued"]

    plant.later_until(NOW + 2 * HOUR - MINUTE)
    assert fresh(queued).state == "scheduled"
    plant.later_until(NOW + 2 * HOUR)
    assert fresh(queued).state == "active"
    assert all_is_well()


def test_released_slots_are_used_at_once(plant: Plant, lab: Lab) -> None:
    first = requested(plant, lab, an_ask(2, hours=8))
    plant.round()
    second = requested(plant, lab, an_ask(2))
    plant.round()
    assert fresh(second).planned_starts == NOW + 8 * HOUR
    plant.later(10 * MINUTE)
    released(plant, lab, first)
    plant.later(timedelta(seconds=1))
    assert fresh(first).state == "ended"
    plant.later(timedelta(seconds=CLEARING_SECONDS))
    assert (fresh(second).state, fresh(second).ready_at) == ("active", plant.now)
    assert all_is_well()


def test_what_never_found_its_device_free_expires_and_costs_nothing(plant: Plant, lab: Lab) -> None:
    with as_system():
        gpu = Gpu.objects.get(index=0)
    squatter = a_booking(lab.project, lab.actor.user_id, state="active", hours=1)
    an_allocation(squatter, gpu, state="active", ends=NOW + HOUR)
    late = a_booking(lab.project, lab.actor.user_id, state="scheduled", hours=1, starts=NOW + HOUR)
    an_allocation(late, gpu, starts=NOW + HOUR, ends=NOW + 2 * HOUR)
    plant.driver.hardware.process_start(gpu.uuid, label="squatter", stubborn=True)
    plant.now = NOW + HOUR + MINUTE
    assert plant.cycle().started == 0
    assert (fresh(squatter).state, fresh(late).state) == ("ending", "scheduled")
    plant.now = NOW + 2 * HOUR
    plant.cycle()
    assert (fresh(late).state, fresh(late).charged) == ("expired", NOTHING)
    assert money_of(late) == (NOTHING, NOTHING)
    assert [row.state for row in rows_of(late)] == ["superseded"]
    assert fresh(squatter).state == "ending"


def test_a_start_that_fails_on_the_node_is_taken_back_and_costs_nothing(plant: Plant, lab: Lab) -> None:
    plant.driver.faults[CREATE] += ["NVML_ERROR_NOT_SUPPORTED"] * 5
    booking = requested(plant, lab, an_ask(profile="3g.40gb"))
    plant.round()
    plant.driver.faults[CREATE].clear()
    plant.later(10 * MINUTE)
    booking = fresh(booking)
    assert (booking.state, booking.charged, money_of(booking)) == (
        "failed",
        NOTHING,
        (NOTHING, NOTHING),
    )
    assert [row.state for row in rows_of(booking)] == ["ended"]
    assert rows_of(booking)[0].error
    again = requested(plant, lab, an_ask(profile="3g.40gb"))
    plant.round()
    assert fresh(again).state == "active"
    assert all_is_well()


def test_what_gives_many_takes_as_many_statements_as_what_gives_few(plant: Plant, lab: Lab) -> None:
    took = []
    for many in (2, 5):
        given = [requested(plant, lab, an_ask(profile="1g.10gb")) for _ in range(many)]
        with as_system(), CaptureQueriesContext(connection) as said:
            assert tick_run(plant.now).started == many
        took.append(len(said))
        assert [fresh(booking).state for booking in given] == ["starting"] * many
    assert took[1] <= took[0]


def test_many_refusals_take_as_many_statements_as_few(plant: Plant, lab: Lab) -> None:
    requested(plant, lab, an_ask(2))
    plant.round()
    took = []
    for many in (1, 1, 4):
        windows = [requested(plant, lab, an_ask(starts=NOW + HOUR)) for _ in range(many)]
        with as_system(), CaptureQueriesContext(connection) as said:
            plant.cycle()
        took.append(len(said))
        over = [fresh(booking) for booking in windows]
        assert [(each.state, each.charged) for each in over] == [("refused", NOTHING)] * many
        assert [money_of(each) for each in over] == [(NOTHING, NOTHING)] * many
    # The first cycle reads what later ones keep.
    assert took[2] <= took[1]
    assert all_is_well()


def test_a_gang_starts_whole_or_waits_whole(plant: Plant, lab: Lab) -> None:
    with as_system():
        blocked = Gpu.objects.get(index=1)
    earlier = a_booking(lab.project, lab.actor.user_id, state="ending", starts=NOW - HOUR, hours=1)
    an_allocation(earlier, blocked, state="releasing", starts=NOW - HOUR, ends=NOW)
    gang = a_booking(lab.project, lab.actor.user_id, state="scheduled", held="19.20", ask=an_ask(2))
    with as_system():
        for gpu in Gpu.objects.order_by("index"):
            a_row(gang, gpu).save(force_insert=True)
        assert plant.cycle().started == 0
        assert Occupancy.objects.count() == 1
    assert [row.state for row in rows_of(gang)] == ["planned", "planned"]
    assert fresh(gang).state == "scheduled"

    with as_system():
        generations_raise([blocked.id])
    # The agent holds nothing of the earlier one, so it proves at once that it is gone.
    plant.round()
    assert fresh(earlier).state == "ended"
    assert fresh(gang).state == "active"
    assert [row.state for row in rows_of(gang)] == ["active", "active"]


def test_a_gang_is_active_when_its_last_member_is_and_over_when_its_last_is(plant: Plant, lab: Lab) -> None:
    gang = requested(plant, lab, an_ask(2))
    plant.cycle()
    one, two = (row.id.hex for row in rows_of(gang))

    def said(name: str, state: wire.AllocationState) -> str:
        devices = ("GPU-x",) if state == "ready" else ()
        item = wire.ReportedAllocation(id=name, state=state, devices=devices, error=None, since=1)
        return plant.receive(plant.report(item))

    assert said(one, "ready") == "applied"
    assert fresh(gang).state == "starting"
    assert all_is_well()
    said(two, "ready")
    assert fresh(gang).state == "active"
    plant.now += HOUR
    released(plant, lab, gang)
    plant.cycle()
    said(two, "empty")
    assert (fresh(gang).state, fresh(gang).charged) == ("ending", None)
    assert all_is_well()
    plant.now += MINUTE
    said(one, "empty")
    # Two GPUs for the hour until it was given back, not for the minute of clearing.
    assert (fresh(gang).state, fresh(gang).charged) == ("ended", Decimal("9.60"))
    assert all_is_well()


def test_an_extension_is_granted_paid_and_told_to_the_node(plant: Plant, lab: Lab) -> None:
    booking = requested(plant, lab)
    plant.round()
    with as_system():
        booking_extend(actor=lab.actor, booking=booking, until=NOW + 3 * HOUR, now=plant.now)
    plant.round()
    booking = fresh(booking)
    assert (booking.planned_ends, booking.extension_until) == (NOW + 3 * HOUR, None)
    assert (booking.hold_amount, money_of(booking)) == (
        Decimal("14.40"),
        (Decimal("14.40"), NOTHING),
    )
    plant.later_until(NOW + 2 * HOUR + MINUTE)
    assert fresh(booking).state == "active"
    plant.later_until(NOW + 3 * HOUR)
    assert (fresh(booking).state, fresh(booking).charged) == ("ended", Decimal("14.40"))
    assert story(booking)[4:6] == ["change_asked", "changed"]
    assert all_is_well()


def test_an_extension_into_somebody_elses_time_is_refused(plant: Plant, lab: Lab) -> None:
    booking = requested(plant, lab, an_ask(2))
    requested(plant, lab, an_ask(2, starts=NOW + 2 * HOUR))
    plant.round()
    with as_system():
        booking_extend(actor=lab.actor, booking=booking, until=NOW + 3 * HOUR, now=plant.now)
    plant.round()
    booking = fresh(booking)
    assert (booking.planned_ends, booking.extension_until) == (NOW + 2 * HOUR, None)
    assert booking.hold_amount == Decimal("19.20")
    assert money_of(booking) == (Decimal("19.20"), NOTHING)
    assert story(booking)[-1] == "change_kept"
    assert all_is_well()


def test_the_money_of_an_extension_is_held_until_it_is_answered(plant: Plant, lab: Lab) -> None:
    booking = requested(plant, lab)
    plant.round()
    with as_system():
        booking_extend(actor=lab.actor, booking=booking, until=NOW + 3 * HOUR, now=plant.now)
    with pytest.raises(Refused):
        a_budget(lab.project, "14.39")
    plant.round()
    booking = fresh(booking)
    assert (booking.planned_ends, booking.hold_amount) == (NOW + 3 * HOUR, Decimal("14.40"))
    assert all_is_well()


def test_an_extension_of_what_is_cancelled_keeps_no_cycle_busy(plant: Plant, lab: Lab) -> None:
    booking = requested(plant, lab, an_ask(starts=NOW + HOUR))
    plant.cycle()
    with as_system():
        booking_extend(actor=lab.actor, booking=booking, until=NOW + 4 * HOUR, now=plant.now)
        booking_cancel(actor=lab.actor, booking=booking, now=plant.now)
        # One turn gives back the money of the change.
        assert is_anything_due(plant.now)
        assert tick_run(plant.now).outcome == "unchanged"
        assert not is_anything_due(plant.now)
        assert tick_run(plant.now).outcome == "idle"


def test_a_turn_in_which_nothing_happens_asks_little(plant: Plant, lab: Lab) -> None:
    requested(plant, lab)
    requested(plant, lab, an_ask(starts=NOW + 5 * HOUR))
    plant.round()
    with as_system():
        for _ in range(2):
            assert cycle_run(plant.now).outcome == "unchanged"
        with CaptureQueriesContext(connection) as turn:
            cycle_run(plant.now)
        with CaptureQueriesContext(connection) as tick:
            assert tick_run(plant.now).outcome == "idle"
    assert len(turn) <= 15, [each["sql"][:100] for each in turn.captured_queries]
    assert len(tick) == 1


def test_many_bookings_that_wait_take_as_few_statements_as_one(plant: Plant, lab: Lab) -> None:
    taken = []
    for wanted in (3, 12):
        for _ in range(wanted):
            requested(plant, lab)
        with as_system(), CaptureQueriesContext(connection) as turn:
            cycle_run(plant.now)
        taken.append(len(turn))
    with as_system():
        assert Booking.objects.filter(state="queued").count() >= 12
    assert taken[1] <= taken[0] + 3


def test_a_class_without_a_price_at_booking_time_costs_what_was_promised(plant: Plant, lab: Lab) -> None:
    """Its price was never asked, as the class was over the quota then; the cycle must not stop."""
    booking = requested(plant, lab)
    with as_system():
        book = price_book_add(version=2, valid_from=NOW + HOUR)
        Booking.objects.filter(id=booking.id).update(price_version=book.version)
    plant.round()
    assert fresh(booking).state == "active"
    assert fresh(booking).price_per_hour == Decimal("4.80")


def test_a_node_that_drains_takes_nothing_new(plant: Plant, lab: Lab) -> None:
    a_node("gpu-a1-02", state=Node.State.READY)
    with as_system():
        Node.objects.filter(name="gpu-a1-01").update(state=Node.State.DRAINING)
    booking = requested(plant, lab)
    plant.cycle()
    assert [row.gpu.node.name for row in rows_of(booking)] == ["gpu-a1-02"]
