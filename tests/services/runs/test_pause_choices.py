"""The choices of an owner during a pause's grace period, and their refusals."""

from datetime import timedelta

import pytest

from allocation.models import Allocation, Booking, BookingEvent, Gpu, Pause
from allocation.rules.states import State
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.cycle import cycle_run, is_anything_due
from allocation.services.decide.invariants import invariants_check
from allocation.services.plans.pauses import more_time_answer
from allocation.services.runs.pause_choices import booking_saved, more_time_request
from tenants.models import AuditEntry, OutboxMessage
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import a_tier
from tests.builders_allocation import (
    HOUR,
    NOW,
    Lab,
    a_booking,
    a_booking_request,
    a_lab,
    an_allocation,
    an_ask,
)
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.pause_plans import GRACE, pause_of, pause_plan, plan_written

MINUTE = timedelta(minutes=1)
SOON = NOW + MINUTE


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix", gpus=1)


@pytest.fixture
def rival(lab: Lab) -> Lab:
    return a_lab("rivals", gpus=0)


def fresh(booking: Booking) -> Booking:
    with as_system():
        return Booking.objects.select_related("tier").get(id=booking.id)


def grant() -> None:
    """The tier lets a pause be postponed once, for five minutes."""
    a_tier("standard", pausable=True, more_times=1, more_time_seconds=300)


def pausing(
    lab: Lab, rival: Lab, *, starts_at: bool = False, is_placed: bool = True
) -> tuple[Booking, Booking]:
    """A booking with notice of a pause at NOW + 30 min, and its preemptor."""
    booking = a_booking(lab.project, lab.actor.user_id, state=State.ACTIVE)
    grant()
    with as_system():
        gpu = Gpu.objects.get()
    an_allocation(booking, gpu, state="active")
    at = NOW + 30 * MINUTE
    ask = an_ask(hours=1, starts=at + GRACE if starts_at else None)
    with as_system():
        strong = booking_request(actor=rival.actor, request=a_booking_request(rival.project, ask), now=at)
        plan = pause_plan(booking, strong, at + GRACE, is_placed=is_placed)
    plan_written(plan, at)
    return fresh(booking), fresh(strong)


def planned(booking: Booking) -> tuple[object, object]:
    with as_system():
        row = booking.allocations.get(state=Allocation.State.PLANNED)
    return row.period.lower, row.period.upper


def kinds(booking: Booking) -> list[str]:
    with as_system():
        return list(BookingEvent.objects.filter(booking=booking).values_list("kind", flat=True))


AT = NOW + 30 * MINUTE
DEADLINE = AT + GRACE


def test_saved_ends_the_grace_and_the_next_cycle_gives_the_place_back(lab: Lab, rival: Lab) -> None:
    booking, _ = pausing(lab, rival)
    with tenant_tx(lab.tenant_id):
        booking_saved(actor=lab.actor, booking=booking, now=AT + MINUTE)
        booking_saved(actor=lab.actor, booking=booking, now=AT + 2 * MINUTE)
    assert pause_of(booking).acknowledged_at == AT + MINUTE
    assert kinds(booking) == ["pause_noticed", "saved"]
    with as_system():
        assert AuditEntry.objects.filter(action="booking.saved").count() == 1
        assert OutboxMessage.objects.filter(kind="booking.saved").count() == 1
        assert is_anything_due(AT + MINUTE)
        cycle_run(AT + 3 * MINUTE)
        (row,) = booking.allocations.all()
        assert (row.state, row.period.upper) == ("releasing", AT + MINUTE)
        assert invariants_check() == []


def test_a_save_while_it_runs_is_remembered_and_changes_nothing_else(lab: Lab) -> None:
    booking = a_booking(lab.project, lab.actor.user_id, state=State.ACTIVE)
    with tenant_tx(lab.tenant_id):
        booking_saved(actor=lab.actor, booking=booking, now=SOON)
    assert fresh(booking).saved_at == SOON
    assert kinds(booking) == []


@pytest.mark.parametrize("state", sorted(set(State) - {State.ACTIVE, State.PAUSING}))
def test_nothing_is_saved_on_what_does_not_run(lab: Lab, state: State) -> None:
    booking = a_booking(lab.project, lab.actor.user_id, state=state)
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as caught:
        booking_saved(actor=lab.actor, booking=booking, now=SOON)
    assert caught.value.code == "not_active"


