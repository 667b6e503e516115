"""`migrate` upgrades a database of each release: it gets the catalogue of a new one, and keeps all rows."""

import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.servers.servers import ROOT, TEMPLATE, Servers

pytestmark = pytest.mark.turn
RELEASES = Path(__file__).parent
UPGRADED, COPY = "portal_upgraded", "portal_upgraded_copy"


def tool(servers: Servers, name: str, database: str, *options: str, read: bytes = b"") -> str:
    """What a program of PostgreSQL prints about `database`, as the superuser."""
    _, server = servers.running["postgres"]
    program, dsn = Path(server.command[0]).with_name(name), servers.dsn("postgres", database)
    done = subprocess.run(
        [program, *options, "--dbname", dsn], input=read, check=True, stdout=subprocess.PIPE
    )
    return done.stdout.decode()


def manage(servers: Servers, command: str, role: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", command, "--skip-checks"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": servers.dsn(role, UPGRADED)},
        capture_output=True,
        text=True,
        check=False,
    )


def rows(servers: Servers) -> dict[str, int]:
    """The number of rows of each table."""
    with psycopg.connect(servers.dsn("postgres", UPGRADED)) as link:
        tables = link.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
        ).fetchall()
        counts = sql.SQL(" UNION ALL ").join(
            sql.SQL("SELECT {}, count(*) FROM {}").format(sql.Literal(name), sql.Identifier(name))
            for (name,) in tables
        )
        return dict(link.execute(counts).fetchall())


def catalogue(servers: Servers, database: str) -> list[str]:
    """All statements that make the schema, sorted, and each column of a table alone.

    They are those of a copy, because PostgreSQL writes some conditions otherwise once they were restored.
    """
    schema = tool(servers, "pg_dump", database, "--schema-only")
    empty_database(servers, COPY)
    tool(servers, "psql", COPY, "--quiet", "--set=ON_ERROR_STOP=1", read=schema.encode())
    text = tool(servers, "pg_dump", COPY, "--schema-only", "--schema=public")
    text = re.sub(r"^(--.*|\\.*|SET .*)\n", "", text, flags=re.MULTILINE)
    found: list[str] = []
    for statement in (each.strip() for each in re.split(r";\n\n+", text)):
        if statement.startswith("CREATE TABLE"):
            name, *lines = statement.split("\n")
            found += [f"{name} {line.strip().rstrip(',')}" for line in lines]
        elif statement.startswith(("GRANT", "REVOKE")):
            found += statement.split(";\n")
        else:
            found.append(statement)
    return sorted(found)


def empty_database(servers: Servers, name: str) -> None:
    with psycopg.connect(servers.admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE template0 OWNER portal_owner").format(sql.Identifier(name))
        )


@pytest.fixture
def upgraded(servers: Servers) -> Servers:
    """The servers, with an empty database."""
    servers.postgres_ensure()
    empty_database(servers, UPGRADED)
    return servers


@pytest.mark.parametrize("release", sorted(RELEASES.glob("*.sql.xz")), ids=lambda path: path.name)
def test_a_database_of_a_release_becomes_one_of_today(upgraded: Servers, release: Path) -> None:
    dumped = lzma.decompress(release.read_bytes())
    tool(upgraded, "psql", UPGRADED, "--quiet", "--set=ON_ERROR_STOP=1", read=dumped)
    before = rows(upgraded)
    assert before["allocation_booking"] > 100
    done = manage(upgraded, "migrate", "portal_owner")
    assert done.returncode == 0, done.stderr
    after = rows(upgraded)
    lost = {name: (count, after.get(name)) for name, count in before.items() if after.get(name, -1) < count}
    assert not lost
    upgrade, new = set(catalogue(upgraded, UPGRADED)), set(catalogue(upgraded, TEMPLATE))
    assert (sorted(upgrade - new), sorted(new - upgrade)) == ([], [])
    kept = manage(upgraded, "invariants", "portal_system")
    assert kept.returncode == 0, kept.stdout + kept.stderr
