"""What else changed is over the charts, and two periods are compared with it; of one's own log only."""

from datetime import UTC, date, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.insights.charts import bars_of
from allocation.features.insights.rule_changes import RuleChange, by_step
from tenants.audit import audit_record, platform_record
from tenants.models import AuditEntry, Tenant
from tests.api.builders import Api, Site, said
from tests.builders import a_tenant
from tests.roles import as_system

NOW = timezone.now()
DAYS = [date(2026, 11, 2), date(2026, 11, 9), date(2026, 11, 16)]


def a_change(day: int, sentence: str = "set the quota of helix h100") -> RuleChange:
    return RuleChange(datetime(2026, 11, day, 9, tzinfo=UTC), "quota", "otto", sentence, ())


def test_changes_are_numbered_by_the_steps_of_a_chart() -> None:
    found = by_step([a_change(1), a_change(3), a_change(8), a_change(16)], DAYS)
    assert [(each.number, each.begins.day, len(each.rows)) for each in found] == [(1, 2, 2), (2, 16, 1)]
    chart = bars_of([("in use", "p-use")], [(day, [3]) for day in DAYS], "GPU-hours", found)  # type: ignore[list-item]
    assert [flag.number for flag in chart.flags] == [1, 2]
    assert chart.flags[0].text == "otto set the quota of helix h100 and 1 more"
    assert float(chart.bars[0].x) < float(chart.flags[0].x) < float(chart.bars[1].x)


def entries(site: Site) -> None:
    """A change of each kind yesterday, and one of another organisation."""
    at, by = NOW - timedelta(days=1), site.people["operator"].pk
    with as_system():
        quota = {"tenant": "helix", "gpu_class": "h100"}
        both = {"before": quota | {"weight": 1}, "after": quota | {"weight": 2}}
        platform_record(by, "policy.published", ("policy", 7), at, before={"grid": 300}, after={"grid": 600})
        platform_record(by, "quota.set", ("quota", "x"), at, before=both["before"], after=both["after"])
        platform_record(
            by, "node.approved", ("node", "gpu-a1-01"), NOW - timedelta(days=40), after={"rack": "a"}
        )
        other = a_tenant("elsewhere")
        for tenant, weight in ((site.project.tenant, 2), (other, 9)):
            audit_record(
                tenant_id=tenant.pk,
                actor_id=by,
                action="quota.set",
                target=("quota", "x"),
                now=at,
                detail={"before": quota | {"weight": 1}, "after": quota | {"weight": weight}},
            )


@pytest.mark.django_db
def test_two_periods_are_compared_with_what_else_changed(site: Site) -> None:
    entries(site)
    now, before = said(site.operator.get("platform-kpi-comparison"))["items"]
    found = [row for row in now["changes"] if row["kind"] != "prices"]
    assert [(row["kind"], row["sentence"]) for row in found] == [
        ("policy", "published policy version 7"),
        ("quota", "set the quota of helix H100 80 GB"),
    ]
    assert found[1]["values"] == ["weight: 1 to 2"]
    assert [row["kind"] for row in before["changes"]] == ["fleet"]
    assert before["ends"] == now["starts"]
    mine, _ = said(site.admin.get("kpi-comparison"))["items"]
    assert [row["values"] for row in mine["changes"] if row["kind"] != "prices"] == [["weight: 1 to 2"]], (
        "of its own log only"
    )
    others, _ = said(site.researcher.get("kpi-comparison"))["items"]
    assert others["changes"] == []
    assert site.researcher.get("platform-kpi-comparison").status_code == 403
    odd = site.operator.get("platform-kpi-comparison?against_from=2026-11-09&against_to=2026-11-02")
    assert odd.status_code == 422


@pytest.mark.django_db
def test_leads_see_policies_prices_and_quotas_that_are_theirs(site: Site) -> None:
    """Not another project's quota, not the limits of persons, and no other organisation's policy."""
    at, by = NOW - timedelta(days=1), site.people["operator"].pk
    rows: list[tuple[str, Tenant | None, dict[str, object]]] = [
        ("policy.published", None, {"before": {"version": 6}, "after": {"version": 7}}),
        ("quota.set", None, {"project": None, "after": {"weight": 1}}),
        ("quota.set", None, {"project": str(site.project.pk), "after": {"weight": 2}}),
        ("quota.set", None, {"project": str(site.hidden.pk), "after": {"weight": 3}}),
        ("person_quota.set", None, {"after": {"weight": 4}}),
        ("policy.published", site.other_project.tenant, {"after": {"version": 8}}),
        ("quota.set", site.other_project.tenant, {"project": None, "after": {"weight": 5}}),
    ]
    with as_system():
        for action, tenant, detail in rows:
            audit_record(
                tenant_id=(tenant or site.project.tenant).pk,
                actor_id=by,
                action=action,
                target=("quota", "x"),
                now=at,
                detail=detail,
            )

    def seen(who: Api) -> list[list[str]]:
        now, _ = said(who.get("kpi-comparison"))["items"]
        return [row["values"] for row in now["changes"] if row["kind"] != "prices"]

    assert seen(site.lead) == [["version: 6 to 7"], ["weight: 1"], ["weight: 2"]]
    assert len(seen(site.admin)) == 5
    assert seen(site.researcher) == []
    shown = said(site.lead.get("kpi-comparison"))["items"][0]["changes"]
    assert any(row["kind"] == "prices" for row in shown)


@pytest.mark.django_db
def test_who_it_is_for_learns_of_a_policy_by_its_number_alone(site: Site) -> None:
    first = said(site.operator.post("policy/versions", {"document": {"age_step": 43_200}}))["number"]
    other = said(site.operator.post("policy/versions", {"document": {"age_step": 43_200, "patience": 600}}))[
        "number"
    ]
    north = site.other_project.tenant.slug
    for number, tenants in ((first, []), (other, [north])):
        sent = {"waiver": "I am alone.", "tenants": tenants}
        assert site.operator.post(f"policy/versions/{number}/activate", sent).status_code == 201
    for tenant, numbers in ((site.project.tenant, [first]), (site.other_project.tenant, [first, other])):
        with as_system():
            found = AuditEntry.objects.filter(tenant=tenant, action="policy.published").order_by("at", "id")
            details = [(int(each.object_id), each.detail) for each in found]
        assert [number for number, _ in details] == numbers
        for _, detail in details:
            assert detail["before"].keys() == detail["after"].keys() == {"version"}


@pytest.mark.django_db
def test_the_page_has_the_changes_over_its_charts(site: Site, client: Client) -> None:
    entries(site)
    client.force_login(site.people["operator"])
    text = client.get("/ops/insights").content.decode()
    assert "published policy version 7" in text
    assert "grid: " in text
    client.force_login(site.people["admin"])
    text = client.get("/t/helix/insights").content.decode()
    assert "published policy version 7" not in text
