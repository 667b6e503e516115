"""Scenarios: a version that sets tiers, quotas and prices, too, all of it or nothing, and takes it back."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from allocation.features.policy_lab.history import history_with
from allocation.features.policy_lab.plays.past import History
from allocation.models import PolicyActivation, PolicyVersion
from allocation.services.decide.cycle import tick_run
from allocation.services.policy.activations import policy_activate, policy_rollback
from allocation.services.policy.scenario_sites import scenario_site
from allocation.services.policy.scenarios import scenario_lines, scenario_read
from billing.models import PriceBook
from billing.peak_text import peak_hours_text
from billing.price_books import current_prices, peak_prices_of
from tenants.models import AuditEntry, Quota, Tenant, Tier
from tenants.platform.errors import Refused
from tests.api.builders import Site, a_site, said
from tests.features.policy_lab.test_play import a_past
from tests.features.policy_lab.test_play import a_site as a_played_site
from tests.roles import as_owner, as_role, as_system
from tests.solver.builders import a_limit

# Later than any day on which the tests run: prices of the site are valid from that day on.
NOW = datetime(2096, 11, 30, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


def scenario_of(site: Site, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    slug = site.project.tenant.slug
    return {
        "tiers": {"spot": {"grace_seconds": 77}},
        "quotas": [{"tenant": slug, "gpu_class": "h100", "weight": 7, "lend_limit_units": 0}],
        "prices": [{"gpu_class": "h100", "tier": "standard", "per_gpu_hour": "9.50"}],
    } | more


def drafted(site: Site, scenario: dict[str, Any], **document: object) -> int:
    answer = site.operator.post("policy/versions", {"document": document, "scenario": scenario})
    assert answer.status_code == 201, answer.content
    number: int = said(answer)["number"]
    return number


def values(site: Site) -> tuple[int, int, int | None, Decimal]:
    with as_system():
        quota = Quota.objects.get(tenant=site.project.tenant, project=None, gpu_class="h100")
        grace = Tier.objects.get(slug="spot").grace_seconds
        price = current_prices(NOW + timedelta(days=300))["h100", "standard"].per_gpu_hour
        return grace, quota.weight, quota.lend_limit_units, price


def activated(site: Site, number: int, now: datetime = NOW, **more: Any) -> PolicyActivation:  # noqa: ANN401
    with as_role("portal_ops"):
        by = site.people["operator"].pk
        return policy_activate(number=number, now=now, operator_id=by, waiver="I am alone.", **more)


@pytest.mark.django_db
def test_all_parts_are_applied_in_one_act_and_taken_back_in_one(site: Site) -> None:
    before = values(site)
    number = drafted(site, scenario_of(site), grid=600)
    assert values(site) == before, "a draft sets nothing"
    with as_system():
        lines = scenario_lines(PolicyVersion.objects.get(number=number).scenario)
    assert f"spot, grace seconds: {before[0]} to 77" in lines
    assert f"{site.project.tenant.slug}/h100, most GPUs lent: none to 0" in lines
    made = activated(site, number)
    assert values(site) == (77, 7, 0, Decimal("9.5"))
    assert len(made.applied) == 4
    with as_role("portal_ops"):
        back = policy_rollback(now=NOW + HOUR, operator_id=None, reason="Dear.")
    assert (back.in_force_id, values(site)) == (1, before)
    with as_role("portal_ops"):
        policy_rollback(now=NOW + 2 * HOUR, operator_id=None, reason="Again.", number=number)
    assert values(site) == (77, 7, 0, Decimal("9.5"))


@pytest.mark.django_db
def test_what_somebody_has_set_since_is_left_as_it_is(site: Site) -> None:
    before = values(site)
    activated(site, drafted(site, scenario_of(site)))
    with as_role("portal_ops"):
        Tier.objects.filter(slug="spot").update(grace_seconds=99)
        policy_rollback(now=NOW + HOUR, operator_id=None, reason="Dear.")
    assert values(site) == (99, *before[1:])


@pytest.mark.django_db
def test_none_is_applied_where_one_can_not_be(site: Site) -> None:
    """The guarantee is below what projects are promised by the time at which the version is due."""
    slug = site.project.tenant.slug
    row = {"tenant": slug, "gpu_class": "h100", "guaranteed_units": 0}
    with as_system():
        Quota.objects.filter(tenant=site.project.tenant).exclude(project=None).update(guaranteed_units=0)
    number = drafted(site, scenario_of(site, quotas=[row]), grid=600)
    before = values(site)
    with as_system():
        mine: dict[str, Any] = {
            "tenant": site.project.tenant,
            "project": site.project,
            "gpu_class_id": "h100",
        }
        Quota.objects.update_or_create(**mine, defaults={"guaranteed_units": 56_000})
    with pytest.raises(Refused, match="guarantees_promised"):
        activated(site, number)
    activated(site, number, starts=NOW + HOUR)
    with as_system():
        tick_run(NOW + HOUR)
        made = PolicyActivation.objects.latest("id")
    assert (made.state, made.in_force_id, values(site)) == ("failed", None, before)
    with as_system():
        assert PolicyVersion.objects.get(state="live").number == 1


@pytest.mark.django_db
@pytest.mark.parametrize(
    "scenario",
    [
        {"tears": {}},
        {"tiers": {"spot": {"grace": 7}}},
        {"tiers": {"spot": {"grace_seconds": "7"}}},
        {"tiers": {"spot": {"pausable": 7}}},
        {"tiers": {"gold": {"grace_seconds": 7}}},
        {"tiers": []},
        {"tiers": {"spot": 7}},
        {"quotas": [{"tenant": "nobody", "gpu_class": "h100", "weight": 7}]},
        {"quotas": [{"gpu_class": "h100", "weight": 7}]},
        {"quotas": [{"tenant": "helix", "gpu_class": "h100", "weights": 7}]},
        {"quotas": {"tenant": "helix"}},
        {"prices": [{"gpu_class": "h100", "tier": "standard", "per_gpu_hour": "dear"}]},
        {"prices": [{"gpu_class": "h9", "tier": "standard", "per_gpu_hour": "1"}]},
        {"prices": [{"gpu_class": "h100", "tier": "standard", "per_gpu_hour": "NaN"}]},
        {"prices": [{"gpu_class": "h100", "tier": "standard", "per_gpu_hour": None}]},
        {"prices": [{"gpu_class": "h100", "tier": "standard", "per_gpu_hour": "1e30"}]},
        {"peak_hours": {"days": "Mon-Fri"}},
        {"tiers": {"spot": {"grace_seconds": None}}},
        {"tiers": {"spot": {"grace_seconds": 2**40}}},
        {"tiers": {"spot": {"pausable": None}}},
        {"quotas": [{"tenant": "helix", "gpu_class": "h100", "borrow_limit_units": True}]},
        {"quotas": [{"tenant": "helix", "gpu_class": "h100", "weight": None}]},
        {"quotas": [{"tenant": "helix", "project": "none", "gpu_class": "h100", "weight": 7}]},
        {"quotas": [{"tenant": "helix", "project": 7, "gpu_class": "h100", "weight": 7}]},
    ],
)
def test_what_a_site_does_not_have_is_refused(site: Site, scenario: dict[str, Any]) -> None:
    answer = site.operator.post("policy/versions", {"document": {}, "scenario": scenario})
    assert (answer.status_code, "bad_scenario" in answer.content.decode()) == (422, True), answer.content
    with as_system():
        assert PolicyVersion.objects.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("scenario", "code"),
    [
        ({"peak_hours": {"hours": "Mon-Fri 20-8", "zone": "UTC"}}, "bad_peak_hours"),
        ({"peak_hours": {"hours": "Mon-Fri 8-20", "zone": "Nowhere"}}, "bad_zone"),
        (
            {"prices": [{"gpu_class": "h100", "tier": "standard", "peak_per_gpu_hour": "9"}]},
            "bad_peak_hours",
        ),
        ({"prices": [{"gpu_class": "h100", "tier": "standard", "per_gpu_hour": "-1"}]}, "bad_amount"),
        ({"tiers": {"spot": {"priority": 100_000}}}, None),
        ({"quotas": [{"cap_days": 3}]}, "bad_share"),
        ({"quotas": [{"guaranteed_units": 0}]}, "guarantees_promised"),
    ],
)
def test_what_the_site_would_refuse_now_is_refused_in_a_draft(
    site: Site, scenario: dict[str, Any], code: str | None
) -> None:
    for row in scenario.get("quotas", []):
        row |= {"tenant": site.project.tenant.slug, "gpu_class": "h100"}
    before = values(site)
    answer = site.operator.post("policy/versions", {"document": {}, "scenario": scenario})
    assert 400 <= answer.status_code < 500, answer.content
    assert code is None or code in answer.content.decode()
    with as_system():
        assert PolicyVersion.objects.count() == 1
    assert values(site) == before


def project_values(site: Site) -> tuple[object, ...]:
    with as_system():
        row = Quota.objects.get(project=site.project, gpu_class="h100")
        book = PriceBook.objects.order_by("-version")[0]
        peak = peak_prices_of(book).get(("h100", "spot"))
    return row.guaranteed_units, row.cap_gpu_hours, row.cap_days, peak_hours_text(book.hours), peak


@pytest.mark.django_db
def test_quotas_of_projects_caps_and_peak_prices_are_set_and_taken_back(site: Site) -> None:
    """The tenant gets less and its project, too: what is promised is never more than there is."""
    slug = site.project.tenant.slug
    before = project_values(site)
    with as_system():
        mine = Quota.objects.get(project=site.project, gpu_class="h100").guaranteed_units
    less = mine // 2
    scenario = {
        "quotas": [
            {"tenant": slug, "gpu_class": "h100", "guaranteed_units": less},
            {
                "tenant": slug,
                "project": site.project.slug,
                "gpu_class": "h100",
                "guaranteed_units": less,
                "cap_gpu_hours": 70,
                "cap_days": 7,
            },
        ],
        "prices": [{"gpu_class": "h100", "tier": "spot", "peak_per_gpu_hour": "3.25"}],
        "peak_hours": {"hours": "Mon-Fri 8-20", "zone": "Europe/Berlin"},
    }
    with as_system():
        Quota.objects.filter(tenant=site.project.tenant, gpu_class="h100").exclude(project=None).exclude(
            project=site.project
        ).update(guaranteed_units=0)
    number = drafted(site, scenario)
    assert project_values(site) == before
    with as_system():
        lines = scenario_lines(PolicyVersion.objects.get(number=number).scenario)
    assert "The site, peak hours: none to Mon-Fri 8-20" in lines
    assert f"{slug}/{site.project.slug}/h100, cap of GPU-hours: none to 70" in lines
    activated(site, number)
    assert project_values(site) == (less, 70, 7, "Mon-Fri 8-20", Decimal("3.25"))
    with as_role("portal_ops"):
        entries = AuditEntry.objects.filter(tenant=site.project.tenant, action="quota.set")
        found = [each.detail for each in entries if each.detail["project"] == str(site.project.pk)]
        assert [each["after"]["cap_gpu_hours"] for each in found] == [70]
        policy_rollback(now=NOW + HOUR, operator_id=None, reason="Dear.")
    assert project_values(site) == before


@pytest.mark.django_db
def test_a_shadow_decides_with_the_limits_of_projects(site: Site) -> None:
    tenant, project = site.project.tenant, site.project
    played = a_played_site(tenants=(str(tenant.pk), "b"))
    of_project = a_limit(str(project.pk), 2, parent=str(tenant.pk))
    row = {"tenant": tenant.slug, "project": project.slug, "gpu_class": "h100"}
    wanted = scenario_read({"quotas": [row | {"guaranteed_units": 1, "cap_gpu_hours": 5}]})
    with as_system():
        found = scenario_site(replace(played, limits=(*played.limits, of_project)), wanted)
    assert [limit.guaranteed for limit in found.limits] == [*(row.guaranteed for row in played.limits), 1]


@pytest.mark.django_db
def test_the_page_drafts_what_was_changed_and_adds_to_an_earlier_draft(site: Site, client: Client) -> None:
    client.force_login(site.people["operator"])
    slug = site.project.tenant.slug
    at = "/ops/policy/versions/1/scenario"
    shown = client.get(at, {"tenant": slug, "gpu_class": "h100"})
    assert shown.status_code == 200
    fields = re.findall(r'name="(quota [^"]+)"', shown.content.decode())
    assert f"quota {slug}/{site.project.slug}/h100 weight" in fields
    with as_system():
        other = Tenant.objects.exclude(slug=slug).first()
    assert other is not None
    assert not any(f"quota {other.slug}/" in each for each in fields)
    chosen = {"tenant": slug, "gpu_class": "h100"}
    refused = client.post(at, chosen)
    assert refused.status_code == 422
    assert client.post(at, chosen | {"tier spot grace_seconds": "soon"}).status_code == 422
    assert client.post(at, chosen | {f"quota {slug}/h100 lend_limit_units": "0.3333"}).status_code == 422
    # The menu is the operator's, whatever organisation is chosen.
    assert "/t//" not in shown.content.decode()
    made = client.post(at, chosen | {"tier spot grace_seconds": "77s", "tier spot pausable": "yes"})
    assert made["Location"] == "/ops/policy/versions/2"
    drafts = client.get("/ops/policy/versions/2").content.decode()
    assert drafts.count("because these have one value for all: tiers.") == 2
    again = client.post(
        "/ops/policy/versions/2/scenario",
        chosen
        | {
            f"quota {slug}/h100 cap_gpu_hours": "900",
            f"quota {slug}/h100 lend_limit_units": "2.5",
            "price h100/spot per_gpu_hour": "1.20",
        },
    )
    assert again["Location"] == "/ops/policy/versions/3"
    with as_system():
        assert PolicyVersion.objects.get(number=2).scenario == {"tiers": {"spot": {"grace_seconds": 77}}}
        assert PolicyVersion.objects.get(number=3).scenario == {
            "tiers": {"spot": {"grace_seconds": 77}},
            "quotas": [
                {"tenant": slug, "gpu_class": "h100", "lend_limit_units": 140_000, "cap_gpu_hours": 900}
            ],
            "prices": [{"gpu_class": "h100", "tier": "spot", "per_gpu_hour": "1.20"}],
        }
    client.force_login(site.people["lead"])
    assert client.get(at).status_code in (403, 404)


@pytest.mark.django_db
def test_a_part_of_the_site_has_no_tiers_of_its_own(site: Site) -> None:
    number = drafted(site, scenario_of(site), patience=600)
    with pytest.raises(Refused, match="not_for_a_part") as found:
        activated(site, number, classes=["h100"])
    assert "prices, quotas, tiers" in found.value.sentence


@pytest.mark.django_db
def test_a_trial_plays_the_tiers_and_quotas_of_the_candidate(site: Site) -> None:
    tenant = site.project.tenant
    played = a_played_site(tenants=(str(tenant.pk), "b"))
    history = History(played, (a_past(1, 0, tenant=str(tenant.pk)),), played.now + 86_400)
    wanted = scenario_read(
        {
            "tiers": {"standard": {"priority": 3, "pausable": True}},
            "quotas": [{"tenant": tenant.slug, "gpu_class": "h100", "guaranteed_units": 1}],
        }
    )
    with as_system():
        found = history_with(history, wanted)
    standard = next(tier for tier in found.site.tiers if tier.slug == "standard")
    assert (standard.priority, standard.pausable) == (3, True)
    assert found.past[0].request.priority == 3
    assert found.site.limits[0].guaranteed == 1
    assert found.site.limits[1] == history.site.limits[1]
    assert found.site.requests == ()


@pytest.mark.django_db
def test_the_command_drafts_a_scenario_and_puts_a_version_into_force_for_a_class(
    site: Site, tmp_path: Path
) -> None:
    file, out = tmp_path / "scenario.json", StringIO()
    file.write_text(json.dumps(scenario_of(site)), encoding="utf-8")
    with as_owner():
        with pytest.raises(CommandError, match="--draft"):
            call_command("policy", "patience=600", scenario=file)
        call_command("policy", draft=True, scenario=file, stdout=out)
        assert "Version 2 is a draft." in out.getvalue()
        assert PolicyVersion.objects.get(number=2).scenario == scenario_of(site)
        call_command("policy", "patience=600", draft=True)
        by = site.people["operator"].username
        call_command("policy", "--activate", "3", "--class", "h100", operator=by, waiver="Alone.", stdout=out)
    assert "   3  partial for h100" in out.getvalue()
