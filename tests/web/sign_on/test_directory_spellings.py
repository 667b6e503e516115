"""Every legal spelling: applied, or an error that changes nothing. Never 200 for nothing."""

import re
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tenants.models import Membership, Project, Tenant
from tenants.platform.wall import operator_tx
from tenants.services.directory.tokens import directory_token_set
from tenants.services.sign_on.providers import Editor
from tests.builders import a_member, a_project, a_tenant, a_tenant_admin
from tests.roles import as_system
from tests.web.sign_on.test_directory import (
    GROUPS,
    USERS,
    a_mapping,
    call,
    person,
)

pytestmark = pytest.mark.django_db
USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
ADA = f"{USERS}/ada@helix"


@dataclass(frozen=True)
class Directory:
    """A directory with its token, and the tenant of which it is."""

    tenant: Tenant
    project: Project
    token: str

    def send(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401
        return call(self.token, method, path, body)

    def patch(self, path: str, *operations: object, key: str = "Operations") -> Any:  # noqa: ANN401
        return self.send("PATCH", path, {"schemas": ["x"], key: list(operations)})

    def active(self) -> bool:
        return bool(self.send("GET", ADA).said["active"])


@pytest.fixture
def directory() -> Directory:
    helix = a_tenant("helix")
    editor = Editor(helix, a_tenant_admin(helix).user_id)
    with operator_tx():
        token = directory_token_set(editor=editor, now=timezone.now())
    found = Directory(helix, a_project(helix), token)
    for name in ("ada", "bob"):
        assert found.send("POST", USERS, person(name, externalId=f"sub-{name}")).status_code == 201
    return found


OFF: list[object] = [
    {"op": "replace", "path": "active", "value": False},
    {"op": "Replace", "path": "Active", "value": "False"},
    {"OP": "ADD", "PATH": "ACTIVE", "VALUE": "false"},
    {"op": "replace", "path": f"{USER}:active", "value": False},
    {"op": "replace", "path": f"{USER.upper()}:ACTIVE", "value": False},
    {"op": "replace", "path": USER, "value": {"Active": False}},
    {"op": "replace", "value": {"ACTIVE": False}},
    {"op": "replace", "value": {f"{USER}:active": False}},
    {"op": "add", "value": {f"{USER.lower()}:Active": False, "name.givenName": "Eda"}},
    {"op": "replace", "value": {USER: {"aCtIvE": False}}},
    {"op": "replace", "value": {"id": "ada@helix", "schemas": [USER], "active": False}},
    {"op": "replace", "path": "", "value": {"active": False}},
    {"op": "replace", "path": None, "value": {"active": False}},
]


@pytest.mark.parametrize("operation", OFF, ids=str)
def test_every_spelling_of_a_patch_disables(directory: Directory, operation: object) -> None:
    answer = directory.patch(ADA, operation)
    assert (answer.status_code, answer.said["active"]) == (200, False), answer.content
    assert not directory.active()


@pytest.mark.parametrize(
    "body",
    [
        {"userName": "ada", "active": False},
        {"USERNAME": "ada", "ACTIVE": "False"},
        {"userName": "ada", f"{USER}:active": False},
        {f"{USER.upper()}:userName": "ada", f"{USER}:ACTIVE": False},
        {USER: {"userName": "ada", "Active": False}},
        {"userName": "ada", "active": False, "emails": [{"value": "no address"}], "title": 7},
    ],
    ids=str,
)
def test_every_spelling_of_a_put_disables_and_none_enables_by_silence(
    directory: Directory, body: dict[str, object]
) -> None:
    answer = directory.send("PUT", ADA, body)
    assert (answer.status_code, answer.said["active"]) == (200, False), answer.content
    assert directory.send("PUT", ADA, {"userName": "ada"}).said["active"] is False
    assert directory.send("PUT", ADA, {"userName": "ada", "Active": True}).said["active"] is True


REFUSED: list[tuple[object, str]] = [
    ({"op": "replace", "path": "Active", "value": {"Active": False}}, "invalidValue"),
    ({"op": "replace", "path": "active", "value": [False]}, "invalidValue"),
    ({"op": "replace", "path": "active", "value": "maybe"}, "invalidValue"),
    ({"op": "replace", "path": "active"}, "invalidValue"),
    ({"op": "replace", "path": "active", "value": None}, "invalidValue"),
    ({"op": "remove", "path": "active"}, "invalidValue"),
    ({"op": "remove", "path": f"{USER}:active"}, "invalidValue"),
    ({"op": "replace", "path": "aktiv", "value": False}, "invalidPath"),
    ({"op": "replace", "path": "active.value", "value": False}, "invalidPath"),
    ({"op": "replace", "path": "urn:example:2.0:User:active", "value": False}, "invalidPath"),
    ({"op": "replace", "path": f"{GROUP}:active", "value": False}, "invalidPath"),
    ({"op": "replace", "path": "active eq true", "value": False}, "invalidValue"),
    ({"op": "replace", "path": 'active[value eq "true"]', "value": False}, "invalidValue"),
    ({"op": "replace", "value": {"aktiv": False}}, "invalidValue"),
    ({"op": "replace", "value": {USER: {"aktiv": False}}}, "invalidValue"),
    ({"op": "replace", "value": {"active": False, "Active": True}}, "invalidSyntax"),
    ({"op": "replace", "value": {"active": False, f"{USER}:active": True}}, "invalidSyntax"),
    ({"op": "replace", "value": {"Active": False, USER: {"active": True}}}, "invalidSyntax"),
    ({"op": "replace", "value": {USER: {"active": False}, "active": True}}, "invalidSyntax"),
    ({"op": "replace", "value": {"active": False, "active ": True}}, "invalidSyntax"),
    ({"op": "replace", "value": False}, "invalidValue"),
    ({"op": "replace", "value": {}}, "invalidValue"),
    ({"op": "add", "path": "name", "value": {}}, "invalidValue"),
    ({"op": "delete", "path": "active"}, "invalidValue"),
    ({"path": "active", "value": False}, ""),
    ({"op": "replace", "path": "nickName", "value": "Al"}, "invalidPath"),
    ({"op": "replace", "path": 'emails[type eq "work"].value', "value": "a@b.c"}, "invalidPath"),
    ({"op": "replace", "path": "displayName", "value": "Somebody"}, "mutability"),
    ({"op": "replace", "path": "name.formatted", "value": "Somebody"}, "mutability"),
    ({"op": "replace", "path": "externalId", "value": "sub-else"}, "mutability"),
    ({"op": "replace", "path": "id", "value": "eve"}, "mutability"),
    ({"op": "replace", "value": {"id": "bob@helix", "active": False}}, ""),
]


@pytest.mark.turn
@pytest.mark.parametrize(("operation", "kind"), REFUSED, ids=str)
def test_what_cannot_be_applied_is_an_error_and_changes_nothing(
    directory: Directory, operation: object, kind: str
) -> None:
    before = directory.send("GET", ADA).said
    rename = {"op": "replace", "path": "name.familyName", "value": "Changed"}
    answer = directory.patch(ADA, rename, operation)
    assert answer.status_code == 400, answer.content
    assert answer.said.get("scimType") == kind or not kind, answer.said
    assert directory.send("GET", ADA).said == before


@pytest.mark.parametrize(
    "body",
    [
        {"userName": "ada", "aktiv": False},
        {"userName": "ada", "urn:example:2.0:User:active": False},
        {"userName": "ada", "active": {"active": False}},
        {"userName": "ada", "active": True, "ACTIVE": False},
        {"userName": "ada", "active": True, f"{USER}:active": False},
        {"active": False},
        {"userName": "ada", "externalId": "sub-else", "active": False},
        {"userName": "ada", "name": {"givenName": "Ada", "active": False}},
        {"userName": "ada", ENTERPRISE: {"department": "X", "active": False}},
    ],
    ids=str,
)
def test_a_put_that_cannot_be_applied_changes_nothing(directory: Directory, body: dict[str, object]) -> None:
    assert directory.send("PUT", ADA, body).status_code == 400
    assert directory.active()


@pytest.mark.parametrize("key", ["active", "ACTIVE", f"{USER}:active", f"{USER.upper()}:Active"])
def test_null_for_active_is_an_error_whether_it_is_on_or_off(directory: Directory, key: str) -> None:
    """By RFC 7643 null is as good as left out, and who sends it means something: never 200 for nothing."""
    whole = person("ada", externalId="sub-ada")
    for is_on in (True, False):
        assert directory.send("PUT", ADA, whole | {"active": is_on}).status_code == 200
        for method, path, body in (("PUT", ADA, whole), ("POST", USERS, person("eve"))):
            answer = directory.send(method, path, body | {key: None})
            assert (answer.status_code, answer.said["scimType"]) == (400, "invalidValue"), (method, is_on)
        assert directory.active() == is_on
    assert directory.send("PUT", ADA, whole).status_code == 200, "left out it stays as it is"
    assert not directory.active()


@pytest.mark.parametrize("operations", [None, [], {}, [7], [{}] * 101], ids=str)
def test_a_patch_without_sensible_operations_is_an_error(directory: Directory, operations: object) -> None:
    answer = directory.send("PATCH", ADA, {"Operations": operations})
    assert answer.status_code == 400, answer.content
    key = {"operations": [{"op": "replace", "path": "active", "value": False}]}
    assert directory.send("PATCH", ADA, key).said["active"] is False


@pytest.mark.parametrize("extra", ["active", "Active", f"{USER}:active", "userName"])
def test_a_patch_has_nothing_next_to_its_operations(directory: Directory, extra: str) -> None:
    rename = [{"op": "replace", "path": "name.givenName", "value": "X"}]
    answer = directory.send("PATCH", ADA, {extra: False, "Operations": rename})
    assert (answer.status_code, answer.said["scimType"]) == (400, "invalidSyntax")
    assert directory.active()


def test_two_people_never_have_one_user_name(directory: Directory) -> None:
    """Else a directory that looks for the name would switch off the other one."""
    invited = a_member(directory.project).user
    for name in (invited.username, invited.username.upper()):
        taken = directory.send("POST", USERS, person(name))
        assert taken.status_code == 409, taken.content
        renamed = directory.patch(ADA, {"op": "replace", "path": "userName", "value": name})
        assert renamed.status_code == 409
    found = directory.send("GET", f'{USERS}?filter=userName eq "{invited.username}"').said
    assert [each["id"] for each in found["Resources"]] == [invited.username]


@pytest.mark.turn
def test_the_name_of_an_invited_person_is_their_own_and_active_is_not(
    directory: Directory,
) -> None:
    member = a_member(directory.project).user
    one = f"{USERS}/{member.username}"
    renamed = directory.patch(one, {"op": "replace", "path": "name.givenName", "value": "X"})
    assert (renamed.status_code, renamed.said["scimType"]) == (400, "mutability")
    shown = directory.send("GET", one).said
    for other in OTHERS:
        for body in ({"userName": member.username, **other}, {**shown, **other}):
            answer = directory.send("PUT", one, {**body, "active": False})
            assert (answer.status_code, answer.said["scimType"]) == (400, "mutability"), body
            assert directory.send("GET", one).said == shown
    same = {"userName": member.username.upper()}
    for body in (same, {**shown}, {**same, "displayName": shown["displayName"]}):
        off = directory.send("PUT", one, {**body, "active": False})
        assert (off.status_code, off.said["active"]) == (200, False), body
        silent = {name: value for name, value in body.items() if name != "active"}
        assert directory.send("PUT", one, silent).said["active"] is False


OTHERS: list[dict[str, object]] = [
    {"userName": "else"},
    {"externalId": "sub-else"},
    {"name": {"givenName": "Else"}},
    {"name": {"familyName": "Else"}},
    {"name": {"formatted": "Somebody Else"}},
    {"displayName": "Somebody Else"},
]


def test_a_put_of_a_created_person_changes_what_it_names_and_nothing_else(directory: Directory) -> None:
    before = directory.send("GET", ADA).said
    assert directory.send("PUT", ADA, {"userName": "ada"}).said == before
    renamed = directory.send("PUT", ADA, {**before, "name": {"givenName": "Eda"}})
    assert renamed.said["name"] == {"givenName": "Eda", "familyName": "L"}
    for other in ({"displayName": "Somebody"}, {"externalId": "sub-else"}, {"name": {"formatted": "X"}}):
        answer = directory.send("PUT", ADA, {"userName": "ada", "active": False, **other})
        assert (answer.status_code, answer.said["scimType"]) == (400, "mutability"), other
    assert directory.send("GET", ADA).said == renamed.said


@pytest.mark.turn
def test_two_people_or_groups_never_have_one_external_id(directory: Directory) -> None:
    """Else a directory that looks for it finds two, and switches off one of them."""
    bob = directory.send("GET", f"{USERS}/bob@helix").said
    groups = [
        directory.send("POST", GROUPS, {"displayName": name, "externalId": f"g-{name}"}).said
        for name in ("a", "b")
    ]
    one = f"{GROUPS}/{groups[0]['id']}"
    value = {"op": "replace", "path": "externalId"}
    taken = (
        directory.send("POST", USERS, person("eve", externalId="sub-bob")),
        directory.send("PUT", ADA, {"userName": "ada", "externalId": "sub-bob"}),
        directory.patch(ADA, {**value, "value": "sub-bob"}),
        directory.send("POST", GROUPS, {"displayName": "c", "externalId": "g-b"}),
        directory.send("PUT", one, {"displayName": "a", "externalId": "g-b"}),
        directory.patch(one, {**value, "value": "g-b"}),
    )
    for answer in taken:
        assert (answer.status_code, answer.said.get("scimType")) == (409, "uniqueness"), answer.content
    found = directory.send("GET", f'{USERS}?filter=externalId eq "sub-bob"').said["Resources"]
    assert found == [bob]
    for name in ("eve", "frida"):
        assert directory.send("POST", USERS, person(name)).status_code == 201, "none has an id"
        assert directory.send("POST", GROUPS, {"displayName": name}).status_code == 201


def _is_lead(directory: Directory, name: str) -> bool:
    with as_system():
        found = Membership.objects.filter(user__username=name, project=directory.project)
        return found.filter(role="lead").exists()


@pytest.fixture
def lab(directory: Directory) -> str:
    a_mapping(directory.tenant, directory.project)
    members = [{"value": "ada@helix"}, {"value": "bob@helix"}]
    made = directory.send("POST", GROUPS, {"displayName": "lab", "Members": members})
    assert made.status_code == 201
    return f"{GROUPS}/{made.said['id']}"


@pytest.mark.parametrize(
    ("operation", "is_bob_left"),
    [
        ({"op": "remove", "path": "members"}, False),
        ({"op": "Remove", "path": "MEMBERS"}, False),
        ({"op": "remove", "path": f"{GROUP}:members"}, False),
        ({"op": "replace", "path": f"{GROUP.lower()}:Members", "value": []}, False),
        ({"op": "replace", "value": {f"{GROUP}:members": []}}, False),
        ({"op": "remove", "path": 'members[value eq "ada@helix"]'}, True),
        ({"op": "remove", "path": 'Members[VALUE EQ "ada@helix"]'}, True),
        ({"op": "remove", "path": f'{GROUP}:members[value eq "ada@helix"]'}, True),
        ({"op": "remove", "path": 'members[ value  eq "ada@helix" ]'}, True),
        ({"op": "remove", "path": 'members[(value eq "ada@helix")]'}, True),
        ({"op": "remove", "path": 'members[not (value eq "bob@helix")]'}, True),
        ({"op": "remove", "path": 'members[value eq "ada@helix" or value eq "bob@helix"]'}, False),
        ({"op": "remove", "path": 'members[value sw "ada"]'}, True),
        ({"op": "remove", "path": "members", "value": [{"value": "ada@helix"}]}, True),
        ({"op": "remove", "path": f"{GROUP}:members", "value": {"Value": "ada@helix"}}, True),
        ({"op": "replace", "path": "members", "value": [{"VALUE": "bob@helix"}]}, True),
        ({"op": "replace", "value": {"MEMBERS": [{"value": "bob@helix", "$ref": None}]}}, True),
    ],
    ids=str,
)
def test_every_spelling_takes_members_out_of_a_group(
    directory: Directory,
    lab: str,
    operation: object,
    is_bob_left: bool,  # noqa: FBT001
) -> None:
    answer = directory.patch(lab, operation)
    assert answer.status_code == 200, answer.content
    left = [each["value"] for each in directory.send("GET", lab).said["members"]]
    assert left == (["bob@helix"] if is_bob_left else [])
    assert not _is_lead(directory, "ada@helix")
    assert _is_lead(directory, "bob@helix") is is_bob_left


@pytest.mark.turn
@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": 'members[value eq "nobody"]'},
        {"op": "remove", "path": "members", "value": [{"value": "nobody"}]},
        {"op": "remove", "path": 'members[value eq "ada@helix"].value'},
        {"op": "remove", "path": 'members[value eq "ada@helix'},
        {"op": "remove", "path": 'members[bogus eq "ada@helix"]'},
        {"op": "remove", "path": "urn:example:Group:members"},
        {"op": "remove", "path": "member"},
        {"op": "remove"},
        {"op": "remove", "value": {"members": [{"value": "ada@helix"}]}},
        {"op": "remove", "path": "displayName"},
        {"op": "replace", "path": "members", "value": ["ada@helix"]},
        {"op": "replace", "path": "members", "value": [{"display": "Ada"}]},
        {"op": "replace", "value": {"member": []}},
        {"op": "remove", "path": 'members[value eq "ada@helix"].display'},
        {"op": "replace", "path": 'Members[value eq "ada@helix"].Type', "value": "Group"},
        {"op": "remove", "path": "urn:ietf:params:scim:schemas:core:2.0:Group:members.$ref"},
        {"op": "replace", "path": 'members[value eq "ada@helix"]', "value": {"display": "Eve"}},
        {"op": "add", "path": 'Members[value eq "ada@helix"]', "value": {"Type": "Group"}},
        {"op": "replace", "path": f'{GROUP}:members[value eq "ada@helix"]', "value": {}},
        {"op": "add", "path": "owners", "value": [{"value": "bob@helix"}]},
    ],
    ids=str,
)
def test_a_patch_of_a_group_that_cannot_be_applied_changes_nothing(
    directory: Directory, lab: str, operation: object
) -> None:
    rename = {"op": "replace", "path": "displayName", "value": "others"}
    answer = directory.patch(lab, rename, operation)
    assert answer.status_code == 400, answer.content
    assert _is_lead(directory, "ada@helix")
    assert directory.send("GET", lab).said["displayName"] == "lab"


