"""Rights of workers and operators to every table and column: as listed, and nothing else works.

`rights_of_programs.txt` lists them by table and role. Each was compared with what the code of that
role writes: do the same with a line that you add. Money has a stricter list in `tests/billing/`.
"""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from tests.billing.test_rights import is_denied
from tests.servers.servers import Servers

LISTED = Path(__file__).with_name("rights_of_programs.txt")
ROLES = ("portal_system", "portal_ops")
RIGHTS = """
SELECT c.relname, role,
  array(SELECT verb FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS verb
        WHERE has_table_privilege(role, c.oid, verb)),
  array(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
        AND NOT a.attisdropped AND has_column_privilege(role, c.oid, a.attnum, 'UPDATE')
        ORDER BY a.attname)
FROM pg_class c, unnest(%s::text[]) AS role
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
ORDER BY c.relname, role DESC
"""


def found() -> Iterator[str]:
    """A line for each table and role."""
    with connection.cursor() as cursor:
        cursor.execute(RIGHTS, [list(ROLES)])
        for table, role, verbs, columns in cursor.fetchall():
            some = [f"UPDATE({','.join(columns)})"] if columns and "UPDATE" not in verbs else []
            yield " ".join([table, role, *verbs, *some])


@pytest.mark.django_db
def test_workers_and_operators_have_these_rights_and_no_others() -> None:
    assert list(found()) == LISTED.read_text("utf-8").splitlines()


@pytest.mark.parametrize("role", ROLES)
def test_each_right_that_is_not_listed_is_refused(real_db: Servers, role: str) -> None:
    tried = list(statements(role))
    login = "portal_operators" if role == "portal_ops" else role
    with psycopg.connect(real_db.dsn(login), autocommit=True) as code:
        if role == "portal_ops":
            code.execute("SET ROLE portal_ops")
        assert len(tried) > 300
        assert [each for each in tried if not is_denied(code, each)] == []


def statements(role: str) -> Iterator[str]:
    """Changes and deletions of each table to which the role has no listed right."""
    for line in LISTED.read_text("utf-8").splitlines():
        table, holder, *rights = line.split(" ")
        if holder != role:
            continue
        if "DELETE" not in rights:
            yield f"DELETE FROM {table}"  # noqa: S608 (names of the catalogue)
        if "INSERT" not in rights:
            yield f"INSERT INTO {table} DEFAULT VALUES"
        if "UPDATE" in rights:
            continue
        some = next((each for each in rights if each.startswith("UPDATE(")), "UPDATE()")
        for name in columns_of(table) - {*some[len("UPDATE(") : -1].split(",")}:
            yield f'UPDATE {table} SET "{name}" = "{name}"'  # noqa: S608 (as above)


def columns_of(table: str) -> set[str]:
    """The columns that a statement can name on the left."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
            " AND NOT attisdropped AND attidentity = '' AND attgenerated = ''",
            [table],
        )
        return {name for (name,) in cursor.fetchall()}
