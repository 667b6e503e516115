"""Which first migrations made a database: later ones continue these only.

Migrations were folded into two for each app until release 1.0. A database of other first
migrations has the same names in `django_migrations` and lacks what was folded into them: Django
would find nothing to do, and requests would fail one by one.
"""

import re

from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import RunSQL

BASELINE = "2026-12-01"
"""The name of the first migrations of release 1.0, which stay."""
APPS = ("tenants", "billing", "allocation")
_MARK = "gpu-portal, first migrations of "
_MADE = re.compile(r"CREATE (?:OR REPLACE )?FUNCTION (\w+)")
_DROPPED = re.compile(r"DROP FUNCTION (?:IF EXISTS )?(\w+)")


def baseline_fault() -> str:
    """Why the present migrations can't continue the database; "" if they can, or if it is empty."""
    loader = MigrationLoader(connection)
    applied = {key for key in loader.applied_migrations if key[0] in APPS}
    if not applied:
        return ""
    mark = _mark()
    if mark:
        return "" if mark == BASELINE else f"its first migrations are of {mark}, not of {BASELINE}"
    missing = _missing(loader, sorted(applied & loader.disk_migrations.keys()))
    if not missing:
        return ""
    more = f" and {len(missing) - 3} more" if missing[3:] else ""
    return f"it lacks {', '.join(missing[:3])}{more}, which its migrations should have made"


def baseline_write() -> None:
    """Marks the database as made by the present first migrations, as the owner of its schema."""
    with connection.cursor() as cursor:
        cursor.execute(f"COMMENT ON SCHEMA public IS '{_MARK}{BASELINE}'")


def _mark() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT obj_description('public'::regnamespace, 'pg_namespace')")
        found = cursor.fetchone()[0] or ""
    return found.removeprefix(_MARK) if found.startswith(_MARK) else ""


def _missing(loader: MigrationLoader, applied: list[tuple[str, str]]) -> list[str]:
    """The columns and functions that the migrations made and that the database lacks."""
    models = loader.project_state(applied).apps.get_models(include_auto_created=True)
    columns = {
        f"{model._meta.db_table}.{field.column}"
        for model in models
        if model._meta.app_label in APPS and model._meta.managed
        for field in model._meta.local_concrete_fields
    }
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name || '.' || column_name FROM information_schema.columns"
            " WHERE table_schema = 'public'"
            " UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
        )
        there = {name for (name,) in cursor.fetchall()}
    return sorted((columns | _functions(loader, applied)) - there)


def _functions(loader: MigrationLoader, applied: list[tuple[str, str]]) -> set[str]:
    made: set[str] = set()
    dropped: set[str] = set()
    for key in applied:
        for operation in loader.disk_migrations[key].operations:
            if isinstance(operation, RunSQL) and isinstance(operation.sql, str):
                made |= set(_MADE.findall(operation.sql))
                dropped |= set(_DROPPED.findall(operation.sql))
    return made - dropped
