"""Labs, limits of persons and limits at some times over REST, up to the refusal of a booking."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from allocation.services.snapshot.snapshot import rules_read
from solver import LabLimit, PersonLimit
from tenants.models import AuditEntry, Quota, QuotaWindow
from tenants.platform.wall import tenant_tx
from tests.api.builders import Api, Site, row_counts, said
from tests.builders import UNITS_PER_GPU
from tests.roles import as_owner, as_role, as_system

pytestmark = [pytest.mark.django_db, pytest.mark.turn]


def a_lab(site: Site, *, gpus: int = 3, borrow: int | None = 0) -> None:
    """The lab physics with the project folding, and a guarantee."""
    site.admin.post("labs", {"slug": "physics", "name": "Physics"})
    assert said(site.admin.put("projects/folding", {"lab": "physics"}))["lab"] == "physics"
    units = None if borrow is None else borrow * UNITS_PER_GPU
    share = {"lab": "physics", "guaranteed_units": gpus * UNITS_PER_GPU}
    answer = site.admin.put("quotas", {**share, "gpu_class": "h100", "borrow_limit_units": units})
    assert answer.status_code == 200, answer.content


def refused(api: Api, method: str, path: str, body: Any) -> tuple[int, str]:  # noqa: ANN401
    """A refusal, which writes nothing."""
    before = row_counts()
    answer = api.send(method, path, body)
    assert row_counts() == before
    return answer.status_code, str(said(answer)["code"])


def test_a_lab_from_its_creation_to_its_archive(site: Site) -> None:
    a_lab(site, gpus=2)
    assert refused(site.admin, "POST", "labs", {"slug": "physics", "name": "X"}) == (
        422,
        "slug_taken",
    )
    site.admin.post("labs/physics/leads", {"username": "mara"})
    named = said(site.admin.put("labs/physics", {"name": "Physics and more"}))
    assert named == {
        "slug": "physics",
        "name": "Physics and more",
        "is_open": True,
        "projects": ["folding"],
        "leads": ["mara"],
    }
    assert said(site.viewer.get("labs"))["items"] == [named]
    assert refused(site.admin, "PUT", "labs/physics", {"is_open": False}) == (409, "lab_in_use")
    site.admin.put("projects/folding", {"lab": None})
    archived = said(site.admin.put("labs/physics", {"is_open": False}))
    assert (archived["is_open"], archived["leads"]) == (False, [])
    assert refused(site.admin, "PUT", "projects/folding", {"lab": "physics"}) == (
        422,
        "lab_archived",
    )
    with as_system():
        acts = {*AuditEntry.objects.filter(action__startswith="lab.").values_list("action", flat=True)}
    assert acts == {"lab.created", "lab.lead_added", "lab.renamed", "lab.archived"}


def test_guarantees_of_labs_and_projects_fit_into_each_other(site: Site) -> None:
    """Helix is guaranteed four, folding two of them."""
    a_lab(site, gpus=3)
    quota = {"gpu_class": "h100", "guaranteed_units": 4 * UNITS_PER_GPU}
    over = site.admin.put("quotas", {"project": "folding", **quota})
    assert (over.status_code, said(over)["code"]) == (409, "guarantees_exceeded")
    assert "The lab Physics is guaranteed 3" in said(over)["detail"]
    alongside = {"project": "hidden", "gpu_class": "h100", "guaranteed_units": 2 * UNITS_PER_GPU}
    assert refused(site.admin, "PUT", "quotas", alongside) == (409, "guarantees_exceeded")
    low = {"lab": "physics", "gpu_class": "h100", "guaranteed_units": UNITS_PER_GPU}
    assert refused(site.admin, "PUT", "quotas", low) == (409, "guarantees_promised")
    high = {**low, "guaranteed_units": 5 * UNITS_PER_GPU}
    assert refused(site.admin, "PUT", "quotas", high) == (409, "guarantees_exceeded")
    assert site.admin.put("quotas", {**alongside, "guaranteed_units": UNITS_PER_GPU}).status_code == 200
    # Outside the lab its two would be more than the one that is left next to the lab's three.
    assert refused(site.admin, "PUT", "projects/folding", {"lab": None}) == (
        409,
        "guarantees_exceeded",
    )


def test_a_lab_lead_sets_what_its_projects_have_inside_it(site: Site) -> None:
    a_lab(site, gpus=3)
    quota = {"project": "folding", "gpu_class": "h100", "guaranteed_units": UNITS_PER_GPU}
    dated = {"project": "folding", "gpu_class": "h100", "limit_units": UNITS_PER_GPU}
    assert refused(site.researcher, "PUT", "quotas", quota) == (403, "not_allowed")
    assert refused(site.researcher, "POST", "quota-windows", dated) == (403, "not_allowed")
    site.admin.post("labs/physics/leads", {"username": "mara"})
    assert said(site.researcher.put("quotas", quota))["guaranteed_units"] == UNITS_PER_GPU
    assert site.researcher.post("quota-windows", dated).status_code == 201
    for more in ({"weight": 9}, {"cap_gpu_hours": 10}):
        assert refused(site.researcher, "PUT", "quotas", {**quota, **more}) == (403, "not_allowed")
    for path, body in (
        ("quotas", {**quota, "project": "hidden"}),
        ("person-quotas", {"project": "hidden", "gpu_class": "h100", "limit_units": 1}),
    ):
        assert refused(site.researcher, "PUT", path, body)[1] == "not_found"
    of_lab = {"lab": "physics", "gpu_class": "h100", "guaranteed_units": UNITS_PER_GPU}
    assert refused(site.researcher, "PUT", "quotas", of_lab) == (403, "not_allowed")
    site.admin.delete("labs/physics/leads/mara")
    assert refused(site.researcher, "PUT", "quotas", quota) == (403, "not_allowed")


def test_a_booking_above_a_limit_is_refused_with_whose_it_is(site: Site) -> None:
    a_lab(site, gpus=3)
    booking = {"project": "folding", "tier": "spot", "request": "4 h100 for 10m"}
    answer = said(site.researcher.post("bookings", booking))
    assert (answer["code"], answer["owner"]) == ("lab_quota", "tenant_admin")
    assert answer["detail"].startswith("The lab Physics may use 3 H100 80 GB at once; this needs 4.")
    limit = {"project": "folding", "gpu_class": "h100", "limit_units": UNITS_PER_GPU}
    assert site.lead.put("person-quotas", limit).status_code == 200
    two = {**booking, "request": "2 h100 for 10m"}
    answer = said(site.researcher.post("bookings", two))
    assert answer["code"] == "person_quota"
    assert answer["detail"].startswith("A person may use 1 H100 80 GB at once in Folding; this needs 2.")
    own = {**limit, "username": "mara", "limit_units": 2 * UNITS_PER_GPU}
    assert said(site.lead.put("person-quotas", own))["username"] == "mara"
    assert site.researcher.post("bookings", two).status_code == 201
    assert said(site.lead.post("bookings", two))["code"] == "person_quota"
    removed = said(site.lead.put("person-quotas", {**limit, "limit_units": None}))
    assert removed["limit_units"] is None
    assert site.lead.post("bookings", two).status_code == 201
    assert len(said(site.researcher.get("person-quotas"))["items"]) == 1
    assert said(site.viewer.get("person-quotas"))["items"] == []
    everywhere = {"gpu_class": "h100", "limit_units": 1}
    assert refused(site.lead, "PUT", "person-quotas", everywhere) == (403, "not_allowed")


def test_an_exception_raises_the_limit_of_a_lab_or_of_a_person(site: Site) -> None:
    a_lab(site, gpus=3)
    four = {"project": "folding", "tier": "spot", "request": "4 h100 for 10m"}
    two = {**four, "request": "2 h100 for 10m"}
    limit = {"project": "folding", "gpu_class": "h100", "limit_units": UNITS_PER_GPU}
    where = {"gpu_class": "h100", "project": "folding", "amount": "1"}
    cases: list[tuple[str, dict[str, str], str, Api]] = [
        ("lab_quota", four, "tenant_admin", site.admin),
        ("person_quota", two, "lead", site.lead),
    ]
    for kind, body, decider, owner in cases:
        more = said(site.researcher.post("bookings", body))["ask_for_more"]
        assert more == {"kind": kind, **where}
        asked = said(site.researcher.post("overrides", more))
        assert (asked["decider"], asked["amount"]) == (decider, "1")
        key = f"overrides/{asked['id']}/grant"
        assert refused(site.researcher, "POST", key, {}) == (403, "not_allowed")
        assert said(owner.post(key, {}))["state"] == "granted"
        assert site.researcher.post("bookings", body).status_code == 201
        assert site.lead.put("person-quotas", limit).status_code == 200
    # The exception of a person is for nobody else.
    assert said(site.lead.post("bookings", two))["code"] == "person_quota"
    no_project = {"kind": "lab_quota", "gpu_class": "h100", "amount": "1"}
    assert refused(site.researcher, "POST", "overrides", no_project) == (422, "not_found")


def test_a_limit_at_some_times_raises_and_lowers_what_may_be_booked(site: Site) -> None:
    """Folding has two and borrows two: six are possible in the times with a limit of six."""
    booking = {"project": "folding", "tier": "spot", "request": "6 h100 for 10m"}
    assert said(site.researcher.post("bookings", booking))["code"] == "project_quota"
    terms = {"gpu_class": "h100", "limit_units": 6 * UNITS_PER_GPU, "first_hour": 22, "end_hour": 6}
    made = said(site.admin.post("quota-windows", {"project": "folding", **terms}))
    assert site.researcher.post("bookings", booking).status_code == 201
    assert [{**row, "cut": None} for row in said(site.viewer.get("quota-windows"))["items"]] == [made]
    assert site.admin.delete(f"quota-windows/{made['id']}").status_code == 204
    assert said(site.researcher.post("bookings", booking))["code"] == "project_quota"
    today = timezone.now().date()
    wrong: list[dict[str, Any]] = [
        {"first_hour": 24},
        {"end_hour": 0},
        {"weekdays": [7]},
        {"zone": "Mars/Base"},
        {"limit_units": -1},
        {"last_day": str(today - timedelta(days=2))},
        {"lab": "physics"},
        {"first_day": str(today + timedelta(days=2)), "last_day": str(today)},
        {"gpu_class": "x"},
    ]
    for each in wrong:
        status, _ = refused(site.admin, "POST", "quota-windows", {"project": "folding", **terms, **each})
        assert status in (400, 422), each


def test_only_operators_set_the_limit_of_a_tenant_at_some_times(site: Site) -> None:
    dated = {"tenant": "helix", "gpu_class": "h100", "limit_units": UNITS_PER_GPU}
    assert refused(site.admin, "POST", "quota-windows", dated) == (403, "not_allowed")
    made = said(site.operator.post("quota-windows", dated))
    assert [{**row, "cut": None} for row in said(site.viewer.get("quota-windows"))["items"]] == [made]
    assert said(site.outsider.get("quota-windows"))["items"] == []
    assert refused(site.admin, "DELETE", f"quota-windows/{made['id']}", None) == (
        403,
        "not_allowed",
    )
    with tenant_tx(site.tenant.id), as_role("portal_web"):
        assert QuotaWindow.objects.filter(id=made["id"]).delete()[0] == 0
        row = QuotaWindow.objects.get(id=made["id"])
        row.pk = None
        row._state.adding = True
        with pytest.raises(DatabaseError), transaction.atomic():
            row.save(force_insert=True)
    assert site.operator.delete(f"quota-windows/{made['id']}").status_code == 204


def test_the_snapshot_has_them_all(site: Site) -> None:
    a_lab(site, gpus=3)
    now = timezone.now()
    limit = {"project": "folding", "gpu_class": "h100", "limit_units": UNITS_PER_GPU}
    site.admin.put("person-quotas", limit)
    site.admin.put("person-quotas", {"gpu_class": "h100", "limit_units": 7, "username": "mara"})
    day = str(now.date() + timedelta(days=1))
    of_lab = {"lab": "physics", "gpu_class": "h100", "limit_units": UNITS_PER_GPU}
    site.admin.post("quota-windows", {**of_lab, "first_day": day, "last_day": day})
    with as_system():
        rules = rules_read(now)
    folding, helix, gpu = str(site.project.id), str(site.tenant.id), UNITS_PER_GPU
    (lab,) = rules["labs"]
    assert lab == LabLimit(lab.owner, helix, "h100", 3 * gpu, 0, None, (folding,))
    mara = str(site.people["researcher"].id)
    assert set(rules["persons"]) == {
        PersonLimit(folding, "", "h100", gpu),
        PersonLimit(helix, mara, "h100", 7),
    }
    (step,) = rules["overrides"]
    assert (step.owner, step.units, step.ends - step.starts) == (lab.owner, -2 * gpu, 86_400)


def starts_today(api: Api, body: dict[str, str]) -> bool:
    """Whether the first option of a quote starts within the next hour."""
    best = said(api.post("quotes", body))["options"][0]
    return datetime.fromisoformat(best["starts"]) < timezone.now() + timedelta(hours=1)


@pytest.mark.parametrize("of", [{"project": "folding"}, {"lab": "physics"}], ids=lambda of: next(iter(of)))
def test_a_limit_at_some_times_counts_where_there_is_none_at_all_times(
    site: Site, of: dict[str, str]
) -> None:
    with as_owner():
        Quota.objects.filter(project=site.project).delete()
    site.admin.post("labs", {"slug": "physics", "name": "Physics"})
    site.admin.put("projects/folding", {"lab": "physics"})
    body = {"project": "folding", "tier": "spot", "request": "2 h100 for 10m"}
    assert starts_today(site.researcher, body)
    day = timezone.now().date()
    dated = {"first_day": str(day), "last_day": str(day + timedelta(days=2)), "limit_units": UNITS_PER_GPU}
    made = site.admin.post("quota-windows", {**of, "gpu_class": "h100", **dated})
    assert made.status_code == 201, made.content
    assert not starts_today(site.researcher, body)
    assert starts_today(site.researcher, {**body, "request": "1 h100 for 10m"})


def test_a_person_has_a_limit_at_some_times_in_a_project_or_everywhere(site: Site) -> None:
    """With no limit of their own, one at some times is the only one that counts."""
    two = {"project": "folding", "tier": "spot", "request": "2 h100 for 10m"}
    one: dict[str, Any] = {"project": "folding", "username": "mara", "gpu_class": "h100"}
    tomorrow = timezone.now().date() + timedelta(days=1)
    one |= {"limit_units": UNITS_PER_GPU, "last_day": str(tomorrow)}
    assert starts_today(site.researcher, two)
    made = said(site.lead.post("quota-windows", one))
    assert (made["username"], made["project"]) == ("mara", "folding")
    assert not starts_today(site.researcher, two), "the limit lasts until tomorrow"
    assert starts_today(site.lead, two)
    # Only the person and people who may change it read it.
    assert [{**row, "cut": None} for row in said(site.researcher.get("quota-windows"))["items"]] == [made]
    assert said(site.viewer.get("quota-windows"))["items"] == []
    path = f"quota-windows/{made['id']}"
    assert refused(site.researcher, "DELETE", path, None) == (403, "not_allowed")
    assert refused(site.outsider, "DELETE", path, None) == (404, "not_found")
    assert site.lead.delete(path).status_code == 204
    assert starts_today(site.researcher, two)

    everywhere = {name: value for name, value in one.items() if name != "project"}
    assert refused(site.lead, "POST", "quota-windows", everywhere) == (403, "not_allowed")
    nobody = {**everywhere, "username": "stefan"}
    assert refused(site.admin, "POST", "quota-windows", nobody)[1] == "not_found"
    whole = said(site.admin.post("quota-windows", everywhere))
    assert (whole["project"], whole["username"]) == (None, "mara")
    assert not starts_today(site.researcher, two)
    for each in ({"lab": "physics"}, {"tenant": "helix"}):
        status, _ = refused(site.admin, "POST", "quota-windows", {**everywhere, **each})
        assert status in (400, 422)


def test_a_limit_of_a_person_at_some_times_replaces_the_one_at_all_times(site: Site) -> None:
    three = {"project": "folding", "tier": "spot", "request": "3 h100 for 10m"}
    all_times = {"project": "folding", "gpu_class": "h100", "limit_units": UNITS_PER_GPU}
    site.lead.put("person-quotas", all_times)
    assert said(site.researcher.post("bookings", three))["code"] == "person_quota"
    dated = {**all_times, "username": "mara", "limit_units": 3 * UNITS_PER_GPU}
    assert site.lead.post("quota-windows", dated).status_code == 201
    assert site.researcher.post("bookings", three).status_code == 201
    assert said(site.lead.post("bookings", three))["code"] == "person_quota"


def test_a_lab_has_a_cap_of_gpu_hours_for_its_projects_together(site: Site) -> None:
    a_lab(site, gpus=2, borrow=None)
    share = {"lab": "physics", "gpu_class": "h100", "guaranteed_units": 2 * UNITS_PER_GPU}
    for wrong in ({"cap_gpu_hours": 0}, {"cap_days": 3}, {"weight": 2}):
        assert refused(site.admin, "PUT", "quotas", {**share, **wrong})[0] in (400, 422)
    week = {**share, "cap_gpu_hours": 1, "cap_days": 7}
    made = said(site.admin.put("quotas", week))
    assert (made["cap_gpu_hours"], made["cap_days"]) == (1, 7)
    long = {"project": "folding", "tier": "standard", "request": "2 h100 for 1h"}
    answer = said(site.researcher.post("bookings", long))
    assert (answer["code"], answer["ask_for_more"]) == ("gpu_hours", None)
    assert answer["detail"].startswith("The lab Physics may have 1 GPU-hour of H100 80 GB in any 7 days")
    short = {**long, "request": "1 h100 for 10m"}
    with as_system():
        (cap,) = rules_read(timezone.now())["caps"]
    assert (cap.most, cap.rolling_days) == (UNITS_PER_GPU * 3_600, 7)
    assert starts_today(site.researcher, short)
    assert site.admin.put("projects/folding", {"lab": None}).status_code == 200
    assert site.researcher.post("bookings", long).status_code == 201
