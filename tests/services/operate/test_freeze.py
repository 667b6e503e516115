"""Frozen decisions: nothing starts, nothing is paused or ended early; what is over ends."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from allocation.models import Booking, Decision, Gpu, Node
from allocation.queries.fleet.portal_modes import decisions_frozen, freeze_reason
from allocation.rules.ask import AskDocument
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_release
from allocation.services.decide.invariants import invariants_check
from allocation.services.operate.drain import node_drain
from allocation.services.operate.portal_modes import FREEZE, freeze_begin, mode_end
from allocation.services.runs.no_shows import presence_watch
from tenants.models import AuditEntry, User
from tenants.platform.errors import Refused
from tests.builders import an_operator
from tests.builders_allocation import Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_system
from tests.services.plant import NAME, Plant, fresh

pytestmark = pytest.mark.turn

WHY = "The power is looked at"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


@pytest.fixture
def operator(plant: Plant) -> User:
    return an_operator()


def booked(plant: Plant, lab: Lab, ask: AskDocument | None = None) -> Booking:
    with as_system():
        return booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=plant.now)


def frozen(plant: Plant, operator: User, length: timedelta | None = None) -> None:
    with as_system():
        freeze_begin(operator=operator, reason=WHY, length=length, now=plant.now)


def thawed(plant: Plant, operator: User) -> None:
    with as_system():
        mode_end(kind=FREEZE, operator=operator, now=plant.now)


def test_bookings_are_taken_and_wait_and_say_why(plant: Plant, lab: Lab, operator: User) -> None:
    due = booked(plant, lab, an_ask(starts=plant.now + MINUTE * 2))
    plant.round()
    assert fresh(due).state == "scheduled"
    frozen(plant, operator)
    asked = booked(plant, lab)
    with as_system():
        decided = Decision.objects.count()
    for _ in range(3):
        plant.later(MINUTE)
    assert plant.cycle().outcome == "frozen"
    assert (fresh(asked).state, fresh(due).state) == ("requested", "scheduled")
    with as_system():
        assert Decision.objects.count() == decided
        reason = freeze_reason(fresh(asked), plant.now)
    assert reason is not None
    assert reason["sentence"].startswith("Decisions have been frozen by an operator since ")
    assert reason["sentence"].endswith(f": {WHY}.")
    thawed(plant, operator)
    plant.round()
    assert (fresh(asked).state, fresh(due).state) == ("active", "active")
    with as_system():
        assert freeze_reason(fresh(asked), plant.now) is None
        assert invariants_check() == []


def test_what_is_over_or_given_back_ends(plant: Plant, lab: Lab, operator: User) -> None:
    short, long = booked(plant, lab, an_ask(hours=0.5)), booked(plant, lab)
    plant.round()
    plant.later(MINUTE)
    assert {fresh(short).state, fresh(long).state} == {"active"}
    frozen(plant, operator)
    with as_system():
        booking_release(actor=lab.actor, booking=long, now=plant.now)
    plant.later(MINUTE)
    assert fresh(long).state == "ended"
    plant.later(MINUTE * 30)
    assert fresh(short).state == "ended"


def test_a_drain_waits_and_broken_hardware_does_not(plant: Plant, lab: Lab, operator: User) -> None:
    booking = booked(plant, lab)
    plant.round()
    plant.later(MINUTE)
    frozen(plant, operator)
    with as_system():
        node_drain(
            operator=operator,
            node=Node.objects.get(name=NAME),
            reason="Fans",
            now=plant.now,
            by=plant.now + MINUTE,
        )
    plant.later(MINUTE * 2)
    assert fresh(booking).state == "active"
    with as_system():
        Gpu.objects.filter(allocation__booking=booking).update(
            health=Gpu.Health.DRAINING, health_reason="Xid 79", drain_by=plant.now
        )
    plant.cycle()
    assert fresh(booking).state == "queued"


def test_nobody_is_a_no_show_meanwhile(
    plant: Plant, lab: Lab, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking = booked(plant, lab)
    plant.round()
    plant.later(MINUTE)
    with as_system():
        Booking.objects.update(absent_seconds=7200, absent_until=plant.now)
    frozen(plant, operator)
    with as_system():
        assert presence_watch(plant.now) == 0
    thawed(plant, operator)
    with as_system():
        assert presence_watch(plant.now) == 1
    assert fresh(booking).outcome == "no_show"


def test_it_ends_by_itself_when_it_was_told_to(plant: Plant, lab: Lab, operator: User) -> None:
    frozen(plant, operator, MINUTE * 10)
    asked = booked(plant, lab)
    plant.later(MINUTE * 9)
    assert fresh(asked).state == "requested"
    plant.later(MINUTE)
    plant.later(MINUTE)
    assert fresh(asked).state == "active"


@pytest.mark.django_db
def test_the_command_and_its_record() -> None:
    operator, said = an_operator(), StringIO()
    with as_system():
        call_command("freeze", "begin", reason=WHY, operator=operator.username, stdout=said)
        assert WHY in said.getvalue()
        assert decisions_frozen(timezone.now()) is not None
        call_command("freeze", "end", operator=operator.username, stdout=said)
        assert said.getvalue().endswith("Decisions are not frozen.\n")
        found = AuditEntry.objects.filter(action__startswith="freeze.").order_by("id")
        assert list(found.values_list("action", flat=True)) == ["freeze.begun", "freeze.ended"]
        for wrong in (
            {"reason": "", "operator": operator.username},
            {"reason": WHY, "operator": operator.username, "length": "soon"},
            {"reason": WHY, "operator": operator.username, "length": "999999999999999d"},
            {"reason": WHY, "operator": "nobody"},
        ):
            with pytest.raises(CommandError):
                call_command("freeze", "begin", **wrong)
        with pytest.raises(Refused):
            freeze_begin(operator=operator, reason=WHY, length=timedelta(days=31), now=timezone.now())
