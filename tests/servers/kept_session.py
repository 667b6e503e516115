"""The session of a test with real transactions, as new for the next test.

A session of PostgreSQL that begins reads the catalogue of all tables and functions that it uses, and
plans each statement: that costs more than most tests. So a session that ended its transactions is
reset, and neither ended nor replaced.
"""

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

# What DISCARD ALL does, but for its plans and locks; the role becomes that of the connection's options.
_AS_NEW = """
CLOSE ALL; UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES;
SET SESSION AUTHORIZATION DEFAULT; RESET ALL; RESET ROLE
"""

_LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"


def session_kept(connection: BaseDatabaseWrapper) -> int | None:
    """Reset this thread's session and return its process; None if the test has broken or closed it."""
    session: psycopg.Connection | None = connection.connection
    if session is None or session.closed or not _between_transactions(connection, session):
        return None
    try:
        session.execute(_AS_NEW, prepare=False)
        locks = session.execute(_LOCKS).fetchone()
    except psycopg.Error:
        return None
    return session.info.backend_pid if locks == (0,) else None


def _between_transactions(connection: BaseDatabaseWrapper, session: psycopg.Connection) -> bool:
    is_idle = session.info.transaction_status == TransactionStatus.IDLE
    return is_idle and session.autocommit and not connection.in_atomic_block and not connection.needs_rollback
