"""A process is killed while a version goes into force; planned starts survive what is activated."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from allocation.models import Booking, PolicyActivation, PolicyVersion
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.invariants import invariants_check
from allocation.services.policy.activations import policy_activate, policy_rollback
from allocation.services.policy.policies import policy_draft
from tenants.models import AuditEntry, Tier
from tests.builders import a_user
from tests.builders_allocation import a_booking_request, a_lab, a_model, a_policy, a_price_book, an_ask
from tests.faults.crashing_cycle import OF_POLICIES, OF_ROLLBACKS
from tests.roles import as_owner, as_system
from tests.servers.servers import ROOT, Servers
from tests.services.plant import Plant, a_plant, fresh

pytestmark = pytest.mark.faults
HOUR = timedelta(hours=1)


@pytest.fixture
def plant(real_db: Servers, tmp_path: Path) -> Iterator[Plant]:
    a_model(enrolled=False)
    a_policy()
    a_price_book()
    with a_plant(tmp_path, gpus=2) as found:
        yield found


def in_an_hour(plant: Plant) -> tuple[int, int]:
    """The live version, and one that goes into force in an hour."""
    with as_owner():  # Workers ask for no version with a scenario.
        first = PolicyVersion.objects.get(state="live").number
        operator = a_user("otto", is_staff=True)
        scenario = {"tiers": {"standard": {"grace_seconds": 77}}}
        document = {"grid": 600, "age_step": 60}
        draft = policy_draft(document=document, scenario=scenario, now=plant.now)
        policy_activate(number=draft.number, now=plant.now, operator_id=operator.pk, starts=plant.now + HOUR)
    return first, draft.number


@pytest.mark.parametrize("point", OF_POLICIES)
def test_a_version_goes_into_force_as_a_whole_or_not_at_all(
    point: str, plant: Plant, real_db: Servers
) -> None:
    first, number = in_an_hour(plant)
    plant.later(HOUR - timedelta(seconds=1))
    grace = _grace()
    _killed(point, plant.now + timedelta(seconds=1), real_db)
    assert _grace() == grace
    with as_system():
        assert PolicyVersion.objects.get(state="live").number == first
        assert PolicyActivation.objects.get(version_id=number).state == "waiting"
    plant.later(timedelta(seconds=2))
    plant.cycle()
    with as_system():
        assert PolicyVersion.objects.get(state="live").number == number
        assert PolicyVersion.objects.get(number=first).state == "retired"
        assert AuditEntry.objects.filter(tenant=None, action="policy.published").count() == 1
        assert invariants_check() == []
    assert _grace() == 77


@pytest.mark.parametrize("point", OF_ROLLBACKS)
def test_a_rollback_under_load_loses_and_double_books_nothing(
    point: str, plant: Plant, real_db: Servers
) -> None:
    """Work runs, waits and is planned while the process that goes back dies, and then goes back again."""
    lab = a_lab("helix", gpus=0)
    grace = _grace()
    first, number = in_an_hour(plant)
    plant.later(HOUR)
    plant.cycle()
    with as_system():
        made = [
            booking_request(
                actor=lab.actor,
                request=a_booking_request(lab.project, an_ask(1 + number % 2, hours=1)),
                now=plant.now,
            )
            for number in range(6)
        ]
    plant.cycle()
    planned = [_planned(each) for each in made]
    _killed(point, plant.now + timedelta(seconds=1), real_db)
    with as_system():
        assert PolicyVersion.objects.get(state="live").number == number
    assert _grace() == 77
    assert [_planned(each) for each in made] == planned
    plant.later(timedelta(seconds=2))
    with as_system():
        policy_rollback(now=plant.now, operator_id=None, reason="Again.")
        assert PolicyVersion.objects.get(state="live").number == first
    assert _grace() == grace
    for _ in range(3):
        plant.cycle()
        with as_system():
            assert invariants_check() == []
            assert Booking.objects.filter(id__in=[each.id for each in made]).count() == len(made)
        plant.later(HOUR)
    assert {fresh(each).state for each in made} <= {"scheduled", "queued", "starting", "active", "ended"}


def test_a_firm_planned_start_survives_activation_and_rollback(plant: Plant) -> None:
    lab = a_lab("helix", gpus=0)
    first, number = in_an_hour(plant)
    with as_system():
        ask = an_ask(2, hours=2, starts=plant.now + 3 * HOUR)
        booking = booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=plant.now)
    plant.cycle()
    planned = _planned(booking)
    assert planned[0] == "scheduled"
    plant.later(HOUR)
    plant.cycle()
    with as_system():
        assert PolicyVersion.objects.get(state="live").number == number
    assert _planned(booking) == planned
    with as_system():
        policy_rollback(now=plant.now, operator_id=None, reason="Late.", number=first)
    plant.cycle()
    assert _planned(booking) == planned


def _planned(booking: Booking) -> tuple[object, ...]:
    row = fresh(booking)
    return row.state, row.planned_starts, row.planned_ends, row.planned_places, row.planned_strength


def _killed(point: str, at: datetime, real_db: Servers) -> None:
    """Runs a process that dies at this point."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.crashing_cycle", point, at.isoformat()],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": real_db.dsn("portal_system")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -9, done.stderr


def _grace() -> int:
    with as_system():
        return Tier.objects.get(slug="standard").grace_seconds
