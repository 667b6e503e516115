"""A process is killed while a version goes into force; planned starts survive what is activated."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from allocation.models import Booking, PolicyActivation, PolicyVersion
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.invariants import invariants_check
from allocation.services.policy.activations import policy_activate, policy_rollback
from allocation.services.policy.policies import policy_draft
from tenants.models import AuditEntry
from tests.builders import a_user
from tests.builders_allocation import a_booking_request, a_lab, a_model, a_policy, a_price_book, an_ask
from tests.faults.crashing_cycle import OF_POLICIES
from tests.roles import as_system
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
    with as_system():
        first = PolicyVersion.objects.get(state="live").number
        operator = a_user("otto", is_staff=True)
        draft = policy_draft(document={"grid": 600, "age_step": 60}, now=plant.now)
        policy_activate(number=draft.number, now=plant.now, operator_id=operator.pk, starts=plant.now + HOUR)
    return first, draft.number


@pytest.mark.parametrize("point", OF_POLICIES)
def test_a_version_goes_into_force_as_a_whole_or_not_at_all(
    point: str, plant: Plant, real_db: Servers
) -> None:
    first, number = in_an_hour(plant)
    plant.later(HOUR - timedelta(seconds=1))
    at = plant.now + timedelta(seconds=1)
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
    with as_system():
        assert PolicyVersion.objects.get(state="live").number == first
        assert PolicyActivation.objects.get(version_id=number).state == "waiting"
    plant.later(timedelta(seconds=2))
    plant.cycle()
    with as_system():
        assert PolicyVersion.objects.get(state="live").number == number
        assert PolicyVersion.objects.get(number=first).state == "retired"
        assert AuditEntry.objects.filter(action="policy.published").count() == 1
        assert invariants_check() == []


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
