"""Places kept for bookings that wait for an approval: kept, passed, given up, and taken."""

from datetime import UTC, datetime, timedelta

import pytest

from allocation.features.approval_rules.services import ApprovalRuleTerms, approval_rule_set
from allocation.models import Approval, Booking, BookingEvent, EventCounter
from allocation.rules.approvals import DECISION_TIME, PLACE_MARGIN, Step
from allocation.rules.states import State
from allocation.services.bookings.approval.decisions import Decision, approval_decide
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.cycle import cycle_run, is_anything_due
from allocation.services.decide.invariants import invariants_check
from allocation.services.decide.replay import decision_replay
from allocation.services.plans.kept_places import soft_places_write
from allocation.services.policy.policies import policy_read, policy_values
from allocation.services.quotes.quotes import quote_make
from allocation.services.snapshot.kept import DRIFT
from allocation.services.snapshot.snapshot import snapshot_take
from allocation.web.parts.approvals import approval_line
from allocation.web.parts.times import moment_words
from solver.model.plan import SoftPlace
from tenants.access import Actor
from tenants.models import Role
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_tenant_admin, an_actor
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, a_policy, an_ask
from tests.roles import as_system
from tests.servers.servers import Servers

pytestmark = pytest.mark.turn

SECOND = timedelta(seconds=1)


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    """One GPU, and a rule for bookings of four hours and more."""
    lab = a_lab("helix")
    terms = ApprovalRuleTerms(name="Long", steps=[Step("lead", hours=48)], min_seconds=4 * 3600)
    with tenant_tx(lab.tenant_id):
        approval_rule_set(actor=an_actor(a_tenant_admin(lab.tenant)), terms=terms, now=NOW)
    return lab


def asked(lab: Lab, hours: float, now: datetime = NOW, starts: datetime | None = None) -> Booking:
    with tenant_tx(lab.tenant_id):
        wanted = a_booking_request(lab.project, an_ask(hours=hours, starts=starts))
        return booking_request(actor=lab.actor, request=wanted, now=now)


def cycled(now: datetime) -> None:
    with as_system():
        cycle_run(now)


def now_of(booking: Booking) -> Booking:
    with as_system():
        return Booking.objects.get(id=booking.id)


def approved(lead: Actor, booking: Booking, now: datetime) -> None:
    with tenant_tx(lead.tenant_id):
        approval = Approval.objects.get(booking=booking)
        decision = Decision("approve", approval.digest)
        approval_decide(actor=lead, approval_id=approval.id, decision=decision, now=now)


def kinds(booking: Booking) -> list[str]:
    with as_system():
        return list(BookingEvent.objects.filter(booking=booking).values_list("kind", flat=True))


def test_a_place_is_kept_others_use_the_wait_and_it_is_gone_in_one_turn(lab: Lab) -> None:
    pending = asked(lab, 4)
    cycled(NOW)
    first, kept = NOW + DECISION_TIME, now_of(pending)
    assert (kept.state, kept.planned_starts) == (State.AWAITING_APPROVAL, first)
    assert kept.place_until == first - PLACE_MARGIN
    with as_system():
        (request,) = snapshot_take(NOW + SECOND).pending
        assert request.planned is not None
        assert request.until == int(kept.place_until.timestamp())

    # What ends before it starts at once; an hour comes after it, for as long as it is kept.
    short, long = (asked(lab, hours, now=NOW + SECOND) for hours in (0.4, 1))
    cycled(NOW + SECOND)
    assert now_of(short).planned_starts == NOW + SECOND
    after = now_of(long).planned_starts
    assert after is not None
    assert after >= first + 4 * HOUR
    # A quote sees the place that is kept.
    assert quoted(lab, NOW + SECOND) >= first + 4 * HOUR

    gone_at(pending, kept.place_until)
    sooner = now_of(long).planned_starts
    assert sooner is not None
    assert sooner < first + HOUR
    with as_system():
        assert invariants_check() == []
        assert kept.decision is not None
        assert decision_replay(kept.decision).is_equal


