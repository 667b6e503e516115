"""What code can do that runs in a web process: it has that process's connection and its secrets.

Everything is tried on a connection of its own that logs in as portal_web, as such code would.
"""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test import Client
from psycopg import errors

from allocation.services.decide.leading import CYCLE_LOCK, lock_give, lock_take
from portal.storage.public_rights import LEFT, LEFT_VALUES
from tenants.audit import audit_record
from tenants.models import (
    ApiToken,
    Membership,
    Password,
    PasswordProof,
    Project,
    Session,
    Tenant,
    User,
)
from tenants.platform.wall import ServedElsewhere, operator_tx, tenant_tx
from tenants.services import token_create
from tenants.services.sign_in.passwords import password_prove, password_replace
from tests.builders import (
    PASSWORD,
    a_member,
    a_project,
    a_session,
    a_user,
    an_actor,
    an_operator,
)
from tests.roles import as_owner, as_system
from tests.servers.servers import Servers

NOW = datetime(2026, 11, 2, 10, 0, tzinfo=UTC)
DENIED = (errors.InsufficientPrivilege, errors.FeatureNotSupported)


@pytest.fixture
def code(real_db: Servers) -> Iterator[psycopg.Connection]:
    """What code in a web process has: the web's own login."""
    with psycopg.connect(real_db.dsn("portal_web"), autocommit=True) as connected:
        yield connected


@pytest.fixture
def people(real_db: Servers) -> tuple[User, User]:
    """An operator, and a member of some tenant."""
    return an_operator("root"), a_member(a_project()).user


