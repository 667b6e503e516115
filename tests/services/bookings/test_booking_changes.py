"""Cancel, release, check in and ask for more time, in every state a booking can be in."""

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from allocation.models import Allocation, Booking, BookingEvent, Gpu
from allocation.rules.states import ON_HARDWARE, TERMINAL, State
from allocation.services.bookings.change.changes import Patch, booking_extend, booking_patch
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.runs.no_shows import booking_check_in
from billing.queries import reference_totals
from tenants.models import AuditEntry, OutboxMessage
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.api.builders import row_counts
from tests.builders_allocation import (
    HOUR,
    NOW,
    Lab,
    a_booking,
    a_budget,
    an_allocation,
)
from tests.roles import as_system

NOTHING = Decimal(0)
SOON = NOW + timedelta(minutes=30)
ROW_OF = {
    State.SCHEDULED: "planned",
    State.STARTING: "starting",
    State.ACTIVE: "active",
    State.ENDING: "releasing",
}


def in_state(lab: Lab, state: State) -> Booking:
    """A booking of two hours from NOW on, with its row where the state has one."""
    booking = a_booking(lab.project, lab.actor.user_id, state=state)
    if state in ROW_OF:
        with as_system():
            gpu = Gpu.objects.get()
        an_allocation(booking, gpu, state=ROW_OF[state])
    return booking


def changed(
    act: Callable[..., Booking], lab: Lab, booking: Booking, now: datetime = SOON, **more: datetime
) -> Booking:
    """As the web process does it; the booking as it is stored afterwards."""
    with tenant_tx(lab.tenant_id):
        act(actor=lab.actor, booking=booking, now=now, **more)
    with as_system():
        return Booking.objects.get(id=booking.id)


def refusal_of(act: Callable[..., Booking], lab: Lab, booking: Booking, **more: datetime) -> Refused:
    """What is answered, having proven that nothing was written."""
    before = row_counts()
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as caught:
        act(actor=lab.actor, booking=booking, now=SOON, **more)
    assert row_counts() == before
    with as_system():
        assert Booking.objects.get(id=booking.id).version == booking.version
    return caught.value


def money_of(booking: Booking) -> tuple[Decimal, Decimal]:
    """Still held, and charged."""
    with as_system():
        return reference_totals(tenant_id=booking.tenant_id, reference=booking.id)


def row_states(booking: Booking) -> list[str]:
    with as_system():
        return list(booking.allocations.values_list("state", flat=True))


def event_kinds(booking: Booking) -> list[str]:
    with as_system():
        return list(BookingEvent.objects.filter(booking=booking).values_list("kind", flat=True))


@pytest.mark.parametrize(
    "state",
    sorted(set(State) - TERMINAL - ON_HARDWARE),
)
def test_cancelling_what_has_not_started_frees_all_of_its_money(lab: Lab, state: State) -> None:
    booking = in_state(lab, state)
    assert money_of(booking) == (Decimal("9.60"), NOTHING)

    booking = changed(booking_cancel, lab, booking)

    assert (booking.state, booking.outcome, booking.charged) == ("cancelled", "cancelled", NOTHING)
    assert booking.ended_at == SOON
    assert money_of(booking) == (NOTHING, NOTHING)
    assert set(row_states(booking)) <= {"superseded"}
    assert event_kinds(booking) == ["cancelled"]
    with as_system():
        assert AuditEntry.objects.filter(action="booking.cancel").count() == 1
        assert OutboxMessage.objects.filter(kind="booking.cancelled").count() == 1


@pytest.mark.parametrize("state", sorted(ON_HARDWARE - {State.ENDING}))
@pytest.mark.parametrize(("act", "outcome"), [(booking_cancel, "cancelled"), (booking_release, "released")])
def test_what_is_on_its_device_ends_and_pays_only_when_it_is_proven_empty(
    lab: Lab, state: State, act: Callable[..., Booking], outcome: str
) -> None:
    booking = changed(act, lab, in_state(lab, state))

    assert (booking.state, booking.outcome) == ("ending", outcome)
    assert booking.released_at == SOON
    assert booking.ended_at is None
    assert money_of(booking) == (Decimal("9.60"), NOTHING)
    # The rows are the cycle's to release.
    assert set(row_states(booking)) <= {"starting", "active"}
    assert event_kinds(booking) == ["ending"]


@pytest.mark.parametrize("act", [booking_cancel, booking_release])
def test_ending_twice_is_ending_once(lab: Lab, act: Callable[..., Booking]) -> None:
    booking = changed(act, lab, in_state(lab, State.ACTIVE))
    again = changed(act, lab, booking, SOON + HOUR)
    assert (again.version, again.released_at) == (booking.version, SOON)
    assert event_kinds(booking) == ["ending"]


def test_cancelling_twice_is_cancelling_once(lab: Lab) -> None:
    booking = changed(booking_cancel, lab, in_state(lab, State.QUEUED))
    again = changed(booking_cancel, lab, booking, SOON + HOUR)
    assert (again.version, again.ended_at) == (booking.version, SOON)


@pytest.mark.parametrize("state", sorted(TERMINAL - {State.CANCELLED}))
@pytest.mark.parametrize("act", [booking_cancel, booking_release])
def test_what_is_over_stays_as_it_is(lab: Lab, state: State, act: Callable[..., Booking]) -> None:
    assert refusal_of(act, lab, in_state(lab, state)).code == "booking_over"


