"""Tenant isolation ("the wall"): the transactions that open tenant data, and the SQL behind them.

Every table with a `tenant_id` has forced row-level security. The policy calls `portal_tenant()`,
which raises if no tenant is set, so a forgotten context is an error and never an empty page.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from tenants.platform.rows import statement_later, statements_send

TENANT_SET = "SELECT set_config('portal.tenant', %s, true)"


class ServedElsewhere(Exception):
    """Only the operators' process can do this; `portal.web.operators` forwards the request."""


@contextmanager
def tenant_tx(tenant_id: UUID) -> Iterator[None]:
    """Opens a transaction that reads and writes one tenant's rows.

    The first statement sets the tenant for this transaction, in the round trip of the second one.
    Inside an outer transaction the previous tenant is restored at the end, so nesting cannot mix
    two tenants.
    """
    if connection.in_atomic_block:
        with tenant_tx_reading(tenant_id, "NULL"):
            yield
        return
    with transaction.atomic():
        statement_later(TENANT_SET, [str(tenant_id)])
        yield


@contextmanager
def tenant_tx_reading(tenant_id: UUID, expression: str, *params: UUID) -> Iterator[Any]:
    """As `tenant_tx`; gives the value of an SQL expression, read by the statement that sets the
    tenant."""
    is_nested = connection.in_atomic_block
    with transaction.atomic():
        before = _tenant_setting_read() if is_nested else ""
        with connection.cursor() as cursor:
            cursor.execute(f"{TENANT_SET}, {expression}", [str(tenant_id), *params])
            _, value = cursor.fetchone()
        yield value
        if is_nested:
            # Rows that are sent with the end of the transaction belong to this tenant.
            statements_send()
            statement_later(TENANT_SET, [before])


@contextmanager
def tenant_read_tx(tenant_id: UUID) -> Iterator[None]:
    """As `tenant_tx`, but the database refuses to write, and nothing is kept."""
    with tenant_tx(tenant_id), transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
        yield
        # The setting lasts as long as the transaction, unless its savepoint is rolled back.
        transaction.set_rollback(True)


def _tenant_setting_read() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('portal.tenant', true)")
        return cursor.fetchone()[0] or ""


def require_operators_process() -> None:
    """Raises ServedElsewhere in a process without the database role for operators' work."""
    if settings.OPERATORS_URL:
        raise ServedElsewhere


@contextmanager
def operator_tx() -> Iterator[None]:
    """Opens a transaction of an operator, who sees every tenant. The caller writes the audit entry.

    Works only in the operators' process, whose login role may switch to `portal_ops`.
    """
    require_operators_process()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        before = cursor.fetchone()[0]
        cursor.execute("SET LOCAL ROLE portal_ops")
        yield
        cursor.execute(f'SET LOCAL ROLE "{before}"')


def protect(table: str, column: str = "tenant_id", grants: str = "SELECT, INSERT, UPDATE, DELETE") -> str:
    """SQL that enables tenant isolation on `table`; `grants` are the web's rights to its rows."""
    web = f"GRANT {grants} ON {table} TO portal_web;" if grants else ""
    return f"""
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
CREATE POLICY wall ON {table}
  USING ({column} = (SELECT portal_tenant())) WITH CHECK ({column} = (SELECT portal_tenant()));
{web}
GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO portal_system, portal_ops;
"""


def open_table(table: str, web: str = "SELECT") -> str:
    """SQL for a table without tenant data; `web` are the web's rights."""
    return f"""
GRANT {web} ON {table} TO portal_web;
GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO portal_system, portal_ops;
"""


def system_table(table: str) -> str:
    """SQL for a table that no web request may read: decisions, occupancy, solver state."""
    return f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO portal_system, portal_ops;\n"


def tenant_key(table: str, column: str, target: str, *, cascade: bool = False) -> str:
    """SQL for a foreign key within the tenant, because row security does not cover plain ones."""
    deletes = " ON DELETE CASCADE" if cascade else ""
    return f"""
ALTER TABLE {table} ADD CONSTRAINT {table}_{column}_in_tenant
  FOREIGN KEY (tenant_id, {column}) REFERENCES {target} (tenant_id, id){deletes};
"""


def append_only(table: str) -> str:
    """SQL of triggers that refuse to change or remove rows of `table`, for every role."""
    return f"""
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON {table}
  FOR EACH ROW EXECUTE FUNCTION portal_append_only();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON {table}
  FOR EACH STATEMENT EXECUTE FUNCTION portal_append_only();
"""


def callable_by(*functions: str, roles: str = "portal_web, portal_system, portal_ops") -> str:
    """SQL that lets `roles` call these functions, and nobody else but their owner."""
    named = ", ".join(functions)
    grant = f"GRANT EXECUTE ON FUNCTION {named} TO {roles};" if roles else ""
    return f"\nREVOKE EXECUTE ON FUNCTION {named} FROM PUBLIC;\n{grant}\n"


def no_right(rights: str, *tables: str, roles: str = "portal_system, portal_ops") -> str:
    """SQL that takes rights to whole tables, and to all of their columns, from `roles`."""
    return f"REVOKE {rights} ON {', '.join(tables)} FROM {roles};\n"


def updates_only(columns: Mapping[str, str], roles: str = "portal_system, portal_ops") -> str:
    """SQL that leaves `roles` the right to change the named columns, by table; "" leaves none."""
    return no_right("UPDATE", *columns, roles=roles) + "".join(
        f"GRANT UPDATE ({names}) ON {table} TO {roles};\n" for table, names in columns.items() if names
    )