REFUSED = [
    # Becoming somebody else.
    "SET ROLE portal_ops",
    "SET ROLE portal_system",
    "SET ROLE portal_owner",
    "SET ROLE portal_operators",
    "SET SESSION AUTHORIZATION portal_ops",
    "GRANT portal_ops TO portal_web",
    "ALTER ROLE portal_web BYPASSRLS",
    "ALTER ROLE portal_operators PASSWORD 'mine'",
    "CREATE ROLE mine LOGIN",
    # Passwords.
    "SELECT encoded FROM tenants_password",
    "UPDATE tenants_password SET encoded = 'mine'",
    "INSERT INTO tenants_password VALUES (1, 'mine')",
    "DELETE FROM tenants_password",
    "COPY tenants_password TO STDOUT",
    "SELECT * FROM pg_authid",
    # Accounts.
    "UPDATE tenants_user SET is_staff = true",
    "UPDATE tenants_user SET is_superuser = true",
    "UPDATE tenants_user SET username = 'mine' WHERE username = 'root'",
    "UPDATE tenants_user SET email = 'mine@example.org'",
    "UPDATE tenants_user SET is_active = false",
    "INSERT INTO tenants_user (username, is_staff) VALUES ('mine', true)",
    "DELETE FROM tenants_user",
    # People and their sessions, but by exact keys.
    "SELECT * FROM tenants_session",
    "SELECT address FROM tenants_session",
    "DELETE FROM tenants_session",
    "SELECT digest FROM tenants_apitoken",
    "SELECT * FROM tenants_user_groups",
    "SELECT portal_memberships(1)",
    "SELECT portal_invitations(1, now())",
    "SELECT portal_person('\\x00', now())",
    "SELECT portal_holder('\\x00', now())",
    # Becoming a member, or making somebody known.
    "INSERT INTO tenants_membership (user_id) VALUES (1)",
    "UPDATE tenants_membership SET user_id = 1",
    "INSERT INTO tenants_knownperson (user_id) VALUES (1)",
    "UPDATE tenants_knownperson SET user_id = 1",
    "UPDATE tenants_apitoken SET user_id = 1",
    # Whose a session is.
    "UPDATE tenants_session SET user_id = 1",
    "UPDATE tenants_session SET digest = '\\x00'",
    "INSERT INTO tenants_session (user_id) VALUES (1)",
    # Second factors.
    "SELECT * FROM tenants_secondfactor",
    "DELETE FROM tenants_secondfactor",
    "UPDATE tenants_session SET verified = now()",
    "SELECT portal_has_second_factor(1)",
    # Single sign-on.
    "SELECT sealed_secret FROM tenants_signonprovider",
    "UPDATE tenants_signonprovider SET is_on = true",
    "INSERT INTO tenants_signongroup (role) VALUES ('tenant_admin')",
    "SELECT subject FROM tenants_signonidentity",
    "UPDATE tenants_signonidentity SET user_id = 1",
    "SELECT * FROM tenants_signonattempt",
    "UPDATE tenants_session SET only_tenant_id = NULL",
    # Mailed links, and the requests for them.
    "SELECT * FROM tenants_maillink",
    "INSERT INTO tenants_maillink (user_id) VALUES (1)",
    "UPDATE tenants_maillink SET used = NULL",
    "SELECT * FROM tenants_passwordreset",
    "SELECT portal_invitation_offer(gen_random_uuid(), now())",
    "SELECT portal_address_is_taken('root@example.org')",
    # The wall itself.
    "ALTER TABLE tenants_project DISABLE ROW LEVEL SECURITY",
    "DROP POLICY wall ON tenants_project",
    "ALTER TABLE tenants_auditentry DISABLE TRIGGER ALL",
    "SET session_replication_role = replica",
    "SET row_security = off; SELECT * FROM tenants_project",
    "TRUNCATE tenants_auditentry",
    "CREATE OR REPLACE FUNCTION portal_tenant() RETURNS uuid LANGUAGE sql AS 'SELECT NULL'",
    "ALTER FUNCTION portal_token(bytea) SECURITY INVOKER",
    # Standing in for what definer functions look for.
    "CREATE TEMPORARY TABLE tenants_password (user_id bigint, encoded text)",
    "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE SCHEMA mine",
    "CREATE TABLE public.mine (id int)",
    "CREATE OPERATOR public.= (leftarg = text, rightarg = text, function = texteq)",
    # The machine.
    "COPY tenants_gpuclass TO PROGRAM 'id'",
    "COPY tenants_gpuclass TO '/tmp/mine'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT lo_import('/etc/passwd')",
    "CREATE EXTENSION dblink",
    "LOAD 'mine'",
    # What PostgreSQL lets every role do: large objects, locks, sessions and their statements.
    "SELECT lo_creat(-1)",
    "SELECT lo_create(0)",
    "SELECT lo_from_bytea(0, 'x')",
    "SELECT lo_open(1, 131072)",
    "SELECT lo_put(1, 0, 'x')",
    "SELECT lowrite(0, 'x')",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_advisory_lock(1, 7120001)",
    "SELECT pg_try_advisory_lock(1, 7120001)",
    "SELECT pg_advisory_xact_lock(1, 7120001)",
    "SELECT pg_advisory_xact_lock_shared(1, 7120001)",
    "SELECT query FROM pg_stat_activity",
    "SELECT pg_stat_get_activity(NULL)",
    "SELECT pg_stat_get_backend_activity(1)",
    "SELECT pg_terminate_backend(1)",
    "SELECT pg_cancel_backend(1)",
    "DO $$ BEGIN LOOP NULL; END LOOP; END $$",
    "CREATE TEMPORARY SEQUENCE mine",
    "CREATE TEMPORARY VIEW mine AS SELECT 1",
    "CREATE EXTENSION postgres_fdw",
    "CREATE TYPE public.mine AS ENUM ('a')",
    "SELECT pg_ls_dir('/')",
    "SELECT lo_export(1, '/tmp/mine')",
    # What no web process needs.
    "SELECT digest FROM allocation_enrolmenttoken",
    "SELECT * FROM allocation_solverstate",
    "UPDATE allocation_node SET link_digest = NULL",
]


def test_the_database_refuses_what_a_web_process_never_does(
    code: psycopg.Connection, people: tuple[User, User]
) -> None:
    assert [statement for statement in REFUSED if not _is_refused(code, statement)] == []


