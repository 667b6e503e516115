"""A tenant's directory creates, disables and removes people by SCIM 2.0, and only its own."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tenants.models import (
    ApiToken,
    AuditEntry,
    KnownPerson,
    Membership,
    Project,
    Role,
    Session,
    SignOnGroup,
    SignOnProvider,
    Tenant,
    User,
)
from tenants.platform.wall import operator_tx
from tenants.services.sign_in.sessions import session_digest
from tenants.services.sign_on.people import Claims, sign_on_person
from tests.builders import a_member, a_project, a_tenant, a_tenant_admin, a_user
from tests.roles import as_owner, as_system
from tests.web.frame.test_second_factor import is_in, key_of, with_password

pytestmark = [pytest.mark.django_db, pytest.mark.turn]
USERS, GROUPS = "/scim/v2/Users", "/scim/v2/Groups"


def token_for(admin: User, slug: str) -> str:
    page = with_password(admin).post(f"/t/{slug}/settings/directory", {"act": "set"})
    assert page.status_code == 200, page
    text = page.content.decode()
    return "gpup_scim_" + text.split(">gpup_scim_")[1].split("<")[0].strip()


def call(token: str, method: str, path: str = USERS, body: object = None) -> Any:  # noqa: ANN401
    answer: Any = Client().generic(
        method,
        path,
        json.dumps(body) if body is not None else "",
        content_type="application/scim+json",
        headers={"Authorization": f"Bearer {token}"},
    )
    is_json = "json" in answer.headers.get("Content-Type", "")
    answer.said = json.loads(answer.content) if is_json else None
    return answer


def person(name: str, **more: object) -> dict[str, object]:
    return {"userName": name, "name": {"givenName": "Ada", "familyName": "L"}, **more}


def test_people_are_created_disabled_and_removed_with_their_access() -> None:
    helix, orbit = a_tenant("helix"), a_tenant("orbit")
    admin = a_tenant_admin(helix).user
    token = token_for(admin, "helix")
    assert call("gpup_scim_no", "GET").status_code == 401
    made = call(token, "POST", body=person("ada@uni.example", externalId="sub-1"))
    assert (made.status_code, made.said["id"], made.said["active"]) == (201, "ada@helix", True)
    again = call(token, "POST", body=person("Ada@Uni.example"))
    assert (again.status_code, again.said["scimType"]) == (409, "uniqueness")
    found = call(token, "GET", f'{USERS}?filter=userName eq "ADA@uni.example"').said
    assert [each["id"] for each in found["Resources"]] == ["ada@helix"]
    user = _user("ada@helix")
    a_member(a_project(helix), user=user)
    one = f"{USERS}/ada@helix"
    off = {"Operations": [{"op": "Replace", "path": "active", "value": "False"}]}
    _something_open(helix, user)
    assert call(token, "PATCH", one, off).said["active"] is False
    with as_system():
        assert not Session.objects.filter(user=user).exists()
        assert ApiToken.objects.get(user=user).revoked is not None
    on = {"Operations": [{"op": "replace", "value": {"active": True, "name.givenName": "Eda"}}]}
    changed = call(token, "PATCH", one, on).said
    assert (changed["active"], changed["name"]["givenName"]) == (True, "Eda")
    _foreign_calls(token_for(a_tenant_admin(orbit).user, "orbit"), one)
    assert call(token, "DELETE", one).status_code == 204
    assert call(token, "GET", one).status_code == 404
    with as_system():
        assert not Membership.objects.filter(user=user).exists()
        logged = set(AuditEntry.objects.filter(tenant=helix).values_list("action", flat=True))
        assert {"directory.created", "member.disabled", "member.enabled"} <= logged


def _foreign_calls(theirs: str, one: str) -> None:
    off = {"Operations": [{"op": "replace", "path": "active", "value": False}]}
    for method, body in (("GET", None), ("PATCH", off), ("PUT", person("x")), ("DELETE", None)):
        assert call(theirs, method, one, body).status_code == 404, method
    assert call(theirs, "GET").said["totalResults"] == 1, "its own admin"


def _something_open(helix: Tenant, user: User) -> None:
    """Sessions and a token of the person."""
    now = timezone.now()
    ends = now + timedelta(hours=1)
    with as_owner():
        for digest, only in ((b"1" * 32, helix), (b"2" * 32, None)):
            Session.objects.create(
                digest=digest, user=user, only_tenant=only, created=now, last_seen=now, expires=ends
            )
        ApiToken.objects.create(
            tenant=helix, user=user, name="x", digest=b"3" * 32, created=now, expires=ends
        )


def _user(username: str) -> User:
    with as_system():
        return User.objects.get(username=username)


def test_the_last_admin_stays_and_bad_input_says_why() -> None:
    helix = a_tenant("helix")
    admin = a_tenant_admin(helix).user
    token = token_for(admin, "helix")
    one = f"{USERS}/{admin.username}"
    assert call(token, "DELETE", one).status_code == 409
    off = {"Operations": [{"op": "replace", "path": "active", "value": False}]}
    assert "last admin" in call(token, "PATCH", one, off).said["detail"]
    bad: list[tuple[str, str, object]] = [
        ("POST", USERS, []),
        ("POST", USERS, {"userName": 7}),
        ("POST", USERS, {"userName": ""}),
        ("POST", USERS, {"userName": "a\x00b"}),
        ("POST", USERS, {"userName": "x" * 200}),
        ("POST", USERS, {"userName": "x", "name": []}),
        ("POST", USERS, {"userName": "x", "active": "maybe"}),
        ("PATCH", one, {"Operations": [7]}),
        ("PATCH", one, {"Operations": [{"op": "remove", "path": "active"}]}),
        ("GET", f"{USERS}?filter=emails co x", None),
        ("GET", f"{USERS}?startIndex=²", None),
    ]
    for method, path, body in bad:
        assert call(token, method, path, body).status_code == 400, (path, body)
    assert call(token, "DELETE").status_code == 405
    assert call(token, "GET", f"{USERS}/no%00body").status_code == 404
    member = a_member(a_project(helix)).user
    assert with_password(member).get("/t/helix/settings/directory").status_code == 403
    with_password(admin).post("/t/helix/settings/directory", {"act": "remove"})
    assert call(token, "GET").status_code == 401


def a_mapping(tenant: Tenant, project: Project) -> SignOnProvider:
    """A provider, with a group that leads the project and one that administers the tenant."""
    with as_owner():
        provider = SignOnProvider.objects.create(
            tenant=tenant,
            issuer="https://id.example",
            client_id="x",
            sealed_secret="x",
            endpoints={},
            checked=timezone.now(),
            is_on=True,
        )
        SignOnGroup.objects.create(tenant=tenant, group="lab", project=project, role=Role.LEAD)
        SignOnGroup.objects.create(tenant=tenant, group="chiefs", role=Role.TENANT_ADMIN)
    return provider


def roles_of(user: User) -> set[str]:
    with as_system():
        return set(Membership.objects.filter(user=user).values_list("role", flat=True))


def patched(token: str, one: str, /, **operation: object) -> Any:  # noqa: ANN401
    return call(token, "PATCH", one, {"Operations": [operation]})


def _foreign_group_calls(theirs: str, one: str, body: object) -> None:
    for method, sent in (("GET", None), ("PUT", body), ("PATCH", {"Operations": []})):
        assert call(theirs, method, one, sent).status_code == 404, method
    assert call(theirs, "POST", GROUPS, body).status_code == 400


def _signed_on(provider: SignOnProvider, ida: User) -> None:
    """The directory's groups count, and not those of an ID token."""
    with operator_tx():
        claims = Claims(provider.issuer, "ida", groups=frozenset({"chiefs"}))
        assert sign_on_person(provider, claims, timezone.now()).user == ida


