"""Reference data: what every booking reads and people seldom change, kept in memory by version.

Triggers give a tenant's data, and the data of all, a new version with each change. A function
marked `by_version` is answered from memory inside `reference_tx` if the versions are the same as
when it was read. Elsewhere it reads. Never mark what a booking itself changes, such as balances,
and nothing that depends on the caller's rights or on the time.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar, cast
from uuid import UUID

from django.db import connection

from tenants.platform.wall import tenant_tx_reading

Arguments = ParamSpec("Arguments")
Read = TypeVar("Read")
Versions = tuple[UUID, UUID]

# A tenant's reference data takes some 100 kB.
MOST_TENANTS = 256
# More answers of one tenant than rows that a person would make.
MOST_ANSWERS = 2_000


@dataclass(frozen=True, slots=True)
class _Known:
    """What was read of one tenant at one pair of versions."""

    tenant_id: UUID
    versions: Versions
    answers: dict[Hashable, Any] = field(default_factory=dict)


_kept: OrderedDict[tuple[UUID, Versions], _Known] = OrderedDict()
_kept_lock = Lock()
_open: ContextVar[_Known | None] = ContextVar("reference", default=None)


@contextmanager
def reference_tx(tenant_id: UUID) -> Iterator[None]:
    """Opens a transaction of the tenant in which functions `by_version` answer from memory.

    The versions are read before any data, so what is kept for them is never older than they are.
    """
    with tenant_tx_reading(tenant_id, "portal_reference(%s)", tenant_id) as found:
        versions = _versions(found)
        reset = _open.set(None if versions is None else _known(tenant_id, versions))
        try:
            yield
        finally:
            _open.reset(reset)


def by_version(read: Callable[Arguments, Read]) -> Callable[Arguments, Read]:
    """Marks a function of hashable arguments that reads reference data and returns values that
    nobody changes. None is not kept, so that asking for what does not exist fills no memory."""

    @wraps(read)
    def known(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Read:
        here = _open.get()
        if here is None:
            return read(*args, **kwargs)
        key = (read, args, *sorted(kwargs.items()))
        if key in here.answers:
            return cast(Read, here.answers[key])
        answer = read(*args, **kwargs)
        # Otherwise somebody has changed it meanwhile, perhaps this transaction itself.
        if answer is not None and _versions_read(here.tenant_id) == here.versions:
            if len(here.answers) >= MOST_ANSWERS:
                here.answers.clear()
            here.answers[key] = answer
        return answer

    return known


def reference_of_tenants(table: str, events: Sequence[str] = ("INSERT", "UPDATE", "DELETE")) -> str:
    """SQL of triggers that give the tenants of changed rows a new version."""
    return "".join(
        f"""
CREATE TRIGGER reference_by_{event.lower()} AFTER {event} ON {table}
  REFERENCING {"OLD" if event == "DELETE" else "NEW"} TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION portal_reference_of_tenants();
"""
        for event in events
    )


def reference_of_all(table: str) -> str:
    """SQL of a trigger that gives the data of all tenants a new version."""
    return f"""
CREATE TRIGGER reference AFTER INSERT OR UPDATE OR DELETE ON {table}
  FOR EACH STATEMENT EXECUTE FUNCTION portal_reference_of_all();
"""


def _versions_read(tenant_id: UUID) -> Versions | None:
    """The versions of the tenant's data and of all's; None if one is missing."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT portal_reference(%s)", [tenant_id])
        return _versions(cursor.fetchone()[0])


def _versions(found: Sequence[UUID | None]) -> Versions | None:
    mine, shared = found
    return None if mine is None or shared is None else (mine, shared)


def _known(tenant_id: UUID, versions: Versions) -> _Known:
    """What is kept for these versions; the least recently used tenants are forgotten."""
    key = (tenant_id, versions)
    with _kept_lock:
        found = _kept.pop(key, None) or _Known(tenant_id, versions)
        _kept[key] = found
        while len(_kept) > MOST_TENANTS:
            _kept.popitem(last=False)
    return found
