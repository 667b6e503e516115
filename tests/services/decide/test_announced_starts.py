"""What is announced about planned starts, and what a plan stores of strengths and grants."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from allocation.models import Booking, BookingEvent, Decision, Gpu, MovedStart
from allocation.services.bookings.change.changes import booking_extend
from allocation.services.plans.announced_starts import PlannedAnew, start_announce
from allocation.services.snapshot.snapshot import seconds, snapshot_take
from solver import Place, Plan, Waiting
from solver.model.inputs import AFTER_ALL, Strength
from solver.reasons.reason import reason
from tenants.models import OutboxMessage
from tenants.platform.wall import tenant_tx
from tenants.rules.notifications import TYPE_OF_KIND
from tests.builders_allocation import HOUR, NOW, Lab, a_booking, a_lab, an_ask
from tests.builders_pauses import a_decision
from tests.roles import as_system
from tests.services.pause_plans import plan_written
from tests.services.paused import noticed, requested, running, story
from tests.services.plant import Plant, fresh, rows_of

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)
OVERTAKEN = reason("overtaken", rule="guarantee", own_tenant=0)


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


def planned(booking: Booking, starts: datetime, strength: Strength, *, late: bool = False) -> None:
    """A plan that keeps the booking waiting until `starts`, `late` because it was overtaken."""
    with as_system():
        gpu = Gpu.objects.earliest("number")
    begin = seconds(starts)
    row = Waiting(
        str(booking.id),
        "h100",
        (Place(str(gpu.id), None, 0, 8),),
        begin,
        begin + booking.duration_seconds,
        (),
        OVERTAKEN if late else None,
        strength,
    )
    plan_written(Plan(assigns=(), waits=(row,), refusals=(), extensions=()), NOW)


def announced(booking: Booking) -> tuple[float, float, str | None]:
    """Hours from now to both ends of the range that was announced, and the strength."""
    booking = fresh(booking)
    assert booking.announced_from is not None
    assert booking.announced_until is not None
    hours = [(moment - NOW) / HOUR for moment in (booking.announced_from, booking.announced_until)]
    return hours[0], hours[1], booking.planned_strength


def receipts() -> list[MovedStart]:
    with as_system():
        return list(MovedStart.objects.all())


def messages() -> list[str]:
    with as_system():
        return list(OutboxMessage.objects.order_by("id").values_list("kind", flat=True))


def test_one_message_and_one_receipt_when_a_start_leaves_the_range(plant: Plant, lab: Lab) -> None:
    booking = requested(plant, lab)
    planned(booking, NOW + 8 * HOUR, "expected")
    assert announced(booking) == (8, 10, "expected")

    planned(booking, NOW + 9 * HOUR + 59 * MINUTE, "expected", late=True)
    assert story(booking) == ["requested", "queued"], "still in the range"
    assert messages()[-1] == "booking.replanned", "open pages show the present plan"
    assert (announced(booking), receipts()) == ((8, 10, "expected"), [])

    planned(booking, NOW + 12 * HOUR, "expected", late=True)
    assert story(booking) == ["requested", "queued", "delayed"]
    assert messages()[-1] == "booking.delayed"
    assert "booking.delayed" in TYPE_OF_KIND, "people are notified"
    assert announced(booking) == (12, 15, "expected")
    (receipt,) = receipts()
    assert (receipt.rule, receipt.overtaken_by, receipt.is_own) == ("R100", "guarantee", False)
    assert (receipt.was_from, receipt.was_until) == (NOW + 8 * HOUR, NOW + 10 * HOUR)
    assert (receipt.now_from, receipt.now_until) == (NOW + 12 * HOUR, NOW + 15 * HOUR)
    with as_system():
        event = BookingEvent.objects.latest("id")
        decision = Decision.objects.latest("id")
    assert receipt.decision_id == decision.id
    assert event.text == (
        "Its planned start is later now. A booking inside another organisation's guarantee goes first."
    )
    assert (event.starts, event.latest) == (NOW + 12 * HOUR, NOW + 15 * HOUR)
    assert (event.was, event.was_latest) == (NOW + 8 * HOUR, NOW + 10 * HOUR)

    planned(booking, NOW + 4 * HOUR, "expected")
    assert story(booking)[3:] == ["moved"]
    assert (announced(booking), len(receipts())) == ((4, 5, "expected"), 1)


def test_a_start_that_is_worth_more_is_announced_without_slack(plant: Plant, lab: Lab) -> None:
    booking = requested(plant, lab)
    planned(booking, NOW + 8 * HOUR, "expected")
    planned(booking, NOW + 8 * HOUR, "guaranteed")
    assert announced(booking) == (8, 8, "guaranteed")
    assert story(booking) == ["requested", "queued"]
    planned(booking, NOW + 8 * HOUR, "expected")
    assert announced(booking) == (8, 8, "expected"), "what was announced stays, until a message says more"
    planned(booking, NOW + 9 * HOUR, "expected", late=True)
    assert announced(booking) == (9, 11 + 1 / 4, "expected")
    assert [each.strength for each in receipts()] == ["expected"]
    plant.round()
    assert fresh(booking).state == "active"
    assert announced(booking) == (0, 0, "firm")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("pausing", ["", ""]),
        ("paused", ["It is planned to resume later now.", "It is planned to resume earlier now."]),
        ("queued", ["Its planned start is later now.", "Its planned start is earlier now."]),
    ],
)
def test_a_paused_booking_is_said_to_resume_and_a_running_one_says_nothing(
    plant: Plant, lab: Lab, state: str, words: list[str]
) -> None:
    said = []
    booking = requested(plant, lab)
    booking.state, booking.planned_strength = state, "guaranteed"
    booking.announced_from = booking.announced_until = NOW + 8 * HOUR
    for hours in (12, 4):
        plan = PlannedAnew(NOW + hours * HOUR, "guaranteed")
        with as_system():
            news = start_announce(booking, plan, Decision(), NOW)
        assert news.facts["announced_from"] == NOW + hours * HOUR
        said.append(str(news.event.sentence) if news.event else "")
    assert said == words


def test_a_start_that_waits_for_gpus_to_clear_is_on_time(plant: Plant, lab: Lab) -> None:
    booking = requested(plant, lab)
    planned(booking, NOW + 8 * HOUR, "guaranteed")
    planned(booking, NOW + 8 * HOUR + MINUTE, "firm", late=True)
    assert (announced(booking), receipts()) == ((8, 8, "firm"), [])
    assert fresh(booking).planned_starts == NOW + 8 * HOUR + MINUTE
    assert story(booking) == ["requested", "queued"]
    # The minute counts from what was announced, so that small delays do not add up unseen.
    planned(booking, NOW + 8 * HOUR + MINUTE + MINUTE / 60, "firm", late=True)
    assert story(booking) == ["requested", "queued", "delayed"]
    assert [each.was_until for each in receipts()] == [NOW + 8 * HOUR]


def test_an_assignment_later_than_announced_is_a_message_too(plant: Plant, lab: Lab) -> None:
    first = running(plant, lab)
    booking = requested(plant, lab, an_ask(2))
    planned(booking, NOW + MINUTE, "firm")
    plant.cycle()
    assert fresh(booking).planned_starts == fresh(first).planned_ends
    assert "delayed" in story(booking)
    assert [each.was_until for each in receipts()] == [NOW + MINUTE]


def test_rows_have_the_grant_of_the_decision_that_wrote_them(plant: Plant, lab: Lab) -> None:
    booking = running(plant, lab, an_ask(1))
    (row,) = rows_of(booking)
    assert (row.granted_cycle, row.preemptor) == (row.decision_id, False)
    with as_system():
        booking_extend(actor=lab.actor, booking=booking, until=NOW + 3 * HOUR, now=plant.now)
    plant.cycle()
    (row,) = rows_of(booking)
    extended = row.extended_cycle
    with as_system():
        decision = Decision.objects.latest("id")
    assert extended is not None
    assert extended == decision.id > (row.granted_cycle or 0)
    assert row.extended_from == NOW + 2 * HOUR
    with as_system():
        before = snapshot_take(NOW + HOUR).held[0].granted
        after = snapshot_take(NOW + 2 * HOUR).held[0].granted
        used = snapshot_take(NOW + HOUR).used
    assert before == (row.granted_cycle, row.granted_position)
    assert after == (extended, AFTER_ALL), "the added time is a grant of its own"
    assert {each.owner for each in used} == {str(lab.actor.user_id)}


def test_a_row_remembers_that_others_were_paused_for_it(plant: Plant, lab: Lab) -> None:
    victim = running(plant, lab)
    strong = noticed(plant, victim, a_lab("rival", gpus=0))
    assert {row.preemptor for row in rows_of(strong)} == {True}
    assert {row.preemptor for row in rows_of(victim)} == {False}
    with as_system():
        held = {row.booking: row.preemptor for row in snapshot_take(plant.now).held}
    assert held == {str(strong.id): True, str(victim.id): False}


def test_the_snapshot_has_the_strength(plant: Plant, lab: Lab) -> None:
    booking = requested(plant, lab)
    planned(booking, NOW + 8 * HOUR, "guaranteed")
    with as_system():
        start = snapshot_take(NOW).requests[0].planned
    assert start is not None
    assert start.strength == "guaranteed"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "facts",
    [
        {"planned_strength": "firm", "planned_starts": None},
        {"planned_strength": "certain"},
        {"announced_from": NOW, "announced_until": None},
        {"announced_from": NOW + HOUR, "announced_until": NOW},
    ],
)
def test_the_database_refuses_what_makes_no_sense(facts: dict[str, Any]) -> None:
    own = a_lab("helix")
    booking = a_booking(own.project, own.actor.user_id, state="queued")
    with as_system(), pytest.raises(DatabaseError), transaction.atomic():
        Booking.objects.filter(id=booking.id).update(**facts)


@pytest.mark.django_db
def test_a_receipt_is_of_one_tenant_names_no_other_and_stays() -> None:
    own, other = a_lab("helix"), a_lab("north", gpus=0)
    booking = a_booking(own.project, own.actor.user_id, state="queued")
    theirs = a_booking(other.project, other.actor.user_id, state="queued")
    facts: dict[str, Any] = {
        "tenant_id": own.tenant_id,
        "booking": booking,
        "at": NOW,
        "decision": a_decision(NOW),
        "was_from": NOW,
        "was_until": NOW,
        "now_from": NOW + HOUR,
        "now_until": NOW + HOUR,
        "strength": "expected",
        "rule": "R100",
        "overtaken_by": "tier",
        "is_own": True,
        "reason": {},
    }
    with as_system():
        for wrong in (
            {"claimant": theirs},
            {"is_own": False, "claimant": booking},
            {"now_from": NOW},
        ):
            with pytest.raises(DatabaseError), transaction.atomic():
                MovedStart.objects.create(**{**facts, **wrong})
        MovedStart.objects.create(**facts)
        with pytest.raises(DatabaseError), transaction.atomic():
            MovedStart.objects.update(rule="R31")
    with tenant_tx(other.tenant_id):
        assert not MovedStart.objects.exists()
    with tenant_tx(own.tenant_id):
        assert MovedStart.objects.count() == 1
        with pytest.raises(DatabaseError), transaction.atomic():
            MovedStart.objects.create(**facts)