def test_groups_of_the_directory_give_and_end_roles_at_once() -> None:
    helix, orbit = a_tenant("helix"), a_tenant("orbit")
    admin = a_tenant_admin(helix).user
    provider = a_mapping(helix, a_project(helix))
    token = token_for(admin, "helix")
    for name in ("eda", "ida"):
        assert call(token, "POST", body=person(name, externalId=name)).status_code == 201
    eda, ida = _user("eda@helix"), _user("ida@helix")
    body = {"displayName": "lab", "externalId": "g-1", "members": [{"value": "eda@helix"}]}
    made = call(token, "POST", GROUPS, body)
    assert made.said["members"][0]["value"] == "eda@helix"
    assert (roles_of(eda), roles_of(ida)) == ({"lead"}, set())
    one = f"{GROUPS}/{made.said['id']}"
    # As the directories of Microsoft and Okta send it.
    patched(token, one, op="Add", path="members", value=[{"value": "ida@helix"}])
    assert roles_of(ida) == {"lead"}
    patched(token, one, op="remove", path='members[value eq "eda@helix"]')
    assert (roles_of(eda), roles_of(ida)) == (set(), {"lead"})
    _signed_on(provider, ida)
    assert roles_of(ida) == {"lead"}
    assert patched(token, one, op="replace", value={"displayName": "x"}).said["displayName"] == "x"
    assert roles_of(ida) == set()
    assert call(token, "PUT", one, body).said["externalId"] == "g-1"
    assert (roles_of(eda), roles_of(ida)) == ({"lead"}, set())
    found = call(token, "GET", f'{GROUPS}?filter=displayName eq "LAB"&excludedAttributes=members')
    assert [each.get("members", 0) for each in found.said["Resources"]] == [0]
    _foreign_group_calls(token_for(a_tenant_admin(orbit).user, "orbit"), one, body)
    assert call(token, "DELETE", f"{USERS}/eda@helix").status_code == 204
    assert call(token, "GET", one).said["members"] == []
    assert call(token, "DELETE", one).status_code == 204
    with as_system():
        logged = AuditEntry.objects.filter(tenant=helix, object_kind="directory_group")
        assert logged.filter(action="directory.group_removed").count() == 1