@pytest.mark.parametrize("state", sorted(set(State) - TERMINAL - ON_HARDWARE - {State.PAUSED}))
def test_what_has_not_started_can_not_be_released(lab: Lab, state: State) -> None:
    assert refusal_of(booking_release, lab, in_state(lab, state)).code == "not_started"


def test_a_late_release_is_no_later_than_the_end(lab: Lab) -> None:
    booking = changed(booking_release, lab, in_state(lab, State.ACTIVE), NOW + 5 * HOUR)
    assert booking.released_at == booking.planned_ends


def test_checking_in_counts_once(lab: Lab) -> None:
    booking = changed(booking_check_in, lab, in_state(lab, State.ACTIVE))
    again = changed(booking_check_in, lab, booking, SOON + HOUR)
    assert again.checked_in_at == SOON
    assert event_kinds(booking) == ["checked_in"]


@pytest.mark.parametrize("state", sorted(set(State) - {State.ACTIVE}))
def test_nobody_checks_in_to_what_is_not_there(lab: Lab, state: State) -> None:
    assert refusal_of(booking_check_in, lab, in_state(lab, state)).code == "not_active"


@pytest.mark.parametrize("state", [State.SCHEDULED, State.STARTING, State.ACTIVE])
def test_more_time_is_asked_for_in_whole_seconds_and_not_given_yet(lab: Lab, state: State) -> None:
    booking = in_state(lab, state)
    until = NOW + 3 * HOUR
    booking = changed(booking_extend, lab, booking, until=until + timedelta(microseconds=987))
    assert booking.extension_until == until
    assert booking.planned_ends == NOW + 2 * HOUR
    assert event_kinds(booking) == ["change_asked"]
    assert money_of(booking) == (Decimal("9.60"), NOTHING)
    with as_system():
        change = booking.changes.get()
        held, _ = reference_totals(tenant_id=booking.tenant_id, reference=change.id)
    assert (held, change.delta_held) == (Decimal("4.80"), Decimal("4.80"))
    # Asking again replaces what was asked.
    booking = changed(booking_extend, lab, booking, until=until + HOUR)
    assert booking.extension_until == until + HOUR
    with as_system():
        assert list(booking.changes.order_by("state").values_list("state", "delta_held")) == [
            ("asked", Decimal("9.60")),
            ("replaced", Decimal("4.80")),
        ]
        assert reference_totals(tenant_id=booking.tenant_id, reference=change.id)[0] == NOTHING


def test_labels_change_while_more_time_is_asked_for(lab: Lab) -> None:
    booking = in_state(lab, State.ACTIVE)
    booking = changed(booking_extend, lab, booking, until=NOW + 3 * HOUR)
    patch = Patch(labels={"run": "7"}, external_ref="HELIX-12")
    with tenant_tx(lab.tenant_id):
        booking_patch(actor=lab.actor, booking=booking, patch=patch, revision=1, now=SOON)
    with as_system():
        booking.refresh_from_db()
        change = booking.changes.get(state="asked")
    assert (booking.labels, booking.external_ref) == ({"run": "7"}, "HELIX-12")
    # Its base is the new revision, so the next cycle can still grant it.
    assert (booking.revision, change.base_revision) == (2, 2)


@pytest.mark.parametrize("state", sorted(set(State) - {State.SCHEDULED, State.STARTING, State.ACTIVE}))
def test_what_has_no_place_can_not_be_extended(lab: Lab, state: State) -> None:
    booking = in_state(lab, state)
    refused = refusal_of(booking_extend, lab, booking, until=NOW + 3 * HOUR)
    is_paused = state in (State.PAUSING, State.PAUSED)
    assert refused.code == ("extension_while_paused" if is_paused else "not_extendable")


@pytest.mark.parametrize(
    ("until", "code"),
    [
        (NOW + 2 * HOUR, "end_not_later"),
        (NOW + HOUR, "end_not_later"),
        (NOW + timedelta(days=8), "too_long"),
    ],
)
def test_an_end_that_can_not_be_is_refused_at_once(lab: Lab, until: datetime, code: str) -> None:
    booking = in_state(lab, State.ACTIVE)
    assert refusal_of(booking_extend, lab, booking, until=until).code == code


def test_more_time_than_there_is_money_for_is_refused_at_once(lab: Lab) -> None:
    booking = in_state(lab, State.ACTIVE)
    a_budget(lab.project, "14.39")
    refused = refusal_of(booking_extend, lab, booking, until=NOW + 3 * HOUR)
    assert (refused.code, refused.numbers["left"]) == ("budget_exceeded", "4.79")
    assert refused.rule == "R10"
    a_budget(lab.project, "14.40")
    assert changed(booking_extend, lab, booking, until=NOW + 3 * HOUR).extension_until


def test_cancelling_leaves_rows_of_others_alone(lab: Lab) -> None:
    booking = in_state(lab, State.SCHEDULED)
    with as_system():
        gpu = Gpu.objects.get()
    other = a_booking(lab.project, lab.actor.user_id, state=State.SCHEDULED, starts=NOW + 2 * HOUR)
    an_allocation(other, gpu, starts=NOW + 2 * HOUR)
    changed(booking_cancel, lab, booking)
    assert row_states(other) == [Allocation.State.PLANNED]