def test_a_group_that_okta_renames_and_a_put_in_other_spellings(directory: Directory, lab: str) -> None:
    key = lab.rpartition("/")[2]
    renamed = directory.patch(lab, {"op": "replace", "value": {"id": key, "displayName": "x"}})
    assert renamed.said["displayName"] == "x"
    body = {GROUP: {"DISPLAYNAME": "lab", "MEMBERS": [{"value": "bob@helix"}]}}
    assert directory.send("PUT", lab, body).status_code == 200
    assert not _is_lead(directory, "ada@helix")
    assert directory.send("PUT", lab, {"displayName": "lab", "member": []}).status_code == 400


@pytest.mark.parametrize(
    ("path", "text", "count"),
    [
        (USERS, 'USERNAME Eq "ADA"', 1),
        (USERS, f'{USER}:userName eq "ada"', 1),
        (USERS, 'externalId eq "sub-ada"', 1),
        (USERS, 'userName eq "a\\"b"', 0),
        (USERS, 'userName eq "a\\u0000b"', 0),
        (GROUPS, f'{GROUP}:displayname eq "LAB"', 1),
        (USERS, 'userName eq "ada" and active eq true', None),
        (USERS, f'{GROUP}:userName eq "ada"', None),
        (USERS, "userName eq 7", None),
        (USERS, 'emails co "x"', None),
        (GROUPS, 'members eq "ada@helix"', None),
    ],
)
def test_filters_are_read_in_every_spelling_or_refused(
    directory: Directory, lab: str, path: str, text: str, count: int | None
) -> None:
    assert lab
    answer = directory.send("GET", f"{path}?filter={text}")
    if count is None:
        assert (answer.status_code, answer.said["scimType"]) == (400, "invalidFilter")
    else:
        assert answer.said["totalResults"] == count


