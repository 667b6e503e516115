"""The guard of a version: what leaves its band brings the version before back, and the log says why."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from allocation.features.policy_lab.guards import guard_check
from allocation.models import Booking, PolicyActivation, PolicyVersion
from allocation.rules.states import State
from allocation.services.policy.activations import policy_rollback
from tenants.models import AuditEntry
from tests.api.builders import Site, a_site, said
from tests.builders_allocation import a_booking
from tests.roles import as_owner, as_system

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
NOW = timezone.now()


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


def guarded(site: Site, *figures: dict[str, Any], hours: int = 24) -> int:
    """A version that is in force with this guard."""
    number: int = said(site.operator.post("policy/versions", {"document": {"victim_rules": []}}))["number"]
    body = {"waiver": "I am alone.", "guard": {"figures": list(figures), "hours": hours}}
    made = site.operator.post(f"policy/versions/{number}/activate", body)
    assert made.status_code == 201, made.content
    assert said(made)["guard"]["hours"] == hours
    return number


def waits(site: Site, *, since: timedelta, state: State = State.QUEUED, tier: str = "standard") -> None:
    booking = a_booking(site.project, site.people["researcher"].pk, state=state, now=NOW)
    with as_owner():
        Booking.objects.filter(id=booking.id).update(
            tier=tier, starts=None, submitted=NOW - since, not_before=NOW - since
        )


def live() -> int:
    with as_system():
        return PolicyVersion.objects.get(state="live").number


def checked(after: timedelta = HOUR) -> str:
    with as_system():
        return guard_check(NOW + after)


def test_a_candidate_that_starves_a_tier_is_taken_back(site: Site) -> None:
    number = guarded(site, {"figure": "wait_p95", "tier": "standard", "most": 2 * 3_600})
    assert checked() == ""
    waits(site, since=timedelta(0))
    assert checked() == ""
    waits(site, since=3 * HOUR, tier="spot")
    assert (checked(), live()) == ("", number)
    waits(site, since=3 * HOUR)
    why = checked()
    assert why.startswith("wait_p95 of standard is 14")
    assert live() == 1
    with as_system():
        made = PolicyActivation.objects.latest("id")
        entry = AuditEntry.objects.get(action="policy.returned")
    assert (made.kind, made.former_id, made.reason) == ("return", number, f"Guard: {why}")
    assert entry.detail["after"]["reason"] == f"Guard: {why}"
    assert checked(2 * HOUR) == "", "the version before has no guard"


def test_a_band_may_be_a_part_of_the_week_before(site: Site) -> None:
    number = guarded(site, {"figure": "pauses", "most_percent": 100})
    assert (checked(), live()) == ("", number)
    again = guarded_again(site, {"figure": "wait_p95", "tier": "standard", "most_percent": 150})
    waits(site, since=9 * HOUR)
    assert (checked(), live()) == ("", again), "nobody waited a week before, so there is no band"


def guarded_again(site: Site, figure: dict[str, Any]) -> int:
    number: int = said(site.operator.post("policy/versions", {"document": {"grid": 600}}))["number"]
    body = {"waiver": "I am alone.", "guard": {"figures": [figure]}}
    assert site.operator.post(f"policy/versions/{number}/activate", body).status_code == 201
    return number


def test_a_guard_ends_with_its_hours_and_with_its_version(site: Site) -> None:
    figure = {"figure": "wait_p95", "tier": "standard", "most": 60}
    number = guarded(site, figure, hours=2)
    waits(site, since=3 * HOUR)
    assert (checked(3 * HOUR), live()) == ("", number)
    with as_system():
        policy_rollback(now=NOW + HOUR, operator_id=None, reason="By hand.")
    assert (checked(HOUR), live()) == ("", 1)


@pytest.mark.parametrize(
    "guard",
    [
        {"figures": []},
        {"figures": [{"figure": "wait_p95", "tier": "standard"}]},
        {"figures": [{"figure": "wait_p95", "most": 60}]},
        {"figures": [{"figure": "wait_p95", "tier": "gold", "most": 60}]},
        {"figures": [{"figure": "pauses", "most": 6, "most_percent": 100}]},
        {"figures": [{"figure": "luck", "most": 6}]},
        {"figures": [{"figure": "pauses", "most": -1}]},
        {"figures": [{"figure": "pauses", "most": 6, "band": 7}]},
        {"figures": [{"figure": "pauses", "most": 6}], "days": 2},
        {"figures": [{"figure": "pauses", "most": 6}], "hours": 0},
        {},
    ],
)
def test_a_guard_that_can_not_watch_is_refused(site: Site, guard: dict[str, Any]) -> None:
    number = said(site.operator.post("policy/versions", {"document": {"grid": 600}}))["number"]
    body = {"waiver": "I am alone.", "guard": guard}
    answer = site.operator.post(f"policy/versions/{number}/activate", body)
    assert answer.status_code in (400, 422), answer.content
    assert live() == 1
