"""Service accounts: who manages them, what their tokens may do, and what outlives a person."""

import re
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.utils import timezone

from allocation.models import Booking
from tenants.models import ApiToken, AuditEntry, Membership, Role, ServiceAccount, User
from tenants.platform.wall import tenant_tx
from tests.api.builders import Api, Site, a_site, a_token, said
from tests.builders import a_member, a_session, actor_now
from tests.roles import as_owner, as_system

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
GOOD = {"project": "folding", "request": "1 h100 for 10m"}
PAGES = "/t/helix/settings/service-accounts"
NEW = {"act": "create", "name": "Nächtliche CI", "project": "folding", "role": "researcher"}


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


def browser_of(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def token_in(page: Any) -> str:  # noqa: ANN401 (the test client's response)
    found = re.search(r"gpup_pat_\w{38}", page.content.decode())
    assert found is not None, page.content.decode()
    return found[0]


def test_it_outlives_the_person_who_made_it_and_its_bookings_name_it(site: Site) -> None:
    lead = browser_of(site, "lead")
    assert PAGES in lead.get("/t/helix/organisation").content.decode()
    one = lead.post(PAGES, NEW)["Location"]
    token = token_in(lead.post(one, {"act": "token", "name": "r1", "days": "9", "scope": ["book", "read"]}))
    assert token not in lead.get(one).content.decode()
    robot = Api(token)
    me = said(robot.get("me"))
    assert me["username"] == "nachtliche-ci.folding@helix"
    assert me["name"] == "Nächtliche CI"
    assert me["roles"] == [{"project": "folding", "role": "researcher"}]
    with as_system():
        Membership.objects.filter(user=site.people["lead"]).delete()
        with as_owner():
            User.objects.filter(id=site.people["lead"].pk).update(is_active=False)
    booked = robot.post("bookings", GOOD)
    assert booked.status_code == 201, booked.content
    with as_system():
        account = ServiceAccount.objects.get()
        booking = Booking.objects.get()
        assert booking.owner_id == account.user_id
        assert ApiToken.objects.get(user=account.user).last_used is not None
    admin = browser_of(site, "admin")
    number = said(booked)["number"]
    assert "Nächtliche CI" in admin.get(f"/t/helix/bookings/{number}").content.decode()
    assert "service account" in admin.get("/t/helix/people").content.decode()
    # Only people manage: no scope and no role leads a program to more.
    assert robot.post("service-accounts", {"name": "x", "project": "folding"}).status_code == 403
    assert robot.post("tokens", {"name": "x", "scopes": ["admin"]}).status_code == 403
    assert robot.delete("sessions").status_code == 403


def test_tokens_are_replaced_with_an_overlap_and_closing_ends_all(site: Site) -> None:
    admin = browser_of(site, "admin")
    admin_one = admin.post(PAGES, NEW)["Location"]
    form = {"act": "token", "name": "r1", "days": "9", "scope": ["book", "read"]}
    robot = Api(token_in(admin.post(admin_one, form)))
    assert robot.post("bookings", GOOD).status_code == 201
    with as_system():
        first = ApiToken.objects.get(name="r1")
    second = token_in(admin.post(admin_one, {"act": "rotate", "token": str(first.id)}))
    assert Api(second).get("me").status_code == robot.get("me").status_code == 200
    admin.post(admin_one, {"act": "revoke", "token": str(first.id)})
    assert robot.get("me").status_code == 401
    assert "Close Nächtliche CI?" in admin.post(admin_one, {"act": "close"}).content.decode()
    admin.post(admin_one, {"act": "close", "sure": "1"})
    assert Api(second).get("me").status_code == 401
    assert admin.get(admin_one).status_code == 404
    with as_system():
        assert Booking.objects.count() == 1
        log = set(AuditEntry.objects.values_list("action", flat=True))
    assert {"service_account.created", "service_account.closed", "token.rotated"} <= log


def test_every_role_gets_what_it_may(site: Site) -> None:
    body = {"name": "CI", "project": "folding"}
    for who, status in [
        ("viewer", 403),
        ("researcher", 403),
        ("outsider", 422),
        ("lead", 201),
        ("admin", 201),
    ]:
        api: Api = getattr(site, who)
        assert api.post("service-accounts", body).status_code == status, who
    neighbour = Api(a_token(actor_now(a_member(site.hidden, "lead").user_id, "helix")))
    assert said(neighbour.get("service-accounts"))["items"] == []
    assert said(site.viewer.get("service-accounts"))["items"] == []
    rows = said(site.lead.get("service-accounts"))["items"]
    rows.sort(key=lambda row: row["username"], reverse=True)
    assert [row["username"] for row in rows] == ["ci.folding@helix", "2-ci.folding@helix"]
    for bad in (
        {**body, "role": "lead"},
        {**body, "role": "tenant_admin"},
        {**body, "project": "nothing"},
        {**body, "name": ""},
        {**body, "more": 1},
    ):
        assert site.lead.post("service-accounts", bad).status_code in (400, 422), bad
    one = f"service-accounts/{rows[0]['id']}"
    for scopes in (["admin"], ["read", "project"], [], ["x"]):
        assert site.lead.post(f"{one}/tokens", {"scopes": scopes}).status_code in (400, 422)
    made = site.lead.post(f"{one}/tokens", {"scopes": ["read"], "days": 365})
    assert made.status_code == 201
    token = said(made)
    assert token["project"] == "folding"
    assert token["expires"] <= said(site.lead.get("tokens"))["items"][0]["expires"], "bound by it"
    robot = Api(token["token"])
    assert robot.post("bookings", GOOD).status_code == 403
    assert robot.get("bookings").status_code == 200
    renewed = said(site.lead.post(f"{one}/tokens/{token['id']}/rotate", {"overlap_hours": 0}))
    assert robot.get("me").status_code == 401
    assert site.admin.delete(f"{one}/tokens/{renewed['id']}").status_code == 200
    assert Api(renewed["token"]).get("me").status_code == 401
    member = next(
        each
        for each in said(site.lead.get("projects/folding/members"))["items"]
        if each["username"] == "ci.folding@helix"
    )
    assert site.admin.put(f"members/{member['id']}", {"role": "lead"}).status_code == 422
    assert site.admin.delete(one).status_code == 204
    assert site.admin.get(one).status_code == 404


def test_the_database_keeps_it_in_its_project_and_asks_who_creates_it(site: Site) -> None:
    made = said(site.lead.post("service-accounts", {"name": "CI", "project": "folding"}))
    with as_system():
        user = ServiceAccount.objects.get(id=made["id"]).user
        for place, held in [
            (site.hidden, Role.VIEWER),
            (site.other_project, Role.VIEWER),
            (None, Role.TENANT_ADMIN),
        ]:
            with pytest.raises(DatabaseError, match="in its own project"), transaction.atomic():
                Membership.objects.create(
                    tenant=place.tenant if place else site.tenant,
                    project=place,
                    user=user,
                    role=held,
                )
    create = "SELECT portal_service_account_create(%s, %s, %s, 'x', 'x', %s)"
    for who, project, role in [
        ("researcher", site.project, "viewer"),
        ("outsider", site.project, "viewer"),
        ("lead", site.hidden, "viewer"),
        ("lead", site.other_project, "viewer"),
        ("lead", site.project, "lead"),
    ]:
        digest = bytes(a_session(site.people[who]).digest)
        with tenant_tx(site.tenant.id), connection.cursor() as cursor:
            cursor.execute(create, [digest, timezone.now(), project.id, role])
            assert cursor.fetchone() == (None,), (who, role)
