"""A candidate in shadow: stored decisions are decided again, what differs is kept, nobody sees it."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client

from allocation.features.policy_lab.models import PolicyShadow, PolicyShadowDifference
from allocation.features.policy_lab.shadows import (
    Kind,
    ShadowTerms,
    differences,
    shadow_begin,
    shadows_due,
    shadows_run,
    sums_by_tenant,
)
from allocation.models import Booking, Decision, PolicyVersion
from allocation.services.bookings.creation import booking_request
from allocation.services.policy.activations import policy_activate
from allocation.services.policy.policies import policy_draft
from solver import Snapshot, solve
from solver.model.policy import Policy
from tests.api.builders import Site, a_site, said
from tests.builders import a_user
from tests.builders_allocation import a_booking_request, a_lab, a_model, a_policy, a_price_book, an_ask
from tests.features.policy_lab.test_play import HOUR, a_past
from tests.features.policy_lab.test_play import a_site as a_snapshot
from tests.roles import as_owner, as_role, as_system
from tests.servers.servers import Servers
from tests.services.plant import Plant, a_plant


@pytest.fixture
def plant(real_db: Servers, tmp_path: Path) -> Iterator[Plant]:
    a_model(enrolled=False)
    a_policy()
    a_price_book()
    with a_plant(tmp_path, gpus=2) as found:
        yield found


def shadowed(plant: Plant, every: int = 1, **document: object) -> PolicyShadow:
    with as_system():
        number = policy_draft(document=document, now=plant.now).number
    with as_role("portal_ops"):
        return shadow_begin(number=number, terms=ShadowTerms(every=every), operator_id=None, now=plant.now)


def asked(plant: Plant, *, count: int = 2) -> list[Booking]:
    """Bookings that have to wait for each other."""
    lab = a_lab("helix", gpus=0)
    with as_system():
        return [
            booking_request(actor=lab.actor, request=a_booking_request(lab.project, an_ask(2)), now=plant.now)
            for _ in range(count)
        ]


def fresh(shadow: PolicyShadow) -> PolicyShadow:
    with as_system():
        return PolicyShadow.objects.get(id=shadow.id)


def test_a_candidate_equal_to_the_live_version_differs_nowhere(plant: Plant) -> None:
    shadow = shadowed(plant)
    asked(plant)
    plant.cycle()
    with as_system():
        rows = Booking.objects.order_by("id").values_list("id", "state", "planned_starts", "version")
        before, count = list(rows), Decision.objects.count()
        assert count > 0
        assert shadows_run(lambda: plant.now) == 1
        assert list(rows) == before, "it acts on nothing"
        assert Decision.objects.count() == count
        assert not PolicyShadowDifference.objects.exists()
    found = fresh(shadow)
    assert (found.decided, found.differing, found.failed) == (1, 0, 0)


def test_what_differs_is_kept_by_organisation_and_it_rests_afterwards(plant: Plant) -> None:
    shadow = shadowed(plant, horizon=3_600)
    both = asked(plant)
    plant.cycle()
    with as_system():
        assert shadows_run(lambda: plant.now) == 1
        found = fresh(shadow)
        assert (found.decided, found.differing) == (1, 1)
        assert found.next_at - plant.now >= timedelta(milliseconds=4 * found.took_ms - 4)
        kept = PolicyShadowDifference.objects.get(shadow=shadow)
        assert kept.booking_id in {each.id for each in both}
        assert (kept.kind, kept.times, kept.rule) == ("refused", 1, "no_room_in_horizon")
        assert kept.active_starts is not None
        assert kept.active_starts > plant.now
        (row,) = sums_by_tenant(shadow)
        assert (row["tenant"], row["refused"], row["later"]) == ("helix", 1, 0)
        assert not shadows_due(found.next_at - timedelta(microseconds=1)).exists()
        assert shadows_run(lambda: plant.now + timedelta(hours=1)) == 0, "there is no new decision"


def test_only_each_n_th_decision_is_decided_and_a_live_version_ends_its_shadow(plant: Plant) -> None:
    shadow = shadowed(plant, every=2, grid=600)
    asked(plant, count=1)
    plant.cycle()
    later = plant.now + timedelta(hours=1)
    with as_system():
        assert Decision.objects.count() == 1
        assert shadows_run(lambda: later) == 0
    asked_again = a_lab("northlab", gpus=0)
    with as_system():
        booking_request(
            actor=asked_again.actor,
            request=a_booking_request(asked_again.project, an_ask(1)),
            now=plant.now,
        )
    plant.cycle()
    with as_system():
        assert Decision.objects.count() == 2
        assert shadows_run(lambda: later + timedelta(minutes=1)) == 1
        olga = a_user("olga", is_staff=True)
    with as_owner():
        policy_activate(number=shadow.version_id, now=plant.now, operator_id=olga.pk)
    with as_system():
        assert PolicyVersion.objects.get(state="live").number == shadow.version_id
        assert shadows_run(lambda: later + timedelta(hours=1)) == 0
    assert fresh(shadow).ended_at is not None


def test_a_decision_that_can_not_be_read_is_counted_and_the_next_one_decided(plant: Plant) -> None:
    shadow = shadowed(plant)
    asked(plant, count=1)
    plant.cycle()
    with as_system():
        PolicyVersion.objects.create(number=77, document={"gone": 1}, state="draft", created=plant.now)
        PolicyShadow.objects.filter(id=shadow.id).update(version=77)
        assert shadows_run(lambda: plant.now) == 1
    found = fresh(shadow)
    assert (found.failed, found.decided) == (1, 0)
    assert "gone" in found.note


def test_plans_are_compared_booking_by_booking() -> None:
    site = a_snapshot(sure=4)
    requests = tuple(a_past(n, n, count=3).request for n in range(2))
    snapshot = Snapshot(
        **{
            each: getattr(site, each)
            for each in ("now", "models", "gpus", "held", "extensions", "limits", "tiers")
        },
        requests=requests,
    )
    active = solve(snapshot, Policy(1))
    assert list(differences(active, active)) == []
    (refused,) = differences(active, solve(snapshot, Policy(2, horizon=HOUR)))
    assert (refused.booking, refused.kind, refused.candidate) == ("b001", Kind.REFUSED, None)
    (taken,) = differences(solve(snapshot, Policy(2, horizon=HOUR)), active)
    assert (taken.booking, taken.kind) == ("b001", Kind.TAKEN)
    (later,) = differences(active, solve(snapshot, Policy(2, plan_depth=1)))
    assert (later.kind, later.active) == (Kind.LATER, refused.active)


@pytest.mark.django_db
def test_rest_and_pages_begin_show_and_end_a_shadow(client: Client) -> None:
    site: Site = a_site()
    number = said(site.operator.post("policy/versions", {"document": {"grid": 600}}))["number"]
    address = f"policy/versions/{number}/shadow"
    assert said(site.operator.get(address))["code"] == "not_found"
    begun = site.operator.post(address, {"every": 3})
    assert begun.status_code == 201
    assert (said(begun)["every"], said(begun)["tenants"], said(begun)["differences"]) == (3, [], [])
    assert said(site.operator.get(f"policy/versions/{number}"))["state"] == "shadow"
    assert said(site.operator.post(address, {}))["code"] == "already_in_shadow"
    assert said(site.operator.post("policy/versions/1/shadow", {}))["code"] == "shadow_live"
    assert site.operator.post(address, {"each": 3}).status_code == 400
    for who in (site.admin, site.outsider):
        assert said(who.get(address))["code"] == "not_allowed"
        assert said(who.post(address, {}))["code"] == "not_allowed"
    client.force_login(site.people["operator"])
    page = f"/ops/policy/versions/{number}"
    assert "In the shadow of today" in client.get(page).content.decode()
    client.post(page, {"act": "shadow-end"})
    assert said(site.operator.get(address))["ended_at"] is not None
    assert said(site.operator.post(f"{address}/end"))["code"] == "not_in_shadow"
    client.post(page, {"act": "shadow", "every": "1"})
    with as_system():
        assert PolicyShadow.objects.filter(ended_at=None).count() == 1
