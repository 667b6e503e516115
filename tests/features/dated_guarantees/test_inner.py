"""Guarantees of labs and projects between dates: who sets them, what they fit into, and their cuts."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from allocation.features.limit_cuts.enforce import cuts_enforce
from allocation.features.limit_cuts.models import LimitCut
from allocation.models import Booking, Gpu
from allocation.rules.states import State
from allocation.services.snapshot.inner_limit_rows import guarantees_read
from allocation.services.snapshot.published import published_snapshot
from solver import Policy
from tenants.models import AuditEntry, DatedGuarantee, Lab, LabLead, LabQuota, Project, Quota
from tenants.platform.wall import tenant_tx
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking, an_allocation
from tests.roles import as_owner, as_role, as_system
from tests.web.flat import flat

GPU = 56_000
DRY = {"Prefer": "dry-run"}


def soon(hours: float) -> datetime:
    return timezone.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=hours)


def put(
    site: Site, gpus: int, starts: float, ends: float, who: str = "admin", **more: object
) -> HttpResponse:
    body: dict[str, Any] = {
        "project": "folding",
        "gpu_class": "h100",
        "guaranteed_units": gpus * GPU,
        "starts": soon(starts).isoformat() if starts else None,
        "ends": soon(ends).isoformat(),
    }
    headers = DRY if more.pop("dry", None) else {}
    answer: HttpResponse = getattr(site, who).put("dated-guarantees", body | more, **headers)
    return answer


def put_tenant(site: Site, gpus: int, starts: float, ends: float) -> HttpResponse:
    body = {
        "tenant": "helix",
        "gpu_class": "h100",
        "guaranteed_units": gpus * GPU,
        "starts": soon(starts).isoformat(),
        "ends": soon(ends).isoformat(),
    }
    return site.operator.put("platform/dated-guarantees", body)


@pytest.fixture
def lab(site: Site) -> Lab:
    """A lab with the project folding, which is guaranteed three GPUs and led by the lead."""
    with as_owner():
        lab = Lab.objects.create(tenant=site.tenant, slug="physics", name="Physics")
        Project.objects.filter(id=site.project.id).update(lab=lab)
        LabLead.objects.create(tenant=site.tenant, lab=lab, user=site.people["lead"])
        LabQuota.objects.create(tenant=site.tenant, lab=lab, gpu_class_id="h100", guaranteed_units=3 * GPU)
    return lab


@pytest.fixture
def booking(site: Site) -> Booking:
    """A booking of the researcher that runs on a GPU."""
    now = timezone.now()
    booking = a_booking(site.project, site.people["researcher"].id, state=State.ACTIVE, starts=now)
    with as_system():
        gpu = Gpu.objects.order_by("number")[0]
        an_allocation(booking, gpu, starts=now - timedelta(hours=1), ends=now + timedelta(hours=30))
    return booking


def test_an_admin_guarantees_a_project_more_for_some_time_and_everybody_in_it_sees_it(site: Site) -> None:
    dry = put(site, 3, 24, 48, dry=True)
    assert (dry.status_code, dry["Preference-Applied"]) == (200, "dry-run")
    with as_system():
        assert not DatedGuarantee.objects.exists()
    row = said(put(site, 3, 24, 48))
    assert (row["project"], row["lab"], row["guaranteed_units"]) == ("folding", None, 3 * GPU)
    assert said(put(site, 3, 24, 48))["id"] == row["id"]
    assert [each["id"] for each in said(site.researcher.get("dated-guarantees"))["items"]] == [row["id"]]
    assert said(site.outsider.get("dated-guarantees"))["items"] == []
    assert said(site.operator.get("platform/dated-guarantees"))["items"] == []
    with as_system():
        found = guarantees_read(timezone.now())
        assert [(each.owner, each.guaranteed) for each in found] == [(str(site.project.id), 3 * GPU)]
        entry = AuditEntry.objects.get(object_kind="dated_guarantee")
        assert (entry.tenant_id, entry.detail["of"]) == (site.tenant.id, "folding")
    for who, status in (("researcher", 403), ("viewer", 403), ("outsider", 404)):
        assert getattr(site, who).post(f"dated-guarantees/{row['id']}/end", {}).status_code == status
    ended = site.admin.post(f"dated-guarantees/{row['id']}/end", {})
    assert said(ended)["ended"] is not None
    again = site.admin.post(f"dated-guarantees/{row['id']}/end", {})
    assert said(again)["ended"] == said(ended)["ended"]


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({"lab": "physics"}, "bad_owner"),
        ({"project": None}, "bad_owner"),
        ({"project": "nowhere"}, "not_found"),
        ({"project": None, "lab": "nowhere"}, "not_found"),
        ({"gpu_class": "b300"}, "not_found"),
        ({"guaranteed_units": 5 * GPU}, "guarantees_exceeded"),
        ({"guaranteed_units": -1}, "out_of_range"),
        ({"guaranteed_units": 10**13}, "out_of_range"),
    ],
)
def test_what_cannot_be_is_refused(site: Site, sent: dict[str, Any], code: str) -> None:
    answer = put(site, 3, 24, 48, **sent)
    assert (answer.status_code < 500, said(answer)["code"]) == (True, code)
    assert said(put(site, 3, -48, -24))["code"] == "bad_dates"
    with as_system():
        assert not DatedGuarantee.objects.exists()


def test_it_fits_what_the_organisation_is_guaranteed_at_each_instant(site: Site) -> None:
    """The organisation has four usually, and six or two on some days."""
    assert put_tenant(site, 2, 24, 48).status_code == 200
    assert said(put(site, 3, 40, 60))["code"] == "guarantees_exceeded"
    assert put(site, 3, 48, 60).status_code == 200
    # Less for the organisation then than its project is guaranteed is refused, more is not.
    assert said(put_tenant(site, 2, 50, 52))["code"] == "guarantees_promised"
    assert put_tenant(site, 3, 50, 52).status_code == 200
    # The usual guarantee of the project counts where it applies.
    body = {"project": "folding", "gpu_class": "h100", "limit_units": 9 * GPU}
    assert said(site.admin.put("quotas", body | {"guaranteed_units": 3 * GPU}))["code"] == (
        "guarantees_exceeded"
    )
    assert put(site, 1, 24, 48).status_code == 200
    assert site.admin.put("quotas", body | {"guaranteed_units": 3 * GPU}).status_code == 200
    # The end of the lower one would leave three of two.
    with as_system():
        lower = DatedGuarantee.objects.get(guaranteed_units=GPU)
    assert said(site.admin.post(f"dated-guarantees/{lower.id}/end", {}))["code"] == "guarantees_exceeded"


def test_the_early_end_of_a_higher_one_of_the_organisation_covers_its_projects(site: Site) -> None:
    with as_owner():
        Quota.objects.filter(tenant=site.tenant, project=None).update(guaranteed_units=2 * GPU)
    made = said(put_tenant(site, 4, 24, 48))
    assert put(site, 4, 24, 48).status_code == 200
    ended = site.operator.post(f"platform/dated-guarantees/{made['id']}/end", {})
    assert said(ended)["code"] == "guarantees_promised"


def test_a_lead_sets_that_of_a_project_within_the_lab_and_an_admin_that_of_the_lab(
    site: Site, lab: Lab
) -> None:
    assert put(site, 3, 24, 48, who="lead").status_code == 200
    assert said(put(site, 4, 60, 72, who="lead"))["code"] == "guarantees_exceeded"
    of_lab: dict[str, Any] = {"project": None, "lab": "physics"}
    assert put(site, 4, 60, 72, who="lead", **of_lab).status_code == 403
    assert put(site, 4, 60, 72, **of_lab).status_code == 200
    assert put(site, 4, 60, 72, who="lead").status_code == 200
    assert said(put(site, 2, 24, 30, **of_lab))["code"] == "guarantees_promised"
    lower = {"lab": "physics", "gpu_class": "h100", "guaranteed_units": 2 * GPU}
    assert said(site.admin.put("quotas", lower | {"limit_units": 9 * GPU}))["code"] == "guarantees_promised"
    with as_system():
        rows = DatedGuarantee.objects.filter(lab=lab)
        assert [row.guaranteed_units for row in rows] == [4 * GPU]


def test_only_operators_write_that_of_an_organisation_also_in_the_database(site: Site) -> None:
    made = said(put_tenant(site, 3, 24, 48))
    assert site.admin.post(f"dated-guarantees/{made['id']}/end", {}).status_code == 404
    with as_role("portal_web"), tenant_tx(site.tenant.id):
        rows = DatedGuarantee.objects.filter(id=made["id"])
        assert rows.update(ended=timezone.now(), ended_by=site.people["admin"]) == 0
        row = rows.get()
        row.pk, row.starts, row.ends = None, soon(60), soon(70)
        row._state.adding = True
        with pytest.raises(DatabaseError), transaction.atomic():
            row.save(force_insert=True)


def test_quotes_of_others_do_not_know_those_inside_an_organisation(site: Site) -> None:
    assert put(site, 3, 24, 48).status_code == 200
    with as_role("portal_web"), tenant_tx(site.other_project.tenant_id):
        assert published_snapshot(timezone.now(), Policy(1)).guarantees == ()
    with as_role("portal_web"), tenant_tx(site.tenant.id):
        rows = published_snapshot(timezone.now(), Policy(1)).guarantees
    assert [row.owner for row in rows] == [str(site.project.id)]


def test_a_project_that_moves_takes_its_dates_along(site: Site, lab: Lab) -> None:
    with as_owner():
        other = Lab.objects.create(tenant=site.tenant, slug="small", name="Small")
        LabQuota.objects.create(tenant=site.tenant, lab=other, gpu_class_id="h100", guaranteed_units=GPU)
        Quota.objects.filter(project=site.project).update(guaranteed_units=GPU)
        LabQuota.objects.filter(lab=lab).update(guaranteed_units=2 * GPU)
        Quota.objects.filter(tenant=site.tenant, project=None).update(guaranteed_units=4 * GPU)
    assert put(site, 2, 24, 48).status_code == 200
    moved = site.admin.put("projects/folding", {"lab": "small"})
    assert said(moved)["code"] == "guarantees_exceeded"


def cuts() -> list[tuple[str, bool, bool]]:
    """Answers of the open cuts, whether of a project, and of a guarantee."""
    with as_system():
        rows = LimitCut.objects.filter(ended=None).order_by("of_guarantee")
        return [(row.answer, row.project_id is not None, row.of_guarantee) for row in rows]


def test_a_lower_guarantee_of_a_project_asks_usually_and_between_dates(site: Site, booking: Booking) -> None:
    with as_owner():
        Quota.objects.filter(project=site.project).update(borrow_limit_units=None)
    body = {"project": "folding", "gpu_class": "h100", "guaranteed_units": 0, "limit_units": None}
    dry = said(site.admin.put("quotas", body, **DRY))
    assert dry["cut"]["of_guarantee"] is True
    assert [row["booking"] for row in dry["cut"]["above"]] == [booking.label]
    lower = said(put(site, 0, 0, 3, bookings="keep"))
    assert [row["booking"] for row in lower["cut"]["above"]] == [booking.label]
    assert cuts() == [("keep", True, True)]
    assert said(site.admin.post(f"dated-guarantees/{lower['id']}/end", {}))["cut"] is None
    assert cuts() == []
    assert said(site.admin.put("quotas", body | {"bookings": "pause"}))["cut"] is not None
    assert cuts() == [("pause", True, True)]
    with as_system():
        assert cuts_enforce(timezone.now()) == 0  # Its tier is never paused.


def test_a_lower_guarantee_of_a_lab_asks(site: Site, lab: Lab, booking: Booking) -> None:
    with as_owner():
        Quota.objects.filter(project=site.project).update(guaranteed_units=0)
    body = {"lab": "physics", "gpu_class": "h100", "guaranteed_units": 0, "limit_units": None}
    answer = said(site.admin.put("quotas", body | {"bookings": "drain"}))
    assert [row["booking"] for row in answer["cut"]["above"]] == [booking.label]
    with as_system():
        (cut,) = LimitCut.objects.all()
    assert (cut.lab_id, cut.of_guarantee, cut.answer) == (lab.id, True, "drain")
    (row,) = said(site.lead.get("limit-cuts"))["items"]
    assert (row["lab"], row["of_guarantee"]) == ("physics", True)


def client_of(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def test_an_admin_sets_and_ends_one_on_the_page_and_is_asked(site: Site, booking: Booking) -> None:
    client, at = client_of(site, "admin"), "/t/helix/dated-guarantees"
    form = {
        "act": "add",
        "project": "folding",
        "lab": "",
        "gpu_class": "h100",
        "gpus": "0",
        "starts": "",
        "ends": f"{soon(5):%Y-%m-%dT%H:%M}",
    }
    asked = flat(client.post(at, form).content.decode())
    assert "Lower the guarantee of Folding?" in asked
    assert booking.label in asked
    done = client.post(at, form | {"sure": "1", "bookings": "keep"}, follow=True)
    assert "Folding: 0 H100 80 GB guaranteed between the two dates." in flat(done.content.decode())
    assert ("keep", True, True) in cuts()
    viewer = flat(client_of(site, "viewer").get(at).content.decode())
    assert "Set a guarantee" not in viewer
    with as_system():
        row = DatedGuarantee.objects.get()
    ended = client.post(at, {"act": "end", "guarantee": str(row.id)}, follow=True)
    assert "Folding: the usual guarantee of H100 80 GB applies." in flat(ended.content.decode())