def _is_refused(code: psycopg.Connection, statement: str) -> bool:
    try:
        code.execute(statement)
    except DENIED:
        return True
    return False


@pytest.mark.parametrize("database", ["postgres", "template1"])
@pytest.mark.parametrize("role", ["portal_web", "portal_operators", "portal_system"])
def test_no_program_reaches_another_database_of_the_server(
    real_db: Servers, role: str, database: str
) -> None:
    """There PUBLIC has the rights again that it lost in the portal's database."""
    with (
        pytest.raises(psycopg.OperationalError, match="permission denied for database"),
        psycopg.connect(real_db.dsn(role, database)),
    ):
        pass


PUBLIC_NEVER = [each for each in REFUSED if "lo_" in each or "lowrite" in each or "DO $$" in each]


@pytest.mark.parametrize("role", ["portal_operators", "portal_system", "portal_ops"])
def test_no_other_program_has_what_everybody_has_by_default(real_db: Servers, role: str) -> None:
    login = "portal_operators" if role == "portal_ops" else role
    with psycopg.connect(real_db.dsn(login), autocommit=True) as connected:
        if role == "portal_ops":
            connected.execute("SET ROLE portal_ops")
        assert [each for each in PUBLIC_NEVER if not _is_refused(connected, each)] == []


# Of the portal's own functions everybody may call those that read no table. What a trigger calls
# can't be called otherwise.
HARMLESS = {"portal_tenant()", "portal_labels_sane(jsonb)", "billing_cents(numeric)"}
OPEN_TO_ALL = """
SELECT p.oid::regprocedure::text FROM pg_proc p
WHERE p.pronamespace = 'public'::regnamespace AND p.prorettype <> 'trigger'::regtype
  AND has_function_privilege('public', p.oid, 'EXECUTE')
  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
UNION ALL
SELECT c.relname FROM pg_class c, aclexplode(c.relacl) a
WHERE c.relnamespace = 'public'::regnamespace AND a.grantee = 0
UNION ALL
SELECT n.nspname FROM pg_namespace n, aclexplode(n.nspacl) a
WHERE n.nspname = 'public' AND a.grantee = 0
"""


def test_nothing_of_the_portal_is_open_to_every_role(real_db: Servers) -> None:
    with psycopg.connect(real_db.owner_dsn) as owner:
        found = {row[0] for row in owner.execute(OPEN_TO_ALL)}
        assert found == HARMLESS
        assert owner.execute(LEFT, LEFT_VALUES).fetchall() == []


def test_no_lock_of_a_web_process_stops_the_decisions(code: psycopg.Connection) -> None:
    """Requests wait for each other at locks with one key; whatever it is, the solver decides."""
    with code.transaction():
        for key in (CYCLE_LOCK, 1, (1 << 32) + CYCLE_LOCK):
            code.execute("SELECT pg_advisory_xact_lock(%s::bigint)", [key])
        with as_system():
            assert lock_take()
            lock_give()


def test_no_tenant_is_read_without_saying_it(code: psycopg.Connection, people: tuple[User, User]) -> None:
    with pytest.raises(DENIED, match="tenant context missing"):
        code.execute("SELECT * FROM tenants_project")


def test_a_hash_is_never_given_away(code: psycopg.Connection, people: tuple[User, User]) -> None:
    """The salt is; what is compared is only answered with whose it is."""
    with as_system():
        stored = Password.objects.get(user=people[0]).encoded
    form = code.execute("SELECT portal_password_form('root')").fetchone()
    assert form is not None
    assert stored.startswith(form[0])
    assert len(stored) - len(form[0]) >= 32
    for guess in (form[0], stored[:-1], "%", "", None):
        held = code.execute("SELECT portal_password_holder('root', %s)", [guess]).fetchone()
        assert held == (None,)


def test_nobody_without_a_usable_password_can_be_signed_in(
    code: psycopg.Connection, people: tuple[User, User]
) -> None:
    with as_owner():
        Password.objects.filter(user=people[0]).update(encoded="!locked")
    held = code.execute("SELECT portal_password_holder('root', '!locked')").fetchone()
    assert held == (None,)


