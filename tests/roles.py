"""Become another database role for a while."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar

from django.db import connection
from django.db.utils import InternalError


def as_system() -> AbstractContextManager[None]:
    """As the solver, the readers and beat are: row-level security bypassed."""
    return as_role("portal_system")


def as_owner() -> AbstractContextManager[None]:
    """As migrations are: for rows that no program may change so."""
    return as_role("portal_owner")


_roles: ContextVar[str] = ContextVar("_roles", default="")
"""The role of the innermost `as_role`, "" outside."""


@contextmanager
def as_role(role: str) -> Iterator[None]:
    """Inside, the current connection acts as `role`; afterwards as before."""
    if _roles.get() == role:
        yield
        return
    before = _role_set(role, "SELECT current_user, set_config('role', %s, false)")
    outer = _roles.set(role)
    try:
        yield
    finally:
        _roles.reset(outer)
        # In a failed transaction nothing can be said; its rollback takes the role back itself.
        with suppress(InternalError):
            _role_set(before)


def _role_set(role: str, statement: str = "SELECT set_config('role', %s, false)") -> str:
    """Sets the role by one statement; returns the first column of its row."""
    with connection.cursor() as cursor:
        cursor.execute(statement, [role])
        return str(cursor.fetchone()[0])
