"""Become another database role for a while."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from django.db import connection
from django.db.utils import InternalError
from psycopg import sql


def as_system() -> AbstractContextManager[None]:
    """As the solver, the readers and beat are: row-level security bypassed."""
    return as_role("portal_system")


@contextmanager
def as_role(role: str) -> Iterator[None]:
    """Inside, the current connection acts as `role`; afterwards as before."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        before = cursor.fetchone()[0]
        _role_set(role)
    try:
        yield
    finally:
        # In a failed transaction nothing can be said; its rollback takes the role back itself.
        with suppress(InternalError):
            _role_set(before)


def _role_set(role: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