def test_a_password_is_not_overwritten_without_the_one_before(
    code: psycopg.Connection, people: tuple[User, User]
) -> None:
    said = code.execute("SELECT portal_password_change('root', 'a$b$c', 'md5$a$b')").fetchone()
    assert said == (False,)


def test_a_session_is_not_made_an_operators(
    code: psycopg.Connection, people: tuple[User, User], client: Client
) -> None:
    """Not by its data either, though the secret that signs it is known."""
    operator, member = people
    client.force_login(member)
    with as_system():
        mine = Session.objects.get()
    said = code.execute("SELECT portal_session_sign_in(%s, 'root', 'a$b$c')", [bytes(mine.digest)]).fetchone()
    assert said == (None,)
    stolen = client.session
    stolen["_auth_user_id"] = str(operator.id)
    data = stolen.encode(stolen._get_session())  # type: ignore[attr-defined] # as signed by us
    code.execute("SELECT portal_session_update(%s, %s, now() + '1h')", [bytes(mine.digest), data])
    assert client.session["_auth_user_id"] == str(member.id)
    assert client.get("/ops/tiers").status_code == 404


def test_a_token_is_not_made_for_an_operator(code: psycopg.Connection, people: tuple[User, User]) -> None:
    operator, member = people
    with as_owner():
        tenant = Project.objects.get().tenant_id
        made, _ = token_create(
            actor=an_actor(a_member(Project.objects.get(), user=operator)),
            name="t",
            days=1,
            now=NOW,
        )
        own, _ = token_create(actor=an_actor(a_member(a_project(), user=a_user())), name="t", days=1, now=NOW)
    code.execute("SELECT set_config('portal.tenant', %s, false)", [str(tenant)])
    insert = (
        "INSERT INTO tenants_apitoken (id, tenant_id, user_id, name, digest, prefix, created,"
        " expires, scopes) VALUES (gen_random_uuid(), %s, %s, 'x', %s, 'x', now(),"
        " now() + '1 day', '{read}')"
    )
    digest = hashlib.sha256(b"mine").digest()
    with pytest.raises(DENIED, match="operators"):
        code.execute(insert, [tenant, operator.id, digest])
    for change in ("digest = %s", "expires = now() + '9 years', digest = %s"):
        with pytest.raises(DENIED):
            code.execute(
                f"UPDATE tenants_apitoken SET {change} WHERE id = %s",  # noqa: S608 (constants)
                [digest, made.id],
            )
    # An ordinary token that is given to an operator is one, too.
    code.execute(insert, [tenant, member.id, digest])
    with pytest.raises(DENIED):
        code.execute("UPDATE tenants_apitoken SET user_id = %s WHERE name = 'x'", [operator.id])
    # Revoking works, as does noting the use; a revoked one stays so.
    code.execute("UPDATE tenants_apitoken SET last_used = now(), revoked = now() WHERE id = %s", [made.id])
    with pytest.raises(DENIED, match="begins anew"):
        code.execute("UPDATE tenants_apitoken SET revoked = NULL WHERE id = %s", [made.id])
    assert own.expires == NOW + timedelta(days=1)


def _people(code: psycopg.Connection, tenant: Tenant) -> set[int]:
    code.execute("SELECT set_config('portal.tenant', %s, false)", [str(tenant.id)])
    return {row[0] for row in code.execute("SELECT id FROM tenants_user").fetchall()}