# What the library and its framework write in their own texts.
FOREIGN = re.compile(
    r"pydantic|RFC|Figure|Input should|Field required|validation|valid (dictionary|string|boolean|list)"
    r"|instance of|Value error|Extra inputs|Operations\.0|PatchOp",
    re.IGNORECASE,
)
PUT_FAULTS: list[dict[str, object]] = [
    {"userName": 7},
    {"userName": ["ada"]},
    {"userName": "ada", "active": "maybe"},
    {"userName": "ada", "active": []},
    {"userName": "ada", "name": "Ada"},
    {"userName": "ada", "name": [1]},
    {"userName": "ada", "displayName": {"a": 1}},
    {"userName": None},
    {},
]


@pytest.mark.parametrize("body", PUT_FAULTS, ids=str)
def test_a_fault_of_a_resource_is_said_in_a_sentence_of_ours(
    directory: Directory, body: dict[str, object]
) -> None:
    said = directory.send("PUT", ADA, body).said
    assert not FOREIGN.search(said["detail"]), said
    assert said["detail"].endswith("."), said


@pytest.mark.parametrize(("operation", "kind"), REFUSED, ids=str)
def test_a_fault_of_an_operation_is_said_in_a_sentence_of_ours(
    directory: Directory, operation: object, kind: str
) -> None:
    said = directory.patch(ADA, operation).said
    assert not FOREIGN.search(said["detail"]), said
    assert said["detail"].endswith("."), said


