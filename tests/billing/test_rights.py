"""Rights to the tables of money and of the audit log, by role and column: listed, and tried."""

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from tests.billing.builders import a_budget
from tests.builders import a_project
from tests.builders_allocation import a_price_book
from tests.roles import as_system
from tests.servers.servers import Servers

ROLES = ("portal_web", "portal_system", "portal_ops")
READ, ADD = frozenset({"SELECT"}), frozenset({"SELECT", "INSERT"})
# Tables, and the rights of the web, of workers and of operators. What is missing nobody has.
TABLES = {
    "billing_account": (ADD, ADD, ADD),
    "billing_transfer": (ADD, ADD, ADD),
    "billing_closedmonth": (ADD, ADD, ADD),
    "billing_movement": (frozenset(), READ, READ),
    "billing_budget": (ADD | {"UPDATE"},) * 3,
    "billing_budgetalert": (ADD,) * 3,
    "billing_campaign": (ADD | {"UPDATE"},) * 3,
    "billing_pricebook": (READ, ADD, ADD),
    "billing_price": (READ, ADD, ADD),
    "billing_pricedraft": (frozenset(), READ, ADD | {"UPDATE"}),
    "allocation_chargesum": (READ, READ, READ),
    "tenants_auditentry": (ADD, ADD, ADD),
    "tenants_auditseal": (READ, ADD, ADD),
    "tenants_archivefile": (READ, READ, READ),
}
COLUMNS = {
    (role, table, column)
    for role in ROLES
    for table, column in (("billing_account", "limited"), ("billing_budgetalert", "cleared_at"))
}
"""Columns that a role may change without a right to the whole table."""
VERBS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "TRIGGER")
# Money is deleted by nobody; of the rest a ladder's rungs and drafts' lines are replaced.
DELETED = {"billing_guardrail"}


def expected(role: str, table: str, verb: str) -> bool:
    return verb in TABLES[table][ROLES.index(role)]


@pytest.mark.django_db
@pytest.mark.parametrize("table", TABLES)
def test_roles_have_these_rights_and_no_others(table: str) -> None:
    with connection.cursor() as cursor:
        for role in ROLES:
            for verb in VERBS:
                cursor.execute("SELECT has_table_privilege(%s, %s, %s)", [role, table, verb])
                assert cursor.fetchone() == (expected(role, table, verb),), (role, verb)
            for verb in ("INSERT", "UPDATE", "REFERENCES"):
                cursor.execute(
                    "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
                    " AND NOT attisdropped AND has_column_privilege(%s, attrelid, attname, %s)",
                    [table, role, verb],
                )
                columns = {name for (name,) in cursor.fetchall()}
                named = {name for who, where, name in COLUMNS if (who, where) == (role, table)}
                if not expected(role, table, verb):
                    assert columns == (named if verb == "UPDATE" else set()), (role, verb)


@pytest.mark.django_db
def test_every_table_of_money_is_listed() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " AND relkind IN ('r', 'v') AND relname LIKE 'billing\\_%'"
        )
        found = {name for (name,) in cursor.fetchall()}
        cursor.execute(
            "SELECT relname FROM pg_class, unnest(%s::text[]) AS role WHERE relname = ANY (%s)"
            " AND has_table_privilege(role, oid, 'DELETE')",
            [list(ROLES), list(found)],
        )
        assert {name for (name,) in cursor.fetchall()} == DELETED
    assert found - DELETED == {name for name in TABLES if name.startswith("billing_")}


@pytest.mark.parametrize("role", ROLES)
def test_each_right_that_a_role_lacks_is_refused(real_db: Servers, role: str) -> None:
    with as_system():
        project = a_project()
        a_budget(project, "100")
        a_price_book()
    tried = [statement for table in TABLES for statement in statements(table, role)]
    login = "portal_operators" if role == "portal_ops" else role
    with psycopg.connect(real_db.dsn(login), autocommit=True) as code:
        if role == "portal_ops":
            code.execute("SET ROLE portal_ops")
        code.execute("SELECT set_config('portal.tenant', %s, false)", [str(project.tenant_id)])
        assert [each for each in tried if not is_denied(code, each)] == []
        # A new account would be a way to a balance, too.
        for column in ("credits", "debits", "pending"):
            made = sql.SQL(
                "INSERT INTO billing_account (id, tenant_id, kind, currency, limited, credits,"
                " debits, pending) SELECT gen_random_uuid(), {}, 'source', 'EUR', false,"
                " ('credits' = {column})::int, ('debits' = {column})::int,"
                " ('pending' = {column})::int"
            ).format(str(project.tenant_id), column=column)
            assert is_denied(code, made.as_string(code)), column


def statements(table: str, role: str) -> list[str]:
    """What changes a row, column by column, that the role has no right to."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
            " AND NOT attisdropped AND attidentity = ''",
            [table],
        )
        columns = [name for (name,) in cursor.fetchall()]
    found = []
    if not expected(role, table, "UPDATE"):
        found += [
            f'UPDATE {table} SET "{name}" = "{name}"'  # noqa: S608 (names of the catalogue)
            for name in columns
            if (role, table, name) not in COLUMNS
        ]
    if not expected(role, table, "INSERT"):
        found.append(f"INSERT INTO {table} DEFAULT VALUES")
    return [*found, f"DELETE FROM {table}", f"TRUNCATE {table}"]  # noqa: S608 (as above)


def is_denied(code: psycopg.Connection, statement: str) -> bool:
    try:
        code.execute(statement.encode())
    except psycopg.errors.InsufficientPrivilege:
        return True
    except psycopg.errors.ObjectNotInPrerequisiteState:
        # A view over several tables is changed by nobody.
        return True
    except psycopg.errors.WrongObjectType:
        return True
    return False