def test_people_are_read_in_their_own_tenants_only(
    code: psycopg.Connection, people: tuple[User, User], owner_dsn: str
) -> None:
    operator, member = people
    with as_system():
        own = Project.objects.get()
        gone = a_member(own)
        gone.delete()
    neighbour, helper = a_member(a_project()), an_operator("helper")
    with operator_tx():
        audit_record(tenant_id=neighbour.tenant_id, actor_id=helper.id, action="x", target=("x", 1), now=NOW)
    with pytest.raises(DENIED, match="tenant context missing"):
        code.execute("SELECT username, email FROM tenants_user")
    assert _people(code, own.tenant) == {member.id, gone.user_id}
    assert _people(code, neighbour.tenant) == {neighbour.user_id, helper.id}
    assert not code.execute("SELECT FROM tenants_user WHERE username = 'root'").fetchall()
    # What code writes makes nobody known.
    code.execute(
        "INSERT INTO tenants_auditentry (tenant_id, at, actor_id, action, object_kind, object_id,"
        " detail) VALUES (%s, now(), %s, 'x', 'x', 'x', '{}')",
        [neighbour.tenant_id, member.id],
    )
    token = (
        "INSERT INTO tenants_apitoken (id, tenant_id, user_id, name, digest, prefix, created,"
        " expires, scopes) VALUES (gen_random_uuid(), %s, %s, 'x', 'x', 'x', now(),"
        " now() + '1 day', '{read}')"
    )
    with pytest.raises(DENIED, match="members of the tenant"):
        code.execute(token, [neighbour.tenant_id, member.id])
    assert _people(code, neighbour.tenant) == {neighbour.user_id, helper.id}
    with psycopg.connect(owner_dsn, autocommit=True) as owner:
        owner.execute("ALTER TABLE tenants_user DISABLE ROW LEVEL SECURITY")
    assert _people(code, neighbour.tenant) >= {operator.id, member.id, neighbour.user_id}


def test_what_belongs_to_no_tenant_is_answered_to_its_own_key_only(
    code: psycopg.Connection, people: tuple[User, User]
) -> None:
    member = people[1]
    with as_owner():
        own = Project.objects.get()
        made, clear = token_create(
            actor=an_actor(Membership.objects.get(user=member)), name="t", days=300, now=NOW
        )
    elsewhere = a_member(a_project(), user=member)
    session = bytes(a_session(member).digest)
    token = hashlib.sha256(clear.encode()).digest()

    def rows(function: str, key: bytes) -> list[Any]:
        return code.execute(f"SELECT * FROM {function}(%s, now())", [key]).fetchall()  # noqa: S608

    assert rows("portal_account", session) == rows("portal_account", token)
    both = {str(own.tenant_id), str(elsewhere.tenant_id)}
    assert {str(row[0]) for row in rows("portal_memberships_of", session)} == both
    # A token is its person's in one tenant.
    (only,) = rows("portal_memberships_of", token)
    assert only[0] == own.tenant_id
    assert len(rows("portal_sessions_of", token)) == 1
    for function in (
        "portal_account",
        "portal_memberships_of",
        "portal_sessions_of",
        "portal_invitations_to",
        "portal_session",
    ):
        for key in (b"", b"guessed", str(member.id).encode(), member.username.encode()):
            assert rows(function, key) == []
    with as_system():
        ApiToken.objects.filter(id=made.id).update(revoked=NOW)
    assert rows("portal_account", token) == []


@pytest.mark.django_db
def test_the_web_process_passes_an_operators_new_token_on(settings: object) -> None:
    actor = an_actor(a_member(a_project(), user=an_operator()))
    settings.OPERATORS_URL = "http://127.0.0.1:1"  # type: ignore[attr-defined] # pytest-django's
    with tenant_tx(actor.tenant_id), pytest.raises(ServedElsewhere):
        token_create(actor=actor, name="t", days=1, now=NOW)


@pytest.mark.django_db
def test_people_change_their_own_password_and_all_their_sessions_end(client: Client) -> None:
    user, other = a_user(), a_user()
    client.force_login(user)
    Client().force_login(other)
    proof = password_replace(password_prove(user.username, PASSWORD), "staple under the moon")
    with as_system():
        assert [session.user_id for session in Session.objects.all()] == [other.id]
    assert proof == password_prove(user.username, "staple under the moon")
    assert _holder(proof) == user.id
    assert _holder(password_prove(user.username, PASSWORD)) is None


def _holder(proof: PasswordProof) -> int | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT portal_password_holder(%s, %s)", [proof.username, proof.presented])
        found: int | None = cursor.fetchone()[0]
    return found
