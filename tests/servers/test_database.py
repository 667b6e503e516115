"""Roles and servers."""

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.core.management import call_command
from django.db import DataError, connection, transaction

from allocation.models import Node
from devtools.launch.embedded import NOBODY, ValkeyAccess, redis_answers, server_home_folder
from portal.storage.database import MEMBERSHIPS, Passwords, roles_ensure
from tests.builders_allocation import a_node
from tests.roles import as_role, as_system
from tests.servers.servers import Servers

ROLES = """
SELECT rolname, rolcanlogin, rolbypassrls FROM pg_roles WHERE rolname LIKE 'portal%'
AND rolname <> 'portal_test' ORDER BY rolname
"""


@pytest.fixture
def admin(servers: Servers) -> Iterator[psycopg.Connection]:
    servers.postgres_ensure()
    with psycopg.connect(servers.admin_dsn, autocommit=True) as connected:
        yield connected


def test_each_role_logs_in_and_passes_the_wall_as_designed(admin: psycopg.Connection) -> None:
    assert admin.execute(ROLES).fetchall() == [
        ("portal_operators", True, False),
        ("portal_ops", False, True),
        ("portal_owner", True, True),
        ("portal_system", True, True),
        ("portal_web", True, False),
    ]


def test_no_role_of_the_portal_has_power_over_the_server(admin: psycopg.Connection) -> None:
    strong = admin.execute(
        "SELECT rolname FROM pg_roles WHERE rolname LIKE 'portal%'"
        " AND (rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication)"
    )
    assert strong.fetchall() == []


MEMBERS = """
SELECT r.rolname, m.rolname, inherit_option, set_option, admin_option
FROM pg_auth_members JOIN pg_roles r ON r.oid = roleid JOIN pg_roles m ON m.oid = member
WHERE m.rolname LIKE 'portal%' AND m.rolname <> 'portal_test' ORDER BY 1, 2
"""


def test_no_web_process_steps_up_and_nobody_inherits_anything(
    admin: psycopg.Connection,
) -> None:
    assert admin.execute(MEMBERS).fetchall() == [
        ("portal_ops", "portal_operators", False, True, False),
        ("portal_ops", "portal_owner", False, True, False),
        ("portal_web", "portal_operators", False, True, False),
    ]


def test_making_the_roles_again_puts_right_what_was_changed(
    admin: psycopg.Connection, servers: Servers
) -> None:
    admin.execute("ALTER ROLE portal_web BYPASSRLS CREATEDB")
    admin.execute("GRANT portal_ops TO portal_web")
    same = Passwords(*[servers.password] * 4)
    roles_ensure(servers.admin_dsn, same, database="portal_template")
    found = admin.execute("SELECT rolbypassrls, rolcreatedb FROM pg_roles WHERE rolname = 'portal_web'")
    assert found.fetchone() == (False, False)
    assert len(admin.execute(MEMBERS).fetchall()) == len(MEMBERSHIPS)


@pytest.mark.django_db
def test_tests_run_as_the_web_does() -> None:
    assert _current_role() == "portal_web"
    with as_system():
        assert _current_role() == "portal_system"
    assert _current_role() == "portal_web"


@pytest.mark.django_db
def test_an_operator_role_can_be_taken_and_is_given_back() -> None:
    with as_role("portal_ops"):
        assert _current_role() == "portal_ops"
    assert _current_role() == "portal_web"


@pytest.mark.usefixtures("real_db")
def test_the_web_may_make_no_tables() -> None:
    with connection.cursor() as cursor, pytest.raises(Exception, match="permission denied"):
        cursor.execute("CREATE TABLE mine (id int)")


def test_the_database_has_the_extension_and_belongs_to_its_owner(owner_dsn: str) -> None:
    with psycopg.connect(owner_dsn) as owner:
        found = owner.execute("SELECT extname FROM pg_extension WHERE extname = 'btree_gist'")
        assert found.fetchone() == ("btree_gist",)
        other_roles = owner.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tableowner <> 'portal_owner'"
        )
        assert other_roles.fetchall() == []


def test_valkey_lets_nobody_in_without_a_name(valkey_url: str) -> None:
    server = valkey_url.rpartition("@")[2]
    assert redis_answers(valkey_url)
    assert not redis_answers(f"redis://{server}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give its rights away")
def test_servers_started_by_root_run_as_nobody(servers: Servers, valkey_url: str) -> None:
    assert redis_answers(valkey_url)
    servers.postgres_ensure()
    for process, _ in servers.running.values():
        assert Path(f"/proc/{process.pid}").stat().st_uid == NOBODY


def test_a_folder_that_nobody_can_reach_is_replaced_for_root(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    chosen = server_home_folder(closed / "servers")
    if os.geteuid() == 0:
        assert chosen.parent == Path("/var/lib")
        assert chosen == server_home_folder(closed / "servers")
    else:
        assert chosen == closed / "servers"


def test_a_password_with_odd_characters_survives_in_the_address() -> None:
    access = ValkeyAccess(port=1, portal="a/b@c")
    assert access.url == "redis://portal:a%2Fb%40c@127.0.0.1:1"


def _current_role() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        return str(cursor.fetchone()[0])


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("field", "number"), [("cores", 1 << 40), ("generation", 1 << 80), ("cores", -(1 << 33))]
)
def test_a_number_that_its_column_can_not_hold_is_refused_and_not_cut(field: str, number: int) -> None:
    """Sent in binary 2 to the 40 would be stored as 0."""
    with as_system():
        node = a_node()
        with pytest.raises(DataError), transaction.atomic():
            Node.objects.filter(id=node.id).update(**{field: number})
        assert getattr(Node.objects.get(id=node.id), field) == getattr(node, field)


@pytest.mark.turn
@pytest.mark.django_db
def test_models_and_migrations_say_the_same() -> None:
    # Ends the command with status 1, and the test, when a migration is missing.
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
