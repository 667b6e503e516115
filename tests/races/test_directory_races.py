"""A directory that sends two changes at the same moment: both count."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection
from django.utils import timezone

from tenants.platform.wall import operator_tx
from tenants.services.directory.tokens import directory_token_set
from tenants.services.sign_on.providers import Editor
from tests.builders import a_project, a_tenant, a_tenant_admin
from tests.servers.servers import Servers
from tests.web.sign_on.test_directory import GROUPS, USERS, call, person

pytestmark = pytest.mark.races
ROUNDS = 5


@pytest.fixture
def token(real_db: Servers) -> str:
    helix = a_tenant("helix")
    a_project(helix)
    editor = Editor(helix, a_tenant_admin(helix).user_id)
    with operator_tx():
        token = directory_token_set(editor=editor, now=timezone.now())
    for name in ("ada", "bob", "eve"):
        assert call(token, "POST", USERS, person(name)).status_code == 201
    return token


def together(token: str, path: str, *operations: Mapping[str, object]) -> None:
    """Each operation in a PATCH of its own, all at once; each is answered with 200."""
    barrier = Barrier(len(operations))

    def one(operation: Mapping[str, object]) -> int:
        try:
            connection.ensure_connection()
            barrier.wait(timeout=30)
            return int(call(token, "PATCH", path, {"Operations": [operation]}).status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(operations)) as pool:
        assert set(pool.map(one, operations)) == {200}


def test_who_is_taken_out_of_a_group_stays_out_when_another_one_is_added(token: str) -> None:
    whole = {"displayName": "lab", "members": [{"value": "ada@helix"}, {"value": "bob@helix"}]}
    group = f"{GROUPS}/{call(token, 'POST', GROUPS, whole).said['id']}"
    for _ in range(ROUNDS):
        assert call(token, "PUT", group, whole).status_code == 200
        together(
            token,
            group,
            {"op": "remove", "path": 'members[value eq "ada@helix"]'},
            {"op": "add", "path": "members", "value": [{"value": "eve@helix"}]},
        )
        left = {each["value"] for each in call(token, "GET", group).said["members"]}
        assert left == {"bob@helix", "eve@helix"}


def test_who_is_disabled_stays_so_when_their_name_changes(token: str) -> None:
    ada = f"{USERS}/ada@helix"
    for number in range(ROUNDS):
        on = {"op": "replace", "path": "active", "value": True}
        call(token, "PATCH", ada, {"Operations": [on]})
        together(
            token,
            ada,
            {"op": "replace", "path": "active", "value": False},
            {"op": "replace", "path": "name.givenName", "value": f"Ada {number}"},
        )
        shown = call(token, "GET", ada).said
        assert (shown["active"], shown["name"]["givenName"]) == (False, f"Ada {number}")
