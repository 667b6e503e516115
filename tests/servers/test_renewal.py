"""Each test finds the database as its migrations left it."""

import psycopg
import pytest
from psycopg import sql

from tests.servers.servers import Servers

pytestmark = pytest.mark.turn


def _written(servers: Servers, *statements: str) -> None:
    with psycopg.connect(servers.dsn("postgres"), autocommit=True) as server:
        for statement in statements:
            server.execute(statement)


@pytest.mark.parametrize(
    "statements",
    [
        ("DELETE FROM auth_permission",),
        ("UPDATE auth_permission SET name = 'another'",),
        ("SELECT nextval('auth_permission_id_seq')",),
        ("INSERT INTO auth_group (name) VALUES ('a')",),
        ("CREATE TABLE left_over ()", "INSERT INTO left_over DEFAULT VALUES"),
        ("SET session_replication_role = replica", "ALTER TABLE auth_group DROP COLUMN name"),
        ("GRANT TRUNCATE ON auth_permission TO portal_web",),
    ],
)
def test_what_a_test_writes_is_gone(real_db: Servers, statements: tuple[str, ...]) -> None:
    # A test before this one may have drawn numbers of a sequence in a transaction that it took back.
    real_db.database_renew()
    before = _content(real_db)
    _written(real_db, *statements)
    assert _content(real_db) != before
    real_db.database_renew()
    assert _content(real_db) == before


def _content(servers: Servers) -> list[tuple[object, ...]]:
    """Rows, sequences, columns and rights."""
    with psycopg.connect(servers.dsn("postgres"), autocommit=True) as server:
        tables = [
            name
            for (name,) in server.execute(
                "SELECT relname FROM pg_class WHERE relkind = 'r'"
                " AND relnamespace = 'public'::regnamespace ORDER BY 1"
            ).fetchall()
        ]
        rows = [
            (name, row)
            for name in tables
            for row in server.execute(
                sql.SQL("SELECT r::text FROM {} r ORDER BY 1").format(sql.Identifier(name))
            ).fetchall()
        ]
        columns = server.execute(
            "SELECT attrelid::regclass::text, attname FROM pg_attribute JOIN pg_class c"
            " ON c.oid = attrelid WHERE relnamespace = 'public'::regnamespace"
            " AND NOT attisdropped ORDER BY 1, 2"
        ).fetchall()
        rights = server.execute(
            "SELECT relname, relacl::text FROM pg_class"
            " WHERE relnamespace = 'public'::regnamespace ORDER BY 1"
        ).fetchall()
        numbers = server.execute("SELECT sequencename, last_value FROM pg_sequences ORDER BY 1").fetchall()
    return [*rows, *columns, *rights, *numbers]