def test_what_a_put_of_a_group_leaves_out_stays() -> None:
    helix = a_tenant("helix")
    admin = a_tenant_admin(helix).user
    a_mapping(helix, a_project(helix))
    token = token_for(admin, "helix")
    assert call(token, "POST", body=person("eda", externalId="eda")).status_code == 201
    body = {"displayName": "lab", "externalId": "g-1", "members": [{"value": "eda@helix"}]}
    one = f"{GROUPS}/{call(token, 'POST', GROUPS, body).said['id']}"
    kept = call(token, "PUT", one, {"DisplayName": "lab"}).said
    assert ([each["value"] for each in kept["members"]], kept["externalId"]) == (["eda@helix"], "g-1")
    assert roles_of(_user("eda@helix")) == {"lead"}
    assert call(token, "PUT", one, {"displayName": "lab", "members": []}).said["members"] == []
    assert roles_of(_user("eda@helix")) == set()
    assert call(token, "GET", one).said["externalId"] == "g-1"


def test_a_group_keeps_the_last_admin_and_bad_input_changes_nothing() -> None:
    helix = a_tenant("helix")
    admin = a_tenant_admin(helix).user
    a_mapping(helix, a_project(helix))
    token = token_for(admin, "helix")
    value = [{"value": admin.username}]
    made = call(token, "POST", GROUPS, {"displayName": "chiefs", "members": value})
    one = f"{GROUPS}/{made.said['id']}"
    for answer in (
        patched(token, one, op="remove", path="members"),
        patched(token, one, op="replace", path="displayName", value="others"),
        call(token, "DELETE", one),
    ):
        assert answer.status_code == 409
        assert "last admin" in answer.said["detail"]
    assert roles_of(admin) == {"tenant_admin"}
    bad: list[tuple[str, str, object]] = [
        ("POST", GROUPS, {"displayName": ""}),
        ("POST", GROUPS, {"displayName": "*"}),
        ("POST", GROUPS, {"displayName": "a\u202eb"}),
        ("POST", GROUPS, {"displayName": "x", "members": 7}),
        ("POST", GROUPS, {"displayName": "x", "members": [{"value": 7}]}),
        ("POST", GROUPS, {"displayName": "x", "members": [{"value": "no@body"}]}),
        ("PATCH", one, {"Operations": [{"op": "move", "path": "members"}]}),
        ("PATCH", one, {"Operations": [{"op": "add", "path": "members", "value": None}]}),
        ("PATCH", one, {"Operations": [{"op": "add", "value": 7}]}),
        ("GET", f"{GROUPS}?filter=members eq x", None),
    ]
    for method, path, body in bad:
        assert call(token, method, path, body).status_code == 400, (path, body)
    again = call(token, "POST", GROUPS, {"displayName": "CHIEFS"})
    assert (again.status_code, again.said["scimType"]) == (409, "uniqueness")
    assert call(token, "GET", f"{GROUPS}/none").status_code == 404
    assert [each["value"] for each in call(token, "GET", one).said["members"]] == [admin.username]


def test_admins_disable_and_enable_people_on_their_page() -> None:
    helix = a_tenant("helix")
    admin, member = a_tenant_admin(helix).user, a_member(a_project(helix)).user
    outsider = a_user("out")
    client, theirs = with_password(admin), with_password(member)
    form = {"act": "disable", "username": member.username}
    assert b"Their roles stay" in client.post("/t/helix/people", form).content, "it asks first"
    sure = {**form, "sure": "1"}
    assert client.post("/t/helix/people", {**sure, "username": outsider.username}).status_code == 404
    assert theirs.post("/t/helix/people", sure).status_code == 404
    assert client.post("/t/helix/people", sure).status_code == 302
    assert theirs.get("/t/helix/").status_code == 404
    assert is_in(theirs), "the account itself stays open"
    assert b"Disabled people" in client.get("/t/helix/people").content
    assert client.post("/t/helix/people", {**form, "act": "enable"}).status_code == 302
    assert theirs.get("/t/helix/").status_code == 200
    with as_system():
        assert KnownPerson.objects.get(user=member).disabled is None
        assert Session.objects.filter(digest=session_digest(key_of(client))).exists()