def test_a_fault_names_the_attribute_and_what_it_must_be(directory: Directory) -> None:
    def detail(method: str, body: object) -> str:
        return str(directory.send(method, ADA, body).said["detail"])

    assert detail("PUT", {"userName": "ada", "active": "maybe"}) == "`active` must be true or false."
    assert detail("PUT", {"active": True}) == "`userName` is missing."
    assert detail("PUT", {"userName": ["ada"]}) == "`userName` must be text."
    aktiv = {"op": "replace", "path": "aktiv", "value": False}
    said = detail("PATCH", {"Operations": [aktiv]})
    assert said == "No attribute here has the path `aktiv`."
    assert detail("PATCH", {"Operations": [{**aktiv, "op": "delete"}]}).startswith("`op` must be add")


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ud800"])
def test_text_that_cannot_be_stored_is_refused(directory: Directory, text: str) -> None:
    for body in ({"userName": text}, {"userName": "ada", "name": {"givenName": text}}):
        for method, path in (("PUT", ADA), ("POST", USERS)):
            assert directory.send(method, path, body).status_code == 400
    assert directory.patch(ADA, {"op": "replace", "path": "externalId", "value": text}).status_code == 400


ODD = [
    "",
    "/",
    "/Users/%00",
    "/%ff%fe",
    "/Users//x",
    "/Nothing",
    "/Users/%E2%80%AE",
    "/Users/" + "a" * 9000,
    "/Users/1/2",
]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ODD)
def test_every_path_answers_errors_in_the_format_of_its_interface(
    directory: Directory, path: str, method: str
) -> None:
    client = Client(raise_request_exception=False)
    headers = {"authorization": f"Bearer {directory.token}"}
    answer = client.generic(method, f"/scim/v2{path}", b"{}", "application/json", headers=headers)
    assert 400 <= answer.status_code < 500
    assert answer["Content-Type"] == "application/scim+json"
    assert answer.json()["status"] == str(answer.status_code)
    assert answer.json()["detail"].endswith(".")
    answer = client.generic(method, f"/api/v1{path or '/x'}", b"{}", "application/json", headers=headers)
    if answer.status_code >= 400:
        assert answer["Content-Type"] == "application/problem+json"
