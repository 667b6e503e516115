"""The guard of a version: what leaves its band brings the version before back, and the log says why."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from allocation.features.policy_lab.guard_figures import Span, measured
from allocation.features.policy_lab.guards import guard_check
from allocation.features.policy_lab.models import PolicyTrial
from allocation.models import Booking, PolicyActivation, PolicyVersion
from allocation.rules.states import State
from allocation.services.policy.activations import policy_rollback
from billing.services import hold_settle
from portal.integrations.mail.message import section_of
from portal.integrations.relay import outbox_relay
from tenants.models import AuditEntry, Mail, Notification, User
from tests.api.builders import Site, a_site, said
from tests.builders_allocation import a_booking
from tests.roles import as_owner, as_role, as_system

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
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
        entry = AuditEntry.objects.get(tenant=None, action="policy.returned")
    assert (made.kind, made.former_id, made.reason) == ("return", number, f"Guard: {why}")
    assert entry.detail["after"]["reason"] == f"Guard: {why}"
    assert checked(2 * HOUR) == "", "the version before has no guard"


def test_a_band_may_be_a_part_of_the_week_before(site: Site) -> None:
    number = guarded(site, {"figure": "pauses", "most_percent": 100})
    assert (checked(), live()) == ("", number)
    again = guarded_again(site, {"figure": "wait_p95", "tier": "standard", "most_percent": 150})
    waits(site, since=9 * HOUR)
    assert (checked(), live()) == ("", again), "nobody waited a week before, so there is no band"


def test_operators_are_notified_of_a_return_by_inbox_and_mail(site: Site, settings: Settings) -> None:
    settings.MAIL_ON = True
    with as_owner():
        User.objects.filter(username="otto").update(email="otto@example.org")
    number = guarded(site, {"figure": "wait_p95", "tier": "standard", "most": 3_600})
    waits(site, since=3 * HOUR)
    why = checked()
    with as_system():
        outbox_relay(NOW)
        entry = Notification.objects.get(kind="policy_guard.returned")
        (mail,) = Mail.objects.filter(kind="policy_guard.returned")
        section = section_of(mail, NOW)
    assert (entry.user_id, entry.path) == (site.people["operator"].pk, f"/ops/policy/versions/{number}")
    assert section is not None
    assert section.headline == f"Policy version {number} was taken back"
    assert why in section.sentences[0]
    assert "Version 1 is in force again." in section.sentences[0]


def test_a_version_for_a_part_is_judged_by_that_part(site: Site) -> None:
    figure = {"figure": "wait_p95", "tier": "standard", "most": 3_600}
    number = said(site.operator.post("policy/versions", {"document": {"patience": 600}}))["number"]
    body = {"waiver": "I am alone.", "guard": {"figures": [figure]}, "classes": ["h100"]}
    assert site.operator.post(f"policy/versions/{number}/activate", body).status_code == 201
    waits(site, since=3 * HOUR)
    with as_owner():
        Booking.objects.update(ask={"classes": ["a100"], "count": 1})
    assert checked() == ""
    with as_owner():
        Booking.objects.update(ask={"classes": ["h100", "a100"], "count": 1})
    assert "wait_p95 of standard in h100 is 14" in checked()
    assert live() == 1


def test_a_band_may_be_a_part_of_what_the_trial_forecast(site: Site) -> None:
    number = said(site.operator.post("policy/versions", {"document": {"grid": 600}}))["number"]
    report = {
        "begins": 0,
        "ends": 2 * 86_400,
        "tiers": [{"name": "standard", "candidate": {"p95": 5_000}}],
        "tenants": [{"candidate": {"money": 80_000_000}}, {"candidate": {"money": 20_000_000}}],
        "totals": {"active": {"pauses": 4}, "candidate": {"pauses": 5, "guarantees_missed": 0}},
        "bookings": 9,
        "differs": {"longer": 1, "shorter": 0},
    }
    with as_system():
        version = PolicyVersion.objects.get(number=number)
        PolicyTrial.objects.create(
            candidate=version,
            against_id=1,
            days=2,
            seeds=1,
            until=NOW,
            asked_at=NOW,
            state="done",
            finished_at=NOW,
            report=report,
        )
    names = ("pauses", "guarantees_missed", "spend")
    figures = [{"figure": name, "most_percent_of_trial": 100} for name in names]
    figures += [{"figure": "wait_p95", "tier": "standard", "most_percent_of_trial": 200}]
    body = {"waiver": "I am alone.", "guard": {"figures": figures}}
    made = said(site.operator.post(f"policy/versions/{number}/activate", body))
    assert [row["forecast"] for row in made["guard"]["figures"]] == [3, 0, 50, 5_000]
    waits(site, since=timedelta(hours=1))
    assert (checked(), live()) == ("", number)
    waits(site, since=3 * HOUR)
    assert "10000, 200 % of the 5000 that its trial forecast" in checked()


def test_missed_guarantees_and_spend_are_those_of_the_last_day(site: Site) -> None:
    span = Span(NOW - timedelta(days=1), NOW)
    figures = {name: {"figure": name, "tier": ""} for name in ("guarantees_missed", "spend")}
    waits(site, since=2 * HOUR)
    with as_owner():
        Booking.objects.update(claimed_from=NOW - HOUR)
        booking = Booking.objects.get()
    with as_system():
        assert measured(figures["guarantees_missed"], span) == 1
        early = Span(NOW - timedelta(days=1), NOW - timedelta(minutes=50))
        assert measured(figures["guarantees_missed"], early) == 0
        elsewhere = Span(span.since, span.until, classes=("none",))
        assert measured(figures["guarantees_missed"], elsewhere) == 0
        assert measured(figures["spend"], span) == 0
        at, amount = NOW - HOUR, Decimal(7)
        hold_settle(tenant_id=booking.tenant_id, reference=booking.id, amount=amount, now=at)
        assert measured(figures["spend"], span) == 7
        assert measured(figures["spend"], Span(NOW - timedelta(minutes=5), NOW)) == 0


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
    with as_role("portal_ops"):
        policy_rollback(now=NOW + HOUR, operator_id=None, reason="By hand.")
    assert (checked(HOUR), live()) == ("", 1)


@pytest.mark.parametrize(
    "guard",
    [
        {"figures": []},
        {"figures": [{"figure": "wait_p95", "tier": "standard"}]},
        {"figures": [{"figure": "wait_p95", "most": 60}]},
        {"figures": [{"figure": "wait_p95", "tier": "gold", "most": 60}]},
        {"figures": [{"figure": "pauses", "most_percent_of_trial": 100}]},
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