@pytest.mark.parametrize("is_placed", [True, False])
def test_more_time_moves_the_deadline_and_the_stronger_claim_once(
    lab: Lab,
    rival: Lab,
    is_placed: bool,  # noqa: FBT001 (a case of the table)
) -> None:
    booking, strong = pausing(lab, rival, is_placed=is_placed)
    with tenant_tx(lab.tenant_id):
        more_time_request(actor=lab.actor, booking=booking, now=AT + MINUTE)
        with pytest.raises(Refused) as caught:
            more_time_request(actor=lab.actor, booking=booking, now=AT + MINUTE)
    assert caught.value.code == "more_time_pending"
    with as_system():
        assert is_anything_due(AT + MINUTE)
        cycle_run(AT + MINUTE)
    pause = pause_of(booking)
    until = DEADLINE + 5 * MINUTE
    assert (pause.deadline, pause.more_times_used, pause.more_asked_at) == (until, 1, None)
    with as_system():
        (row,) = booking.allocations.all()
        assert row.period.upper == until
        assert fresh(strong).planned_starts == until
        assert invariants_check() == []
    assert kinds(booking)[-1] == "more_time"
    assert "moved" in kinds(strong)

    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as caught:
        more_time_request(actor=lab.actor, booking=booking, now=AT + 2 * MINUTE)
    assert (caught.value.code, caught.value.rule) == ("no_more_time", "R51")


def test_a_fixed_claim_can_not_wait(lab: Lab, rival: Lab) -> None:
    booking, _ = pausing(lab, rival, starts_at=True)
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as caught:
        more_time_request(actor=lab.actor, booking=booking, now=AT + MINUTE)
    assert (caught.value.code, caught.value.rule) == ("claim_can_not_wait", "R52")
    assert pause_of(booking).more_asked_at is None


def test_more_time_that_others_were_promised_is_refused_and_nothing_moves(lab: Lab, rival: Lab) -> None:
    booking, strong = pausing(lab, rival)
    before = planned(strong)
    other = a_booking(lab.project, lab.actor.user_id, state=State.SCHEDULED, starts=DEADLINE + HOUR)
    with as_system():
        gpu = Gpu.objects.get()
        # A booking right after the deadline blocks both of them.
        strong.allocations.update(state="superseded")
        Booking.objects.filter(id=strong.id).update(state="queued")
    an_allocation(other, gpu, starts=DEADLINE, ends=DEADLINE + HOUR)
    grant()
    with tenant_tx(lab.tenant_id):
        more_time_request(actor=lab.actor, booking=booking, now=AT + MINUTE)
    with as_system():
        assert more_time_answer(AT + MINUTE) == 1
    pause = pause_of(booking)
    assert (pause.deadline, pause.more_times_used, pause.more_asked_at) == (DEADLINE, 0, None)
    assert kinds(booking)[-1] == "more_time_refused"
    assert fresh(strong).planned_starts == before[0]


def test_a_tier_without_more_time_says_so(lab: Lab, rival: Lab) -> None:
    booking, _ = pausing(lab, rival)
    a_tier("standard", pausable=True)
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as caught:
        more_time_request(actor=lab.actor, booking=fresh(booking), now=AT + MINUTE)
    assert "grants no more time" in caught.value.sentence


@pytest.mark.parametrize("late", [False, True])
def test_after_the_deadline_or_a_save_there_is_nothing_to_put_off(
    lab: Lab,
    rival: Lab,
    late: bool,  # noqa: FBT001 (a case of the table)
) -> None:
    booking, _ = pausing(lab, rival)
    with tenant_tx(lab.tenant_id):
        if not late:
            booking_saved(actor=lab.actor, booking=booking, now=AT)
        with pytest.raises(Refused) as caught:
            more_time_request(actor=lab.actor, booking=booking, now=DEADLINE if late else AT)
    assert caught.value.code == "not_pausing"


def test_a_pending_extension_ends_with_the_notice(lab: Lab, rival: Lab) -> None:
    booking = a_booking(lab.project, lab.actor.user_id, state=State.ACTIVE)
    with as_system():
        an_allocation(booking, Gpu.objects.get(), state="active")
        Booking.objects.filter(id=booking.id).update(extension_until=NOW + 3 * HOUR)
        strong = booking_request(actor=rival.actor, request=a_booking_request(rival.project), now=NOW)
        plan = pause_plan(booking, strong, NOW + GRACE)
    plan_written(plan, NOW)
    assert fresh(booking).extension_until is None


def test_the_label_of_another_tenants_claim_is_never_told(lab: Lab, rival: Lab) -> None:
    pausing(lab, rival)
    with tenant_tx(lab.tenant_id):
        assert Pause.objects.get().beneficiary_label == ""


def test_within_the_tenant_the_label_of_the_stronger_claim_is_told(lab: Lab) -> None:
    booking, strong = pausing(lab, lab)
    with tenant_tx(lab.tenant_id):
        assert pause_of(booking).beneficiary_label == strong.label


def test_an_unchanged_plan_for_a_pausing_booking_is_no_news(lab: Lab, rival: Lab) -> None:
    booking, strong = pausing(lab, rival)
    with as_system():
        assert cycle_run(AT).outcome == "decided"
        assert fresh(booking).planned_starts is not None
        assert cycle_run(AT + timedelta(seconds=1)).outcome == "unchanged"
    assert fresh(strong).state == "scheduled"
