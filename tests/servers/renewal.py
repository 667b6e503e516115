"""The test database as it was after its migrations, without a new copy for each test.

A copy costs 60 ms, and as much again in each session that finds its caches empty. Most tests only
write rows, so emptying the tables that have some is enough. An event trigger records every change
of the schema; after one, the database is copied anew.
"""

from dataclasses import dataclass

import psycopg
from psycopg import sql

# After so many renewals the deleted rows of earlier tests would slow down scans.
MOST_RENEWALS = 100
_RECORD_CHANGES = """
CREATE SCHEMA renewal;
CREATE TABLE renewal.changed ();
CREATE FUNCTION renewal.record() RETURNS event_trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog
  AS $$ BEGIN INSERT INTO renewal.changed DEFAULT VALUES; END $$;
CREATE EVENT TRIGGER renewal_changed ON ddl_command_end EXECUTE FUNCTION renewal.record();
CREATE EVENT TRIGGER renewal_dropped ON sql_drop EXECUTE FUNCTION renewal.record();
-- Also while a test has set session_replication_role, which turns the others off.
ALTER EVENT TRIGGER renewal_changed ENABLE ALWAYS;
ALTER EVENT TRIGGER renewal_dropped ENABLE ALWAYS;
"""
_TABLES = """
SELECT relname FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY relname
"""
_SEQUENCES = "SELECT sequencename, start_value, last_value FROM pg_sequences"
_COLUMNS = """
SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass
AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
_END_SESSIONS = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
AND pid IS DISTINCT FROM %s
"""


@dataclass(frozen=True)
class Renewal:
    """What a migrated database contains: its tables, those with rows, and its sequences.

    `server` is a session of the superuser in that database.
    """

    server: psycopg.Connection
    tables: tuple[str, ...]
    filled: dict[str, tuple[sql.Composable, object]]
    sequences: dict[str, tuple[int, int | None]]

    @staticmethod
    def prepare(server: psycopg.Connection) -> "Renewal":
        """Keep a copy of all rows, and record changes of the schema from now on."""
        tables = tuple(name for (name,) in server.execute(_TABLES))
        with_rows = _with_rows(server, tables)
        server.execute("CREATE SCHEMA IF NOT EXISTS renewal_rows")
        filled: dict[str, tuple[sql.Composable, object]] = {}
        for name in sorted(with_rows):
            columns = sql.SQL(", ").join(
                sql.Identifier(column) for (column,) in server.execute(_COLUMNS, [name])
            )
            kept, table = sql.Identifier("renewal_rows", name), sql.Identifier(name)
            server.execute(sql.SQL("CREATE TABLE {} AS SELECT {} FROM {}").format(kept, columns, table))
            filled[name] = (columns, _content(server, name))
        sequences = {name: (start, last) for name, start, last in server.execute(_SEQUENCES)}
        server.execute(_RECORD_CHANGES)
        return Renewal(server, tables, filled, sequences)

    def restore(self, kept: int | None) -> bool:
        """End all other sessions but that of the process `kept`, and bring back the rows; False: the
        schema has changed."""
        server = self.server
        server.execute(_END_SESSIONS, [kept])
        if server.execute("SELECT EXISTS (SELECT FROM renewal.changed)").fetchone() == (True,):
            return False
        with server.transaction():
            # Neither foreign keys nor the triggers of append-only tables apply.
            server.execute("SET LOCAL session_replication_role = replica")
            for name in sorted(_with_rows(server, self.tables) | self.filled.keys()):
                self._restore_table(name)
            for name, start, last in server.execute(_SEQUENCES).fetchall():
                before = self.sequences[name][1]
                if last != before:
                    value = (name, start if before is None else before, before is not None)
                    server.execute("SELECT setval(quote_ident(%s)::regclass, %s, %s)", value)
        return True

    def _restore_table(self, name: str) -> None:
        server, table = self.server, sql.Identifier(name)
        if name not in self.filled:
            server.execute(sql.SQL("DELETE FROM {}").format(table))
            return
        columns, content = self.filled[name]
        if _content(server, name) != content:
            server.execute(sql.SQL("DELETE FROM {}").format(table))
            server.execute(
                sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {}").format(
                    table, columns, columns, sql.Identifier("renewal_rows", name)
                )
            )


def _with_rows(server: psycopg.Connection, tables: tuple[str, ...]) -> set[str]:
    one = sql.SQL("SELECT {} WHERE EXISTS (SELECT FROM {})")
    every = (one.format(sql.Literal(name), sql.Identifier(name)) for name in tables)
    return {name for (name,) in server.execute(sql.SQL(" UNION ALL ").join(every))}


def _content(server: psycopg.Connection, name: str) -> object:
    """The number of rows, and a sum that nearly every change of them changes."""
    rows = sql.SQL("SELECT count(*), sum(hashtextextended(r::text, 0)) FROM {} AS r")
    return server.execute(rows.format(sql.Identifier(name))).fetchone()
