"""The next test gets the session of the one before as new, or none."""

from django.db import connection

from tests.roles import as_system
from tests.servers.kept_session import session_kept
from tests.servers.servers import Servers

_SETTINGS = """
SELECT current_user::text, current_setting('lock_timeout'), current_setting('portal.tenant', true)
"""


def _settings() -> tuple[str, ...]:
    with connection.cursor() as cursor:
        cursor.execute(_SETTINGS)
        return tuple(cursor.fetchone())


def _say(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_a_session_is_as_new(real_db: Servers) -> None:
    before = _settings()
    _say("SET ROLE portal_system")
    _say("SET lock_timeout = 5000")
    _say("SELECT set_config('portal.tenant', 'helix', false)")
    assert _settings() == ("portal_system", "5s", "helix")
    assert session_kept(connection) == connection.connection.info.backend_pid
    assert _settings() == (before[0], before[1], "")


def test_a_session_that_is_in_use_is_not_kept(real_db: Servers) -> None:
    connection.close()
    assert session_kept(connection) is None
    with as_system():
        _say("SELECT pg_advisory_lock(1, 7)")
    assert session_kept(connection) is None
    with as_system():
        _say("SELECT pg_advisory_unlock(1, 7)")
    assert session_kept(connection) is not None
    connection.set_autocommit(False)
    _say("SELECT 1")
    assert session_kept(connection) is None
    connection.rollback()
    connection.set_autocommit(True)
    assert session_kept(connection) is not None
