"""Writes audit entries in the caller's transaction."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol
from uuid import UUID

from django.db.models import Model

from tenants.models import AuditEntry, Project, Tenant, User
from tenants.platform.rows import rows_write

_address: ContextVar[str] = ContextVar("audit_address", default="")


@contextmanager
def acting_from(address: str) -> Iterator[None]:
    """Records `address` as the origin of platform entries that are written inside the block."""
    before = _address.set(address)
    try:
        yield
    finally:
        _address.reset(before)


def acting_address() -> str:
    """Returns the address of `acting_from`; empty outside of a request."""
    return _address.get()


def platform_record(
    operator_id: int | None,
    action: str,
    target: tuple[str, object],
    now: datetime,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Writes an operator's action to the platform's log: in `operator_tx`, or as the system.

    `before` and `after` hold the changed values as JSON, under the same names. The address is that
    of `acting_from`; actions of `manage.py` have none.
    """
    audit_record(
        tenant_id=None,
        actor_id=operator_id,
        action=action,
        target=target,
        now=now,
        detail={"before": dict(before or {}), "after": dict(after or {})},
    )


class Acting(Protocol):
    """A person who acts in a tenant, such as `tenants.access.Actor`."""

    @property
    def user_id(self) -> int:
        """The id of the user."""

    @property
    def tenant_id(self) -> UUID:
        """The tenant in which they act."""


def actor_record(
    actor: Acting,
    action: str,
    target: tuple[str, object],
    now: datetime,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Writes one entry about an action of `actor` in their tenant; see `audit_record`."""
    audit_record(
        tenant_id=actor.tenant_id,
        actor_id=actor.user_id,
        action=action,
        target=target,
        now=now,
        detail=detail,
    )


def audited(actor: Acting, action: str, row: Model, now: datetime, *names: str) -> None:
    """Writes one entry about a row, with the named fields: `stand_in.set` is about a stand-in.

    People stand in it by their sign-in names, projects by their slugs, times in ISO 8601, amounts as text.
    """
    detail = {name: _plain(getattr(row, name)) for name in names}
    actor_record(actor, action, (action.partition(".")[0], row.pk), now, detail)


def _plain(value: object) -> object:
    if isinstance(value, User):
        return value.username
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return value.slug if isinstance(value, Project) else value or ""


def audit_record(
    *,
    tenant_id: UUID | None,
    actor_id: int | None,
    action: str,
    target: tuple[str, object],
    now: datetime,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Writes one entry; `target` is (kind, id), as in ("booking", booking.id).

    Without a tenant it is an entry of the platform's log, written in `operator_tx`.
    """
    audit_entry(
        tenant_id=tenant_id, actor_id=actor_id, action=action, target=target, now=now, detail=detail
    ).save(force_insert=True)


def audit_everywhere(
    *,
    actor_id: int | None,
    action: str,
    target: tuple[str, object],
    now: datetime,
    detail: Mapping[str, Any] | None,
) -> None:
    """Writes an operator's change for all tenants to the platform's log and every tenant's.

    `detail` has `before` and `after` as in `platform_record`. Call it in `operator_tx`."""
    tenants = Tenant.objects.order_by("slug").values_list("id", flat=True)
    audit_in((None, *tenants), actor_id=actor_id, action=action, target=target, now=now, detail=detail)


def audit_in(
    tenant_ids: Iterable[UUID | None],
    *,
    actor_id: int | None,
    action: str,
    target: tuple[str, object],
    now: datetime,
    detail: Mapping[str, Any] | None,
) -> None:
    """Writes an operator's change to the logs of these tenants; None: the platform's."""
    audit_write(
        audit_entry(
            tenant_id=tenant_id,
            actor_id=actor_id,
            action=action,
            target=target,
            now=now,
            detail=detail,
        )
        for tenant_id in tenant_ids
    )


def audit_entry(
    *,
    tenant_id: UUID | None,
    actor_id: int | None,
    action: str,
    target: tuple[str, object],
    now: datetime,
    detail: Mapping[str, Any] | None,
) -> AuditEntry:
    """Builds an entry without writing it; `audit_write` writes many in one statement."""
    kind, identifier = target
    address = _address.get() if tenant_id is None else ""
    return AuditEntry(
        tenant_id=tenant_id,
        at=now,
        actor_id=actor_id,
        action=action,
        object_kind=kind,
        object_id=str(identifier),
        detail={**(detail or {}), **({"address": address} if address else {})},
    )


def audit_write(entries: Iterable[AuditEntry]) -> None:
    """Writes entries in order, in one statement."""
    rows_write(list(entries))
