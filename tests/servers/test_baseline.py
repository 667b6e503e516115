"""`migrate` continues databases of the present first migrations only, and says so of others."""

import os
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256

import psycopg
import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from psycopg import sql

from portal.storage.baseline import APPS, BASELINE
from tests.servers.servers import ROOT, TEMPLATE, Servers

pytestmark = pytest.mark.turn
COPY = "portal_baseline"


class Database:
    """A migrated database of its own."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.admin = psycopg.connect(servers.dsn("postgres", COPY), autocommit=True)

    def migrate(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", "migrate", "--skip-checks", "-v", "0"],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": self.servers.dsn("portal_owner", COPY)},
            capture_output=True,
            text=True,
            check=False,
        )

    def mark(self) -> str:
        row = self.admin.execute("SELECT obj_description('public'::regnamespace, 'pg_namespace')")
        return str((row.fetchone() or [""])[0])


@pytest.fixture
def database(servers: Servers) -> Iterator[Database]:
    servers.postgres_ensure()
    name = sql.Identifier(COPY)
    with psycopg.connect(servers.admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
        template = sql.Identifier(TEMPLATE)
        made = sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER portal_owner").format(name, template)
        admin.execute(made)
        found = Database(servers)
        try:
            yield found
        finally:
            found.admin.close()
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def test_a_database_of_these_migrations_is_marked_and_continued(database: Database) -> None:
    assert database.mark().endswith(BASELINE)
    # One that was made before there were marks, and one of a later version of the same line.
    database.admin.execute("COMMENT ON SCHEMA public IS 'standard public schema'")
    assert database.migrate().returncode == 0
    assert database.mark().endswith(BASELINE)
    database.admin.execute(
        "INSERT INTO django_migrations (app, name, applied) VALUES ('tenants', '0999_later', now())"
    )
    assert database.migrate().returncode == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ALTER TABLE tenants_session DROP COLUMN verified CASCADE", "tenants_session.verified"),
        ("DROP FUNCTION portal_readers", "portal_readers"),
    ],
)
def test_a_database_of_folded_migrations_is_refused_unchanged(
    database: Database, change: str, said: str
) -> None:
    """It has the names of all migrations, and not what they make."""
    database.admin.execute("COMMENT ON SCHEMA public IS NULL")
    database.admin.execute(change)
    done = database.migrate()
    assert done.returncode == 1
    assert "can't be upgraded" in done.stderr
    assert said in done.stderr
    assert database.mark() == "None"
    database.admin.execute("COMMENT ON SCHEMA public IS 'gpu-portal, first migrations of 2020'")
    assert "are of 2020, not of" in database.migrate().stderr


# Databases have run the first two migrations of each app. A change of what they make belongs into a
# migration of its own.
FIRST = "1dd693adc0a34cf9"


@pytest.mark.django_db
def test_the_first_migrations_stay_as_databases_have_run_them() -> None:
    loader = MigrationLoader(connection)
    found = sha256()
    first = sorted(key for key in loader.disk_migrations if key[0] in APPS and key[1] < "0003")
    state = loader.project_state(first)
    for (app, name), model in sorted(state.models.items()):
        if app in APPS:
            fields = sorted((one, type(field).__name__) for one, field in model.fields.items())
            found.update(f"{app}.{name} {fields}\n".encode())
    for key in first:
        for operation in loader.disk_migrations[key].operations:
            found.update(str(getattr(operation, "sql", "")).encode())
    assert found.hexdigest()[:16] == FIRST, BASELINE
