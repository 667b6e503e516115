"""Terms and training: what a class or a tier demands before people book it."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.db.models import F
from django.test import Client
from django.utils import timezone

from allocation.features.requirements.expiry import requirements_expiring_notify
from allocation.features.requirements.models import Acceptance, Requirement
from portal.integrations.notifications.delivery import people_notify
from tenants.models import AuditEntry, Notification, OutboxMessage, User
from tenants.platform.wall import tenant_tx
from tests.api.builders import Api, Site, a_site, row_counts, said
from tests.roles import as_owner, as_system

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
WANTED = {"project": "folding", "tier": "spot", "request": "1 h100 for 1h"}
TEXT = {
    "of": "tier",
    "target": "spot",
    "kind": "terms",
    "name": "Fair use",
    "text": "Use it fairly.\nRelease what you don't need.",
}


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


def demand(api: Api, **changed: object) -> dict[str, Any]:
    answer = api.post("requirements", {**TEXT, **changed})
    assert answer.status_code == 201, answer.content
    made: dict[str, Any] = said(answer)
    return made


def refused(api: Api, code: str, **more: object) -> dict[str, Any]:
    before = row_counts()
    problem: dict[str, Any] = said(api.post("bookings", {**WANTED, **more}))
    assert problem.get("code") == code, problem
    assert problem["rule"]
    assert row_counts() == before
    return problem


def test_a_tier_demands_a_text_and_each_new_version_anew(site: Site) -> None:
    booked = said(site.researcher.post("bookings", WANTED))
    for api in (site.researcher, site.lead, site.viewer):
        assert api.post("requirements", TEXT).status_code == 403
    first = demand(site.admin)
    problem = refused(site.researcher, "terms_missing")
    assert "“Fair use”, version 1" in problem["detail"]
    assert problem["numbers"]["requirement"] == first["id"]
    assert problem["owner"] == "tenant_admin"
    path, tag = f"bookings/{booked['number']}", {"if_match": "*"}
    longer = said(site.researcher.send("PATCH", path, {"duration": "PT2H"}, headers=tag))
    assert longer["code"] == "terms_missing", longer
    assert site.researcher.post("bookings", {**WANTED, "tier": "standard"}).status_code < 300
    accept = f"requirements/{first['id']}/accept"
    assert site.outsider.post(accept).status_code == 404, "another tenant's text"
    assert site.researcher.post(accept).status_code == 201
    assert site.researcher.post("bookings", WANTED).status_code < 300
    refused(site.lead, "terms_missing")
    (mine,) = said(site.researcher.get("requirements"))["items"]
    assert mine["is_met"]
    second = demand(site.admin, text="Use it very fairly.")
    assert second["version"] == 2
    refused(site.researcher, "terms_missing")
    assert said(site.researcher.post(accept))["code"] == "new_version"
    (row,) = said(site.admin.get(f"requirements/{second['id']}/acceptances"))["items"]
    assert (row["version"], row["address"]) == (1, "127.0.0.1")
    assert site.lead.get(f"requirements/{second['id']}/acceptances").status_code == 404
    assert site.admin.post(f"requirements/{second['id']}/end").status_code == 200
    assert site.researcher.post("bookings", WANTED).status_code < 300
    with as_system():
        logged = AuditEntry.objects.filter(object_kind="requirement").values_list("action")
        assert {action for (action,) in logged} == {
            "requirement.set",
            "requirement.accepted",
            "requirement.ended",
        }


def test_a_class_demands_a_training_that_runs_out(site: Site) -> None:
    training = {**TEXT, "of": "class", "target": "h100", "kind": "training", "name": "Safety"}
    assert site.admin.post("requirements", training).status_code == 403
    made = demand(site.operator, **{**training, "valid_days": 30})
    problem = refused(site.researcher, "training_missing")
    assert problem["owner"] == "operator"
    people = f"requirements/{made['id']}/acceptances"
    today = timezone.now().date()
    day = {"user": site.people["researcher"].username, "day": today.isoformat()}
    assert site.researcher.post(people, day).status_code == 404
    assert said(site.researcher.post(f"requirements/{made['id']}/accept"))["code"] == "not_a_text"
    future = {**day, "day": (today + timedelta(days=2)).isoformat()}
    assert said(site.admin.post(people, future))["code"] == "bad_day"
    foreign = {**day, "user": site.people["outsider"].username}
    assert said(site.admin.post(people, foreign))["code"] == "not_found"
    old = {**day, "day": (today - timedelta(days=31)).isoformat()}
    assert site.admin.post(people, old).status_code == 201
    assert "was valid until" in refused(site.researcher, "training_missing")["detail"]
    assert site.admin.post(people, day).status_code == 201
    assert site.researcher.post("bookings", WANTED).status_code < 300
    assert site.admin.post(f"requirements/{made['id']}/end").status_code in (403, 404)
    assert site.operator.post(f"requirements/{made['id']}/end").status_code == 200


def test_the_page_accepts_by_one_click_and_rows_cant_be_forged(site: Site) -> None:
    made = demand(site.admin)
    client, address = Client(), "/t/helix/requirements"
    client.force_login(site.people["researcher"])
    refusal = client.post("/t/helix/book", {"q": "1 h100 1h", "tier": "spot", "act": "book"})
    page = client.get(address).content.decode()
    assert f'id="r-{made["id"]}"' in page
    assert "Require a text" not in page
    del refusal
    form = {"act": "accept", "requirement": made["id"]}
    assert client.post(address, form)["Location"] == address
    assert "Accept version" not in client.get(address).content.decode()
    for act in ("set", "end", "record"):
        sent = {"act": act, "requirement": made["id"], "target": "spot", "user": "1"}
        day = {"day": "2026-01-01", "kind": "terms", "name": "x", "text": "x"}
        assert client.post(address, {**sent, **day}).status_code == 403, act
    client.force_login(site.people["admin"])
    assert "127.0.0.1" in client.get(address).content.decode()
    # The web's role can't change a row of either table.
    for model, values in ((Acceptance, {"until": None}), (Requirement, {"text": "Other"})):
        with pytest.raises(DatabaseError), transaction.atomic(), tenant_tx(site.tenant.id):
            model.objects.update(**values)
    with as_system():
        with as_owner():
            User.objects.filter(id=site.people["researcher"].id).update(
                username=f"erased-{site.people['researcher'].id}"
            )
        assert Acceptance.objects.get().address is None, "erasing forgets the address"


def test_a_quote_says_what_another_tier_demands(site: Site) -> None:
    made = demand(site.admin)
    quoted = said(site.researcher.post("quotes", {**WANTED, "tier": "standard"}))
    notes = {each["tier"]: " ".join(each["notes"]) for each in quoted["options"]}
    assert "“Fair use”, version 1" in notes["spot"]
    assert "Fair use" not in notes["standard"]
    page = Client()
    page.force_login(site.people["researcher"])
    shown = page.get("/t/helix/book", {"q": "1 h100 1h standard", "project": "folding"})
    assert f'href="/t/helix/requirements#r-{made["id"]}"' in shown.content.decode()
    assert site.researcher.post("quotes", WANTED).status_code == 403


def test_people_are_notified_before_a_training_runs_out_once_each_time(site: Site) -> None:
    training = {**TEXT, "of": "class", "target": "h100", "kind": "training", "name": "Safety"}
    made = demand(site.operator, **training, valid_days=60)
    day = {"user": "mara", "day": timezone.now().date().isoformat()}
    path = f"requirements/{made['id']}/acceptances"
    assert site.admin.post(path, day).status_code == 201
    with as_system():
        ends = Acceptance.objects.get().until
        assert ends is not None
        sent = [requirements_expiring_notify(ends - timedelta(days=days)) for days in (15, 13, 12, 2, 1)]
        people_notify(list(OutboxMessage.objects.filter(kind="requirement.expiring")), ends)
        (first, second) = Notification.objects.order_by("id")
    assert sent == [0, 1, 0, 1, 0]
    assert {first.title, second.title} == {"Your training “Safety” runs out soon"}
    assert (first.user_id, first.path) == (site.people["researcher"].pk, f"requirements#r-{made['id']}")
    # A new training replaces the old one, which says nothing any more.
    with as_owner():
        Acceptance.objects.update(warned_days=None, recorded=F("recorded") - timedelta(days=1))
    assert site.admin.post(path, day).status_code == 201
    with as_system():
        assert requirements_expiring_notify(ends - timedelta(days=2)) == 1


def test_a_tier_demands_a_text_in_the_named_projects_only(site: Site) -> None:
    assert site.admin.post("requirements", {**TEXT, "projects": ["climate"]}).status_code == 422
    elsewhere = demand(site.admin, projects=["hidden"])
    assert elsewhere["projects"] == ["hidden"]
    assert site.researcher.post("bookings", WANTED).status_code == 201
    # A new version names other projects; it is on the page with its projects.
    client = Client()
    client.force_login(site.people["admin"])
    form = {"act": "set", "target": "spot", "kind": "terms", "name": "Fair use", "text": "Be fair."}
    page = "/t/helix/requirements"
    assert client.post(page, {**form, "projects": ["folding", "hidden"]}).status_code == 302
    assert "in folding, hidden" in client.get(page).content.decode()
    assert client.post(page, {**form, "projects": ["climate"]}).status_code == 404
    refused(site.researcher, "terms_missing")
    quote = said(site.researcher.post("quotes", {**WANTED, "tier": "standard"}))
    spot = [each for each in quote["options"] if each["tier"] == "spot"]
    assert all("Fair use" in str(each["notes"]) for each in spot)
    of_class = {**TEXT, "of": "class", "target": "h100", "projects": ["folding"]}
    assert said(site.operator.post("requirements", of_class))["code"] == "bad_projects"


def test_a_text_of_several_lines_is_typed_and_refused_at_its_field(site: Site) -> None:
    client, page = Client(), "/t/helix/requirements"
    client.force_login(site.people["admin"])
    form = {"act": "set", "target": "spot", "kind": "terms", "name": "Fair use", "projects": "folding"}
    # A browser sends each end of a line as two characters.
    assert client.post(page, {**form, "text": "Be fair.\r\n\tBe kind."}).status_code == 302
    with as_system():
        assert Requirement.objects.get().text == "Be fair.\n\tBe kind."
    for fault, typed in (
        ({"text": "Be fair.\r\nBe\u202e kind."}, ">Be fair. Be kind.</textarea>"),
        ({"text": "Be fair.", "name": "Be\rfair"}, 'value="Be fair"'),
        ({"text": "Be fair.\r\nBe kind.", "valid_days": "9999"}, ">Be fair.\r\nBe kind.</textarea>"),
    ):
        refused = client.post(page, {**form, **fault})
        assert refused.status_code == 422, fault
        assert typed in refused.content.decode(), fault
        assert 'value="folding"' in refused.content.decode()
        assert refused.content.decode().count('class="err"') == 1
    with as_system():
        assert Requirement.objects.count() == 1


def test_a_day_that_is_no_day_of_a_training_is_refused_on_the_page(site: Site) -> None:
    made = demand(site.admin, kind="training")
    client, page = Client(), "/t/helix/requirements"
    client.force_login(site.people["admin"])
    form = {"act": "record", "requirement": made["id"], "user": "mara"}
    later = timezone.localdate() + timedelta(days=3)
    why = {f"{later}": "is today or before", "": "training: This is needed", "2026-02-30": "Write a day"}
    for day, sentence in why.items():
        refused = client.post(page, {**form, "day": day})
        assert refused.status_code == 422, day
        assert sentence in refused.content.decode(), day
    assert client.post(page, {**form, "day": "2026-11-02"}).status_code == 302
    assert "2 Nov 2026" in client.get(page).content.decode()
    with as_system():
        assert Acceptance.objects.get().at.isoformat() == "2026-11-02T00:00:00+00:00"
        assert AuditEntry.objects.get(action="requirement.recorded").detail["day"] == "2026-11-02"