def test_a_place_that_moves_is_said_and_every_page_names_the_one_that_is_kept(lab: Lab) -> None:
    pending = asked(lab, 4)
    cycled(NOW)
    with as_system():
        kept = Booking.objects.select_related("decision").get(id=pending.id)
        first, gpus = kept.planned_starts, snapshot_take(NOW).pending[0].planned
    assert first is not None
    assert gpus is not None
    assert kept.decision is not None
    starts, ends = gpus.starts + 3600, gpus.ends + 3600
    moved = SoftPlace(str(kept.id), kept.planned_class, gpus.places, starts, ends)
    with as_system():
        soft_places_write([moved], kept.decision, NOW + SECOND)
        soft_places_write([moved], kept.decision, NOW + 2 * SECOND)
        said = BookingEvent.objects.filter(booking=kept, kind="place_kept").order_by("id")
        times = [datetime.fromisoformat(each.detail["starts"]) for each in said]
        later = now_of(pending)
        line = approval_line(later, UTC, NOW)
    assert times == [first, first + HOUR]
    assert later.planned_starts == first + HOUR
    assert line is not None
    # An approval now may give an earlier start, which the approver's card names.
    assert f"it starts by {moment_words(first + HOUR, UTC, NOW)} at the latest" in line[1]


def quoted(lab: Lab, now: datetime) -> datetime:
    """The start that a quote names for an hour as soon as possible."""
    with tenant_tx(lab.tenant_id):
        request = a_booking_request(lab.project, an_ask(hours=1))
        return quote_make(actor=lab.actor, request=request, now=now).options[0].starts


def gone_at(pending: Booking, lapse: datetime) -> None:
    """Asserts that the turn at that second, which is due, gives the place up."""
    with as_system():
        assert not is_anything_due(lapse - SECOND)
        assert is_anything_due(lapse)
    cycled(lapse)
    gone = now_of(pending)
    assert (gone.planned_starts, gone.planned_places, gone.place_until) == (None, [], None)
    assert kinds(pending) == ["requested", "approval_requested", "place_kept", "place_lost"]


def test_approved_in_time_it_gets_its_place_and_keeps_its_rank(lab: Lab) -> None:
    lead = an_actor(a_member(lab.project, Role.LEAD))
    window = asked(lab, 4, starts=NOW + 2 * HOUR)
    cycled(NOW)
    rival = asked(lab, 3, now=NOW + SECOND)
    cycled(NOW + SECOND)
    later = now_of(rival).planned_starts
    assert later is not None
    assert later >= NOW + 6 * HOUR
    approved(lead, window, NOW + HOUR)
    # Meanwhile the snapshot that is kept from turn to turn was compared with fresh ones.
    with as_system():
        assert not EventCounter.objects.filter(name__startswith=DRIFT).exists()
    cycled(NOW + HOUR)
    done = now_of(window)
    assert (done.state, done.planned_starts) == (State.SCHEDULED, NOW + 2 * HOUR)
    assert (done.submitted, done.place_until) == (NOW, None)


def test_bounds_of_places_are_a_part_of_the_policy(lab: Lab) -> None:
    assert policy_read({"soft_margin": 900, "soft_gpus": 8}, 1).soft_bounds == ()
    assert policy_read({"soft_margin": 60}, 1).soft_bounds == (60, 8, 10)
    assert policy_values({})["decision_time"] == DECISION_TIME.total_seconds()
    with pytest.raises(ValueError, match="soft_gpus must be a whole number from 1"):
        policy_read({"soft_gpus": 0}, 1)
    a_policy(soft_hold=3600, decision_time=600)
    pending = asked(lab, 4)
    assert (pending.place_from, pending.place_until) == (NOW + HOUR / 6, NOW + HOUR)
