"""Checks of PostgreSQL: version, encoding, roles, time-outs, durability, migrations."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from portal.storage.baseline import baseline_fault
from portal.storage.database import (
    BYPASSES_ROW_SECURITY,
    EXTENSIONS,
    KEEPALIVES,
    MEMBERSHIPS,
    ROLE_TIMEOUTS,
    TIMEOUT_SETTINGS,
)
from portal.storage.public_rights import LEFT, LEFT_VALUES

RECREATE_HINT = "Run python -m portal.storage.database again, with a superuser's DATABASE_ADMIN_URL."
MIN_VERSION = 16
# These must be on, so that an accepted booking survives a power cut.
DURABLE = ("fsync", "full_page_writes", "synchronous_commit")
ROLES = """
SELECT rolname, rolbypassrls, rolcanlogin,
       rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication, coalesce(rolconfig, '{}')
FROM pg_roles WHERE rolname = ANY(%s)
"""
MEMBERS = """
SELECT m.rolname, r.rolname FROM pg_auth_members a
JOIN pg_roles r ON r.oid = a.roleid JOIN pg_roles m ON m.oid = a.member
WHERE m.rolname = ANY(%s) ORDER BY 1, 2
"""


def database_check(**_: object) -> list[CheckMessage]:
    """All findings about the database; a single one if it does not answer."""
    try:
        return [*_server(), *_roles(), *_public_rights(), *_own_role(), *_migrations()]
    except DatabaseError as error:
        return [
            Error(
                f"PostgreSQL did not answer: {str(error).strip()}",
                hint="Check DATABASE_URL, and whether the server is up.",
                id="portal.E101",
            )
        ]
    finally:
        connection.close()


def _rows(statement: str, *values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def _server() -> Iterator[CheckMessage]:
    yield from server_findings(dict(_rows("SELECT name, setting FROM pg_settings")))
    there = {name for (name,) in _rows("SELECT extname FROM pg_extension")}
    for name in (name for name in EXTENSIONS if name not in there):
        yield Error(
            f"The extension {name} is missing; bookings could overlap.",
            hint=RECREATE_HINT,
            id="portal.E104",
        )


def server_findings(shown: Mapping[str, str]) -> Iterator[CheckMessage]:
    """Findings about the server's settings, as `pg_settings` shows them."""
    if int(shown["server_version_num"]) < MIN_VERSION * 10_000:
        yield Error(
            f"PostgreSQL is {shown['server_version']}, older than {MIN_VERSION}.",
            hint=f"Upgrade the server to {MIN_VERSION} or later.",
            id="portal.E102",
        )
    if shown["server_encoding"] != "UTF8":
        yield Error(
            f"The database's encoding is {shown['server_encoding']}, not UTF8.",
            hint="Create the cluster with initdb --encoding=UTF8, and the database in it again.",
            id="portal.E103",
        )
    for name in DURABLE:
        if shown[name] == "off":
            yield Error(
                f"{name} is off: a power cut loses accepted bookings, or the database.",
                hint=f"ALTER SYSTEM SET {name} = on; also check the server's command line.",
                id="portal.E105",
            )


def _roles() -> Iterator[CheckMessage]:
    found = {row[0]: row[1:] for row in _rows(ROLES, [*BYPASSES_ROW_SECURITY])}
    for role, bypass in BYPASSES_ROW_SECURITY.items():
        if role not in found:
            yield Error(f"The role {role} is missing.", hint=RECREATE_HINT, id="portal.E106")
            continue
        is_bypassing, may_log_in, is_strong, config = found[role]
        if is_strong or (is_bypassing, may_log_in) != (bypass, role in ROLE_TIMEOUTS):
            yield Error(
                f"The role {role} has wrong attributes: it must{'' if bypass else ' not'} bypass"
                f" row-level security, must{'' if role in ROLE_TIMEOUTS else ' not'} log in, and"
                " must have no rights over the server.",
                hint=RECREATE_HINT,
                id="portal.E107",
            )
        yield from _timeouts(role, config)
    members = {(member, role) for member, role in _rows(MEMBERS, [*BYPASSES_ROW_SECURITY])}
    for member, role in sorted(members - set(MEMBERSHIPS)):
        yield Error(f"{member} can become {role}.", hint=RECREATE_HINT, id="portal.E108")


def _timeouts(role: str, config: list[str]) -> Iterator[CheckMessage]:
    settings_set = dict(line.split("=", 1) for line in config)
    wanted = asdict(ROLE_TIMEOUTS[role]) if role in ROLE_TIMEOUTS else {}
    for kind, seconds in wanted.items():
        name = TIMEOUT_SETTINGS[kind]
        if seconds and settings_set.get(name, "0").strip("0 s") == "":
            yield Warning(
                f"Sessions of {role} have no {name}: a hanging one blocks others without limit.",
                hint=RECREATE_HINT,
                id="portal.W109",
            )
    if role in ROLE_TIMEOUTS and not KEEPALIVES.keys() <= settings_set.keys():
        yield Warning(
            f"Sessions of {role} stay open for hours after their machine lost power: a standby"
            " solver waits for them.",
            hint=RECREATE_HINT,
            id="portal.W112",
        )


def _public_rights() -> Iterator[CheckMessage]:
    with connection.cursor() as cursor:
        cursor.execute(LEFT, LEFT_VALUES)
        rights = [right for (right,) in cursor.fetchall()]
    if rights:
        yield Warning(
            f"Every role of the server may {rights[0]}"
            f"{f', and {len(rights) - 1} more such rights' if rights[1:] else ''}.",
            hint=RECREATE_HINT,
            id="portal.W113",
        )


def _own_role() -> Iterator[CheckMessage]:
    wanted = ["portal_owner", "portal_system"]
    if settings.SERVES_OPERATORS:
        wanted = ["portal_operators"]
    elif settings.OPERATORS_URL:
        wanted = ["portal_web"]
    ((user,),) = _rows("SELECT session_user::text")
    if user not in wanted:
        yield Error(
            f"This process connects as {user} instead of {' or '.join(wanted)}.",
            hint="Change the user in DATABASE_URL: docs/configuration.md, Database roles.",
            id="portal.E110",
        )


def _migrations() -> Iterator[CheckMessage]:
    if fault := baseline_fault():
        yield Error(
            f"Other migrations made this database: {fault}.",
            hint="Upgrade it first with the last version before the fold: docs/guides/upgrade.md,"
            " Upgrading, From which versions.",
            id="portal.E114",
        )
    executor = MigrationExecutor(connection)
    waiting = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if waiting:
        names = ", ".join(f"{each.app_label} {each.name}" for each, _ in waiting[:3])
        yield Error(
            f"{len(waiting)} migrations are not applied: {names}{' …' if waiting[3:] else ''}.",
            hint="Run manage.py migrate as portal_owner.",
            id="portal.E111",
        )
