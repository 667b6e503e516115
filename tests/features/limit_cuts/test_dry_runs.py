"""Limits at some times and guarantees between dates over REST: dry runs, and the answer of a removal."""

from datetime import timedelta

import pytest
from django.http import HttpResponse
from django.utils import timezone

from allocation.features.limit_cuts.models import LimitCut
from allocation.models import Booking, Gpu
from allocation.rules.states import State
from tenants.models import AuditEntry, DatedGuarantee, Quota, QuotaWindow
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking, an_allocation
from tests.roles import as_owner, as_system

GPU = 56_000
DRY = {"Prefer": "dry-run"}


@pytest.fixture
def booking(site: Site) -> Booking:
    """A booking of the researcher that runs on a GPU."""
    now = timezone.now()
    booking = a_booking(site.project, site.people["researcher"].id, state=State.ACTIVE, starts=now)
    with as_system():
        gpu = Gpu.objects.order_by("number")[0]
        an_allocation(booking, gpu, starts=now - timedelta(hours=1), ends=now + timedelta(hours=3))
    return booking


def window(site: Site, gpus: int, **headers: str) -> HttpResponse:
    body = {"project": "folding", "gpu_class": "h100", "limit_units": gpus * GPU}
    return site.admin.post("quota-windows", body, **headers)


def removed(site: Site, made: str, *, dry: bool = False, **query: str) -> HttpResponse:
    headers = DRY if dry else None
    return site.admin.send("DELETE", f"quota-windows/{made}", query=query, headers=headers)


def counts() -> tuple[int, int, int]:
    """Limits at some times, dated guarantees, and cuts that are there."""
    with as_system():
        rows = (QuotaWindow.objects.count(), DatedGuarantee.objects.count(), LimitCut.objects.count())
    return rows


def test_a_removal_asks_what_happens_above_the_usual_limit(site: Site, booking: Booking) -> None:
    made = said(window(site, 6))["id"]
    with as_owner():
        Quota.objects.filter(project=site.project).update(guaranteed_units=0, borrow_limit_units=0)
    for wrong in ({"bookings": "stop"}, {"bookings": ""}, {"other": "keep"}):
        answer = site.admin.send("DELETE", f"quota-windows/{made}", query=wrong)
        assert answer.status_code in (400, 422), wrong
    dry = removed(site, made, dry=True, bookings="keep")
    assert (dry.status_code, dry["Preference-Applied"]) == (200, "dry-run")
    cut = said(dry)["cut"]
    assert (cut["limit_units"], [row["booking"] for row in cut["above"]]) == (0, [booking.label])
    assert counts() == (1, 0, 0)
    assert removed(site, made, bookings="keep").status_code == 204
    with as_system():
        assert [each.answer for each in LimitCut.objects.all()] == ["keep"]
    assert counts() == (0, 0, 1)


def test_a_removal_without_an_answer_drains_and_one_to_a_higher_limit_is_no_cut(
    site: Site, booking: Booking
) -> None:
    lower, higher = said(window(site, 0))["id"], said(window(site, 6))["id"]
    assert said(removed(site, lower, dry=True))["cut"] is None
    assert removed(site, lower).status_code == 204
    with as_owner():
        Quota.objects.filter(project=site.project).update(guaranteed_units=0, borrow_limit_units=0)
    assert removed(site, higher).status_code == 204
    with as_system():
        assert LimitCut.objects.get(ended=None).answer == "drain"


def test_operators_answer_for_the_limit_of_an_organisation(site: Site, booking: Booking) -> None:
    body = {"tenant": "helix", "gpu_class": "h100", "limit_units": 90 * GPU}
    made = said(site.operator.post("quota-windows", body))["id"]
    path = f"quota-windows/{made}"
    assert site.admin.send("DELETE", path, query={"bookings": "keep"}, headers=DRY).status_code == 403
    with as_owner():
        own = Quota.objects.filter(tenant=site.tenant, project=None)
        own.update(guaranteed_units=0, borrow_limit_units=0)
    dry = site.operator.send("DELETE", path, headers=DRY)
    assert [row["booking"] for row in said(dry)["cut"]["above"]] == [booking.label]
    assert site.operator.send("DELETE", path, query={"bookings": "pause"}).status_code == 204
    with as_system():
        assert [(each.answer, each.project_id) for each in LimitCut.objects.all()] == [("pause", None)]


def test_a_limit_at_some_times_has_a_dry_run(site: Site, booking: Booking) -> None:
    dry = window(site, 0, **DRY)
    assert (dry.status_code, dry["Preference-Applied"]) == (201, "dry-run")
    assert [row["booking"] for row in said(dry)["cut"]["above"]] == [booking.label]
    assert counts() == (0, 0, 0)


def test_a_guarantee_between_dates_has_dry_runs_with_which_nothing_is_written(
    site: Site, booking: Booking
) -> None:
    with as_owner():
        Quota.objects.filter(project=site.project).update(guaranteed_units=0)
        Quota.objects.filter(tenant=site.tenant, project=None).update(guaranteed_units=GPU)
    ends = timezone.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=2)
    body = {"tenant": "helix", "gpu_class": "h100", "guaranteed_units": 0, "ends": ends.isoformat()}
    dry = site.operator.put("platform/dated-guarantees", body | {"bookings": "keep"}, **DRY)
    assert (dry.status_code, dry["Preference-Applied"]) == (200, "dry-run")
    assert [row["booking"] for row in said(dry)["cut"]["above"]] == [booking.label]
    assert counts() == (0, 0, 0)
    with as_system():
        assert not AuditEntry.objects.filter(object_kind="dated_guarantee").exists()
    refused = site.operator.put("platform/dated-guarantees", body | {"guaranteed_units": 90 * GPU}, **DRY)
    assert said(refused)["code"] == "guarantees_above_site"
    assert site.admin.put("platform/dated-guarantees", body, **DRY).status_code == 403
    made = said(site.operator.put("platform/dated-guarantees", body | {"guaranteed_units": 2 * GPU}))
    key = {"Idempotency-Key": "once"}
    end = f"platform/dated-guarantees/{made['id']}/end"
    assert said(site.operator.post(end, {}, **DRY, **key))["ended"] is not None
    with as_system():
        assert DatedGuarantee.objects.get().ended is None
    # A dry run keeps no answer for its key.
    assert said(site.operator.post(end, {}, **key))["ended"] is not None
    with as_system():
        assert DatedGuarantee.objects.get().ended is not None
