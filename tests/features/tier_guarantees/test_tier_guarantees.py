"""Guarantees by tier: who sets them, what they refuse, and what bookings of other tiers get."""

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from allocation.services.snapshot.snapshot import rules_read
from solver import TierPart
from tenants.models import AuditEntry, Quota, Tier, TierGuarantee
from tests.api.builders import Site, said
from tests.roles import as_owner, as_system
from tests.web.flat import flat

GPU = 56_000
BODY: dict[str, Any] = {"gpu_class": "h100", "units": 2 * GPU, "tiers": ["standard"]}


@pytest.fixture(autouse=True)
def premium(site: Site) -> None:
    """A tier that is never paused, like `standard`."""
    with as_owner():
        row = Tier.objects.get(slug="standard")
        row.pk, row.slug, row.name = None, "premium", "Premium"
        row._state.adding = True
        row.save(force_insert=True)
        Quota.objects.filter(tenant=site.tenant, project=None).update(guaranteed_units=4 * GPU)


def rows() -> list[tuple[int, list[str]]]:
    with as_system():
        return [(row.units, row.tiers) for row in TierGuarantee.objects.all()]


def test_an_admin_sets_changes_and_removes_it_and_everybody_reads_it(site: Site) -> None:
    only = BODY | {"tiers": ["premium"]}
    assert said(site.admin.put("tier-guarantees", only)) == {"tenant": "helix", **only}
    assert said(site.admin.put("tier-guarantees", only)) == {"tenant": "helix", **only}
    assert said(site.viewer.get("tier-guarantees"))["items"] == [{"tenant": "helix", **only}]
    assert said(site.outsider.get("tier-guarantees"))["items"] == []
    with as_system():
        parts = rules_read(timezone.now())["tier_parts"]
        assert parts == (TierPart(str(site.tenant.id), "h100", 2 * GPU, ("premium",)),)
        assert AuditEntry.objects.filter(action="tier_guarantee.set").count() == 1
    assert [getattr(site, who).put("tier-guarantees", only).status_code for who in ("lead", "viewer")] == [
        403,
        403,
    ]
    assert said(site.admin.put("tier-guarantees", {"gpu_class": "h100", "units": 0}))["units"] == 0
    assert rows() == []


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({"units": 5 * GPU}, "part_above_guarantee"),
        ({"units": -1}, "out_of_range"),
        ({"tiers": []}, "no_tiers"),
        ({"tiers": ["gold"]}, "not_found"),
        ({"tiers": ["spot"]}, "tier_uses_no_guarantee"),
        ({"gpu_class": "b300"}, "not_found"),
        ({"tenant": "helix"}, "unknown_field"),
    ],
)
def test_what_cannot_be_is_refused(site: Site, sent: dict[str, Any], code: str) -> None:
    with as_owner():
        Tier.objects.filter(slug="spot").update(counts_against_guarantee=False)
    answer = site.admin.put("tier-guarantees", BODY | sent)
    assert (answer.status_code < 500, said(answer)["code"]) == (True, code)
    assert rows() == []


def test_a_booking_of_another_tier_is_refused_above_the_rest_and_says_why(site: Site) -> None:
    three = {"project": "folding", "tier": "standard", "request": "3 h100 for 20h"}
    assert site.researcher.post("quotes", three).status_code == 200
    assert site.admin.put("tier-guarantees", BODY | {"tiers": ["premium"]}).status_code == 200
    refused = said(site.researcher.post("bookings", three))
    assert refused["code"] == "guarantee_only", refused
    assert "guaranteed 2" in refused["detail"]
    assert "2 more are guaranteed to other tiers only: premium." in refused["detail"]
    assert refused["numbers"]["part"] == 2 * GPU
    # It has no price, and the guarantee has room for it.
    other = said(site.researcher.post("bookings", three | {"tier": "premium"}))
    assert other["code"] != "guarantee_only", other
    assert site.researcher.post("bookings", three | {"request": "2 h100 for 20h"}).status_code == 201


def test_an_operator_sets_it_for_an_organisation_and_both_logs_say_so(site: Site) -> None:
    body = BODY | {"tenant": "helix"}
    assert said(site.operator.put("platform/tier-guarantees", body))["units"] == 2 * GPU
    assert said(site.operator.get("platform/tier-guarantees"))["items"] == [body]
    assert site.admin.put("platform/tier-guarantees", body).status_code == 403
    assert said(site.operator.put("platform/tier-guarantees", body | {"tenant": "x"}))["code"] == "not_found"
    with as_system():
        logged = AuditEntry.objects.filter(action="tier_guarantee.set")
        assert sorted(row.tenant_id is None for row in logged) == [False, True]


def reader(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def test_an_admin_sets_it_on_the_page_and_others_read_it(site: Site) -> None:
    client, at = reader(site, "admin"), "/t/helix/tier-guarantees"
    form = {"act": "set", "gpu_class": "h100", "gpus": "9", "tiers": ["premium"]}
    refused = client.post(at, form)
    assert refused.status_code == 422
    assert "Helix is guaranteed 4 H100 80 GB. Choose at most that many." in flat(refused.content.decode())
    done = flat(client.post(at, form | {"gpus": "1.5"}, follow=True).content.decode())
    assert "Helix: 1.5 H100 80 GB are for these tiers only." in done
    assert rows() == [(84_000, ["premium"])]
    shown = flat(reader(site, "viewer").get(at).content.decode())
    assert (
        'data-label="For some tiers only">1.5</td><td class="" data-label="Which tiers">Premium</td>' in shown
    )
    assert 'data-label="For all tiers">2.5</td>' in shown
    assert "width:37%" in shown
    assert "Set the tiers" not in shown
    assert "/t/helix/tier-guarantees" in reader(site, "viewer").get("/t/helix/quotas").content.decode()
