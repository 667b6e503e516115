"""Limit cuts over REST and on pages: the question, the dry run, who sees and cancels what."""

from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.test import Client
from django.utils import timezone

from allocation.features.limit_cuts.models import LimitCut
from allocation.models import Booking, Gpu
from allocation.rules.states import State
from tenants.models import PersonQuota, Quota
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking, an_allocation
from tests.roles import as_owner, as_system

GPU = 56_000
BODY: dict[str, Any] = {"project": "folding", "gpu_class": "h100", "guaranteed_units": 0, "limit_units": 0}


@pytest.fixture
def booking(site: Site) -> Booking:
    """A booking of the researcher that runs on a GPU. Its project borrows all that it has."""
    now = timezone.now()
    with as_owner():
        Quota.objects.filter(project=site.project).update(guaranteed_units=0, borrow_limit_units=4 * GPU)
    booking = a_booking(site.project, site.people["researcher"].id, state=State.ACTIVE, starts=now)
    with as_system():
        gpu = Gpu.objects.order_by("number")[0]
        an_allocation(booking, gpu, starts=now - timedelta(hours=1), ends=now + timedelta(hours=3))
    return booking


def put(site: Site, path: str = "quotas", who: str = "admin", **more: object) -> HttpResponse:
    answer: HttpResponse = getattr(site, who).put(path, BODY | more)
    return answer


def cuts() -> list[LimitCut]:
    with as_system():
        return list(LimitCut.objects.all())


def test_a_dry_run_says_what_is_above_and_writes_nothing(site: Site, booking: Booking) -> None:
    answer = site.admin.put("quotas", BODY | {"bookings": "pause"}, Prefer="dry-run")
    cut = said(answer)["cut"]
    assert (answer.status_code, answer["Preference-Applied"]) == (200, "dry-run")
    assert (cut["used_units"], cut["limit_units"]) == (GPU, 0)
    (above,) = cut["above"]
    assert (above["booking"], above["owner"], above["units"]) == (booking.label, "mara", GPU)
    assert (above["is_planned"], above["can_pause"]) == (False, False)
    with as_system():
        assert Quota.objects.get(project=site.project).limit_units == 4 * GPU
    assert cuts() == []


def test_the_field_of_rest_is_strict_and_an_answer_can_change(site: Site, booking: Booking) -> None:
    for wrong in ("", "stop", 3, None, ["keep"]):
        assert put(site, bookings=wrong).status_code in (400, 422), wrong
    assert said(put(site))["cut"]["above"][0]["booking"] == booking.label
    assert [cut.answer for cut in cuts()] == ["drain"]
    assert said(put(site, bookings="keep"))["cut"] is not None
    assert [cut.answer for cut in cuts()] == ["keep"]
    assert said(put(site, limit_units=4 * GPU))["cut"] is None
    assert [cut.outcome for cut in cuts()] == ["raised"]
    assert said(put(site, limit_units=10**12))["cut"] is None


def test_limits_of_persons_and_labs_and_caps_are_cut(site: Site, booking: Booking) -> None:
    person = {"project": "folding", "username": "mara", "gpu_class": "h100", "limit_units": 0}
    assert said(site.lead.put("person-quotas", person | {"bookings": "keep"}))["cut"]["used_units"] == GPU
    assert said(site.lead.put("person-quotas", person | {"limit_units": None}))["cut"] is None
    assert [cut.outcome for cut in cuts()] == ["raised"]
    capped = put(site, limit_units=4 * GPU, cap_gpu_hours=1, cap_days=1)
    assert said(capped)["cut"]["cap_gpu_hours"] == 1
    with as_system():
        assert not PersonQuota.objects.exists()


def test_who_sees_and_cancels(site: Site, booking: Booking) -> None:
    put(site, bookings="drain")
    (cut,) = cuts()
    for who in ("admin", "lead", "researcher", "viewer"):
        (row,) = said(getattr(site, who).get("limit-cuts"))["items"]
        assert (row["id"], row["answer"], row["project"]) == (str(cut.id), "drain", "folding")
    assert said(site.outsider.get("limit-cuts"))["items"] == []
    at = f"limit-cuts/{cut.id}/end"
    assert site.outsider.post(at).status_code == 404
    assert [getattr(site, who).post(at).status_code for who in ("viewer", "researcher", "lead")] == [403] * 3
    assert said(site.admin.post(at))["outcome"] == "cancelled"
    assert said(site.admin.post(at))["outcome"] == "cancelled"
    assert site.admin.get("platform/limit-cuts").status_code == 403
    assert len(said(site.operator.get("platform/limit-cuts"))["items"]) == 1


def reader(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def text(answer: HttpResponseBase) -> str:
    return " ".join(unescape(b"".join(answer).decode()).split())


def test_the_page_asks_and_lists(site: Site, booking: Booking) -> None:
    admin, form = reader(site, "admin"), {"act": "save"}
    form |= {"guaranteed:h100:folding": "0", "borrow:h100:folding": "0", "lend:h100:folding": ""}
    asked = text(admin.post("/t/helix/quotas", form))
    assert "Lower the quota of" in asked
    assert f"{booking.label}</a> of mara, 1 GPU, runs until" in asked
    assert "At most 0 GPUs at once; before: at most 4 GPUs at once. In use now: 1 GPU." in asked
    assert "and is never paused" in asked
    assert asked.index('value="keep"') < asked.index('value="drain"') < asked.index('value="pause"')
    assert cuts() == []
    assert admin.post("/t/helix/quotas", form | {"sure": "1", "bookings": "keep"}).status_code == 302
    (cut,) = cuts()
    assert (cut.answer, cut.limit_units) == ("keep", 0)
    shown = text(admin.get("/t/helix/limit-cuts"))
    assert booking.label in shown
    assert "Cancel the cut" in shown
    assert "Cancel the cut" not in text(reader(site, "viewer").get("/t/helix/limit-cuts"))
    page = text(admin.get(f"/t/helix/bookings/{booking.label}"))
    assert "was lowered. This booking keeps its GPUs and its start." in page
    done = admin.post("/t/helix/limit-cuts", {"act": "end", "cut": str(cut.id)}, follow=True)
    assert "The cut is cancelled." in text(done)
    assert [cut.outcome for cut in cuts()] == ["cancelled"]


def test_the_page_of_labs_asks_about_persons(site: Site, booking: Booking) -> None:
    lead = reader(site, "lead")
    form = {"act": "person", "project": "folding", "username": "mara", "gpu_class": "h100", "limit": "0"}
    asked = text(lead.post("/t/helix/labs", form))
    assert "Lower the limit of mara in" in asked
    assert lead.post("/t/helix/labs", form | {"sure": "1", "bookings": "pause"}).status_code == 302
    assert [(cut.answer, cut.of_persons) for cut in cuts()] == [("pause", True)]
