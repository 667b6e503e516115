"""The waiting list: bookings that wait for a full window, with their money held."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from allocation.features.waiting_list.models import WaitEntry
from allocation.models import Booking, BookingEvent, EventCounter
from allocation.rules.changes import MOST_WAITING
from allocation.rules.states import State
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.checks.terms import target_of
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.decide.cycle import cycle_run, is_anything_due
from allocation.services.decide.invariants import invariants_check
from allocation.services.decide.replay import decision_replay
from allocation.services.snapshot.kept import DRIFT
from billing.queries import budget_figures
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_system
from tests.servers.servers import Servers

pytestmark = pytest.mark.turn

TUESDAY = NOW + 24 * HOUR
SECOND = timedelta(seconds=1)


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    """One GPU."""
    return a_lab("helix")


def booked(
    lab: Lab,
    starts: datetime | None = TUESDAY,
    *,
    waitlist: str = "auto",
    hours: float = 2,
    now: datetime = NOW,
) -> Booking:
    with tenant_tx(lab.tenant_id):
        request = a_booking_request(lab.project, an_ask(hours=hours, starts=starts))
        request = replace(request, waitlist=waitlist)
        return booking_request(actor=lab.actor, request=request, now=now)


def cancelled(lab: Lab, booking: Booking, now: datetime) -> None:
    with tenant_tx(lab.tenant_id):
        booking_cancel(actor=lab.actor, booking=booking, now=now)


def cycled(now: datetime) -> None:
    with as_system():
        cycle_run(now)


def now_of(booking: Booking) -> Booking:
    with as_system():
        return Booking.objects.get(id=booking.id)


def states(*bookings: Booking) -> list[str]:
    return [now_of(each).state for each in bookings]


def held(lab: Lab) -> Decimal:
    with as_system():
        figures = budget_figures(project_id=lab.project.id, at=NOW)
    assert figures is not None
    return figures.held


def kinds(booking: Booking) -> list[str]:
    with as_system():
        return list(BookingEvent.objects.filter(booking=booking).values_list("kind", flat=True))


def open_entries() -> int:
    with as_system():
        return WaitEntry.objects.filter(slot__isnull=False).count()


def all_is_well() -> None:
    with as_system():
        assert invariants_check() == []
        assert not EventCounter.objects.filter(name__startswith=DRIFT).exists()


def test_who_waits_for_a_full_window_gets_it_in_the_turn_after_it_frees(lab: Lab) -> None:
    first = booked(lab, waitlist="")
    cycled(NOW)
    second, third = booked(lab), booked(lab, now=NOW + SECOND)
    cycled(NOW + SECOND)
    assert states(first, second, third) == ["scheduled", "waitlisted", "waitlisted"]
    assert held(lab) == 3 * Decimal("9.60")
    assert open_entries() == 2
    # Asked again, they are not listed again, and no decision is stored for them.
    decision = now_of(second).decision_id
    cycled(NOW + 2 * SECOND)
    assert (now_of(second).decision_id, kinds(second)) == (decision, ["requested", "waitlisted"])

    cancelled(lab, first, NOW + HOUR)
    cycled(NOW + HOUR)
    assert states(second, third) == ["scheduled", "waitlisted"]
    got = now_of(second)
    assert (got.planned_starts, got.planned_strength) == (TUESDAY, "firm")
    assert kinds(second) == ["requested", "waitlisted", "scheduled"]
    assert open_entries() == 1
    all_is_well()
    with as_system():
        assert got.decision is not None
        assert decision_replay(got.decision).is_equal


def test_a_window_that_is_moved_away_frees_its_place_like_a_cancelled_one(lab: Lab) -> None:
    """No act notifies the list: the turn after the move sees the room."""
    first = booked(lab, waitlist="")
    cycled(NOW)
    second = booked(lab, now=NOW + SECOND)
    cycled(NOW + SECOND)
    ask = replace(target_of(now_of(first)).ask, starts=TUESDAY + 24 * HOUR)
    with tenant_tx(lab.tenant_id):
        patch = Patch(ask=ask)
        booking_patch(actor=lab.actor, booking=first, patch=patch, revision=None, now=NOW + 2 * SECOND)
    for step in (2, 3):
        cycled(NOW + step * SECOND)
    assert states(first, second) == ["scheduled", "scheduled"]
    assert now_of(second).planned_starts == TUESDAY
    assert now_of(first).planned_starts == TUESDAY + 24 * HOUR
    all_is_well()


def test_an_entry_whose_window_passes_expires_and_its_money_is_free(lab: Lab) -> None:
    first = booked(lab, waitlist="")
    cycled(NOW)
    second = booked(lab)
    cycled(NOW + SECOND)
    with as_system():
        assert not is_anything_due(TUESDAY - SECOND)
        # The first one's start is due, too.
        WaitEntry.objects.update(until=TUESDAY - HOUR)
        assert not is_anything_due(TUESDAY - HOUR - SECOND)
        assert is_anything_due(TUESDAY - HOUR)
    cycled(TUESDAY - HOUR)
    over = now_of(second)
    assert (over.state, over.outcome, over.charged) == (State.EXPIRED, "missed", Decimal(0))
    assert states(first) == ["scheduled"]
    assert held(lab) == Decimal("9.60")
    assert (kinds(second)[-1], open_entries()) == ("expired", 0)
    all_is_well()


def test_cancelled_on_the_list_its_money_is_free_at_once(lab: Lab) -> None:
    booked(lab, waitlist="")
    cycled(NOW)
    second = booked(lab)
    cycled(NOW + SECOND)
    cancelled(lab, second, NOW + SECOND)
    assert (states(second), held(lab), open_entries()) == (["cancelled"], Decimal("9.60"), 0)
    all_is_well()


def test_a_person_has_five_entries_and_what_can_not_wait_is_refused(lab: Lab) -> None:
    for number in range(MOST_WAITING):
        booked(lab, TUESDAY + number * 2 * HOUR)
    with pytest.raises(Refused) as refused:
        booked(lab)
    assert (refused.value.code, refused.value.numbers) == ("too_many_entries", {"most": 5})
    with as_system():
        assert Booking.objects.count() == MOST_WAITING
    cycled(NOW)
    # All of them had room, so their entries are closed.
    assert open_entries() == 0
    with pytest.raises(Refused) as refused:
        booked(lab, None)
    assert (refused.value.code, refused.value.param) == ("wait_needs_window", "if_full")
