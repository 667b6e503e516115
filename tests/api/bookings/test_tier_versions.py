"""Limits of tiers: an operator's bounds, an organisation's versions inside them, and exceptions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import F
from django.test import Client
from django.utils import timezone

from allocation.models import Booking, TierVersion
from tenants.models import AuditEntry, Tier
from tenants.platform.wall import tenant_tx
from tests import builders
from tests.api.builders import Api, Site, a_site, row_counts, said
from tests.roles import as_owner, as_system

pytestmark = [pytest.mark.django_db, pytest.mark.turn]

ASK = {"count": 1, "classes": ["h100"], "duration": "PT1H"}
SMALL = {"project": "folding", "tier": "spot", "request": "1 h100 for 1h"}


def version(api: Api, **terms: object) -> dict[str, Any]:
    answer = api.post("tier-versions", {"tier": "spot", **terms})
    assert answer.status_code == 201, answer.content
    made: dict[str, Any] = said(answer)
    return made


def wanted(more: dict[str, object]) -> dict[str, object]:
    body = {**SMALL, **more}
    if "ask" in body:
        del body["request"]
    return body


def booked(api: Api, **more: object) -> dict[str, Any]:
    answer = api.post("bookings", wanted(more))
    assert answer.status_code in (201, 202), answer.content
    made: dict[str, Any] = said(answer)
    return made


def refused(api: Api, code: str, **more: object) -> dict[str, Any]:
    """The refusal of a request, which writes nothing and names its rule, owner and way out."""
    before = row_counts()
    answer = api.post("bookings", wanted(more))
    problem: dict[str, Any] = said(answer)
    assert problem.get("code") == code, answer.content
    assert answer.status_code < 500
    assert problem["rule"]
    assert problem["owner"]
    assert row_counts() == before
    return problem


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


def test_versions_are_set_by_admins_inside_the_operators_bounds(site: Site) -> None:
    with as_system():
        Tier.objects.filter(slug="spot").update(max_open=10, min_duration_seconds=600)
        most = Tier.objects.get(slug="spot").max_duration_seconds
    before = row_counts()
    for api in (site.researcher, site.lead, site.viewer):
        assert api.post("tier-versions", {"tier": "spot"}).status_code == 403
    bad: list[tuple[dict[str, Any], str]] = [
        ({"max_seconds": most + 1}, "outside_bounds"),
        ({"min_seconds": 60}, "outside_bounds"),
        ({"max_open": 11}, "outside_bounds"),
        ({"min_seconds": 7200, "max_seconds": 3600}, "outside_bounds"),
        ({"max_seconds": 300}, "outside_bounds"),
        ({"max_open": 0}, "out_of_range"),
        ({"classes": ["gold"]}, "unknown_class"),
        ({"projects": ["elsewhere"]}, "unknown_project"),
        ({"audience": "friends"}, "bad_audience"),
        ({"start_hours": "whenever"}, "bad_peak_hours"),
        ({"start_hours": "Mon 8-18", "zone": "Mars/Base"}, "bad_zone"),
        ({"starts": "2020-01-01T00:00:00Z"}, "bad_starts"),
        ({"tier": "none"}, "not_found"),
    ]
    for terms, code in bad:
        problem = said(site.admin.post("tier-versions", {"tier": "spot", **terms}))
        assert problem["code"] == code, (terms, problem)
    assert row_counts() == before
    version(site.admin, max_open=10)
    with as_system():
        assert AuditEntry.objects.filter(action="tier_version.set").count() == 1
    with pytest.raises(DatabaseError), tenant_tx(site.tenant.id):
        # No row that was in force ever changes.
        TierVersion.objects.update(max_open=1)


def test_a_version_says_who_for_what_and_how_long(site: Site) -> None:
    version(
        site.admin,
        audience="leads",
        min_seconds=1800,
        max_seconds=7200,
        classes=["h100"],
    )
    assert "leads" in refused(site.researcher, "tier_audience")["detail"]
    assert refused(site.lead, "shorter_than_tier", request="1 h100 for 10m")["owner"] == "tenant_admin"
    too_long = refused(site.lead, "too_long", request="1 h100 for 3h")
    assert too_long["owner"] == "tenant_admin"
    more = too_long["ask_for_more"]
    assert more == {"kind": "length", "tier": "spot", "project": "folding", "amount": "3600"}
    # Inside the operator's bound the limit is the admin's, who can give an exception.
    asked = site.lead.post("overrides", more)
    assert said(asked)["decider"] == "tenant_admin"
    granted = site.admin.post(f"overrides/{said(asked)['id']}/grant", {})
    assert granted.status_code == 200, granted.content
    booked(site.lead, request="1 h100 for 3h")
    with as_system():
        most = Tier.objects.get(slug="spot").max_duration_seconds
    beyond = {**more, "amount": str(most), "once": True}
    assert said(site.lead.post("overrides", beyond))["decider"] == "operator"


def test_notice_and_hours_of_starts(site: Site) -> None:
    now = timezone.now()
    version(site.admin, min_lead_seconds=7200, max_lead_seconds=10 * 86_400)
    start = (now + timedelta(hours=1)).replace(microsecond=0)
    fixed = {"ask": {**ASK, "starts": start.isoformat()}}
    problem = refused(site.researcher, "too_soon", **fixed)
    assert problem["alternatives"][0]["starts"] > start.isoformat()
    far = {**ASK, "starts": (start + timedelta(days=12)).isoformat()}
    assert refused(site.researcher, "advance_window", ask=far)["owner"] == "tenant_admin"
    # A flexible booking starts when the notice is over.
    key = booked(site.researcher)["id"]
    with as_system():
        row = Booking.objects.get(id=key.replace("bk_", ""))
        assert row.not_before >= now + timedelta(seconds=7199)
    asked = said(site.researcher.post("overrides", problem["ask_for_more"]))
    assert site.admin.post(f"overrides/{asked['id']}/grant", {}).status_code == 200
    booked(site.researcher, **fixed)
    with as_owner():
        # A second version can't begin in the same second.
        hour = timedelta(hours=1)
        TierVersion.objects.update(created=F("created") - hour, starts=F("starts") - hour)
    version(site.admin, start_hours="Sat 10-12", zone="Europe/Berlin")
    closed = refused(site.researcher, "start_hours")
    allowed = datetime.fromisoformat(closed["alternatives"][0]["starts"]).astimezone(UTC)
    assert (allowed.weekday(), allowed.minute) == (5, 0)
    booked(site.researcher, ask={**ASK, "starts": allowed.isoformat()})


def granted(site: Site, asker: Api, problem: dict[str, Any]) -> dict[str, str]:
    """What a refusal says to ask for, once the admin has granted it."""
    more: dict[str, str] = problem["ask_for_more"]
    asked = asker.post("overrides", more)
    assert said(asked)["decider"] == "tenant_admin", asked.content
    answer = site.admin.post(f"overrides/{said(asked)['id']}/grant", {})
    assert answer.status_code == 200, answer.content
    return more


def test_an_exception_lifts_each_rule_of_a_tier_for_the_person_who_asked(site: Site) -> None:
    builders.a_gpu_class("a100")
    version(
        site.admin,
        audience="leads",
        min_seconds=1800,
        classes=["a100"],
        start_hours="Sat 10-12",
        zone="Europe/Berlin",
    )
    where = {"tier": "spot", "project": "folding", "amount": "1"}
    short = {"request": "1 h100 for 10m"}
    mara = site.researcher
    audience = granted(site, mara, refused(mara, "tier_audience", **short))
    assert audience == {"kind": "tier_audience", **where}
    of_class = granted(site, mara, refused(mara, "tier_class", **short))
    assert of_class == {"kind": "tier_class", "gpu_class": "h100", **where}
    length = granted(site, mara, refused(mara, "shorter_than_tier", **short))
    assert length == {"kind": "shorter", **where, "amount": "1200"}
    hours = granted(site, mara, refused(mara, "start_hours", **short))
    assert hours == {"kind": "start_hours", **where}
    booked(mara, **short)
    refused(site.lead, "tier_class", **short)
    page = Client()
    page.force_login(site.people["researcher"])
    shown = page.get("/t/helix/overrides").content.decode()
    assert "Starts of Spot outside its hours" in shown
    assert "20 min shorter than Spot demands" in shown
    form = page.get("/t/helix/overrides", hours).content.decode()
    assert '<input type="hidden" name="amount" value="1">' in form
    too_many = {**hours, "amount": "2"}
    assert said(mara.post("overrides", too_many))["code"] == "bad_amount"


def test_open_bookings_of_a_person_are_counted_and_raised(site: Site) -> None:
    version(site.admin, max_open=2, max_open_gpus=3)
    # All of a batch count each other.
    answers = said(site.researcher.post("bookings/batch", {"items": [SMALL] * 3, "mode": "some"}))
    assert str(answers).count("too_many_open") == 1, answers
    problem = refused(site.researcher, "too_many_open")
    asked = said(site.researcher.post("overrides", problem["ask_for_more"]))
    assert asked["decider"] == "tenant_admin"
    assert site.admin.post(f"overrides/{asked['id']}/grant", {}).status_code == 200
    refused(site.researcher, "too_many_gpus", request="2 h100 for 1h")
    booked(site.researcher)
    refused(site.researcher, "too_many_open")
    booked(site.lead)


def test_versions_are_dated_and_bookings_keep_theirs(site: Site) -> None:
    key = booked(site.researcher, request="1 h100 for 3h")["id"]
    with as_system():
        # An hour ago, so that no version begins in the same second.
        Booking.objects.update(submitted=F("submitted") - timedelta(hours=1))
    later = version(site.admin, max_seconds=3600, starts=(timezone.now() + timedelta(days=1)).isoformat())
    booked(site.researcher, request="1 h100 for 2h")
    withdrawn = site.admin.post(f"tier-versions/{later['id']}/withdraw")
    assert withdrawn.status_code == 200
    present = version(site.admin, max_seconds=3600)
    assert site.admin.post(f"tier-versions/{present['id']}/withdraw").status_code == 409
    refused(site.researcher, "too_long", request="1 h100 for 2h")
    change = site.researcher.send(
        "PATCH", f"bookings/{key}", {"request": "1 h100 for 4h"}, headers={"if_match": '"1"'}
    )
    assert change.status_code in (200, 202), change.content


def test_the_database_keeps_a_version_that_counts_and_a_withdrawal(site: Site) -> None:
    key = version(site.admin, max_seconds=3600)["id"]
    with as_owner():
        rows = TierVersion.objects.filter(id=key)
        # As if it was to begin tomorrow, with a booking that was asked for the day after.
        rows.update(starts=F("starts") + timedelta(days=1))
    booked(site.researcher)
    asked = Booking.objects.filter(tenant=site.tenant)
    before = F("starts") - timedelta(hours=1)
    kept: tuple[tuple[dict[str, Any], str], ...] = (
        ({"withdrawn": before}, "asked for by this version"),
        ({"withdrawn": F("created") - timedelta(seconds=1)}, "tier_version_withdrawn_after"),
        ({"start_hours": "any"}, "tier_version_lists"),
        ({"withdrawn": None}, "a withdrawal is final"),
        ({"withdrawn": F("created")}, "a withdrawal is final"),
    )
    with as_owner():
        asked.update(submitted=F("submitted") + timedelta(days=2))
        for number, (change, guard) in enumerate(kept):
            with pytest.raises(IntegrityError, match=guard), transaction.atomic():
                rows.update(**change)
            if number == 0:
                asked.update(submitted=F("submitted") - timedelta(days=2))
            if number == 2:
                rows.update(withdrawn=before)
