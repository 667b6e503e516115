"""Takes from PUBLIC what PostgreSQL gives to every role by default, and keeps it for who needs it.

Such code as has come into a web process could otherwise write large objects, read the statements of
other processes of its role with the hashes in them, or hold locks on which other programs wait. The
rights are of one database each, so nobody may connect to another database of the server either.
"""

from collections.abc import Sequence

import psycopg
from psycopg import sql

_PROGRAMS = ("portal_system", "portal_owner")
# Functions of PostgreSQL by a regular expression of their signature, and who may still call them.
FUNCTIONS: dict[str, tuple[str, ...]] = {
    # Large objects belong to no tenant and fill the disk; the portal has none.
    r"^lo(_|read\(|write\()": (),
    # Statements of other sessions of the same role, with their values.
    r"^pg_stat_get_(backend_)?activity\(": _PROGRAMS,
    # The solver ends the session of a turn whose process has stopped.
    r"^pg_terminate_backend\(": _PROGRAMS,
    r"^pg_cancel_backend\(": (),
    # Locks with a pair of keys are those of programs: the solver's turn, the log's seal, the
    # archive, and the webhooks. Requests wait for each other at locks with one key.
    r"^pg_(try_)?advisory_": _PROGRAMS,
    r"^pg_advisory_xact_lock\(bigint\)$": ("portal_web", "portal_ops", *_PROGRAMS),
}
VIEWS = ("pg_stat_activity",)
LANGUAGES = ("plpgsql", "sql")
SYSTEM_DATABASES = ("postgres", "template1")
_FOUND = """
SELECT p.oid::regprocedure::text FROM pg_proc p
WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.oid::regprocedure::text ~ %s ORDER BY 1
"""
# Each right that everybody still has, in words.
LEFT = """
SELECT 'call ' || p.oid::regprocedure FROM pg_proc p
WHERE p.pronamespace = 'pg_catalog'::regnamespace
  AND p.oid::regprocedure::text ~ ANY (%(functions)s)
  AND has_function_privilege('public', p.oid, 'EXECUTE')
UNION ALL
SELECT 'read ' || c.relname FROM pg_class c
WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relname = ANY (%(views)s)
  AND has_table_privilege('public', c.oid, 'SELECT')
UNION ALL
SELECT 'write ' || l.lanname FROM pg_language l
WHERE l.lanname = ANY (%(languages)s) AND has_language_privilege('public', l.oid, 'USAGE')
UNION ALL
SELECT 'connect to ' || d.datname FROM pg_database d
WHERE (d.datname = current_database() OR d.datname = ANY (%(databases)s))
  AND has_database_privilege('public', d.oid, 'CONNECT')
ORDER BY 1
"""
LEFT_VALUES = {
    "functions": [*FUNCTIONS],
    "views": [*VIEWS],
    "languages": [*LANGUAGES],
    "databases": [*SYSTEM_DATABASES],
}


def public_rights_revoke(connection: psycopg.Connection) -> None:
    """Takes the rights in the connected database; `connection` is a superuser's. Idempotent."""
    for pattern, roles in FUNCTIONS.items():
        for (named,) in connection.execute(_FOUND, [pattern]).fetchall():
            # The server wrote the name itself, with the types of the arguments.
            function = sql.SQL(named)
            connection.execute(sql.SQL("REVOKE EXECUTE ON FUNCTION {} FROM PUBLIC").format(function))
            if roles:
                connection.execute(
                    sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(function, _names(roles))
                )
    connection.execute(sql.SQL("REVOKE SELECT ON {} FROM PUBLIC").format(_names(VIEWS)))
    connection.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(_names(VIEWS), _names(_PROGRAMS)))
    connection.execute(sql.SQL("REVOKE USAGE ON LANGUAGE {} FROM PUBLIC").format(_names(LANGUAGES)))
    connection.execute(sql.SQL("GRANT USAGE ON LANGUAGE {} TO portal_owner").format(_names(LANGUAGES)))
    connection.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")


def system_databases_close(connection: psycopg.Connection) -> None:
    """Lets only superusers and roles with a grant of their own connect to the server's databases.

    There PUBLIC has the rights again that were taken in the portal's database.
    """
    for name in SYSTEM_DATABASES:
        connection.execute(
            sql.SQL("REVOKE CONNECT, TEMPORARY ON DATABASE {} FROM PUBLIC").format(sql.Identifier(name))
        )


def _names(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
