"""A backup comes back while the nodes have gone on: pg_dump, pg_restore, and the raised epoch."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections
from django.test import Client
from psycopg import sql

from allocation.models import Backup, Booking
from allocation.services.nodes.restores import nodes_ahead
from portal.storage.backups import BackupError, backup_read
from tests.builders_allocation import an_ask
from tests.faults.test_site_killed import SECONDS, Site, is_enrolled
from tests.roles import as_system
from tests.servers.servers import DATABASE, ROOT, Servers
from tests.servers.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.turn]
THREE, TWO, ONE = 9, 14, 19
"""NVML's numbers of the profiles 3g.40gb, 2g.20gb and 1g.10gb."""


@pytest.fixture
def site(real_db: Servers, live_portal: str, tmp_path: Path) -> Iterator[Site]:
    found = Site(real_db, tmp_path, live_portal)
    found.reader()
    yield found
    found.stop()
    real_db.valkey_ensure()


def _tool(servers: Servers, name: str, *options: str) -> None:
    """pg_dump or pg_restore as the superuser: nobody else may read past the walls."""
    _, server = servers.running["postgres"]
    tool = Path(server.command[0]).with_name(name)
    subprocess.run([tool, *options, "--dbname", servers.dsn("postgres")], check=True)


def _profiles(site: Site) -> list[int]:
    return sorted(profile for _, profile, _, _ in site.hardware())


def _restore(servers: Servers, backup: Path) -> None:
    connections.close_all()
    name = sql.Identifier(DATABASE)
    with psycopg.connect(servers.admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
        admin.execute(sql.SQL("CREATE DATABASE {} OWNER portal_owner").format(name))
    _tool(servers, "pg_restore", "--exit-on-error", str(backup))


def test_nodes_follow_a_restored_backup_once_the_epoch_is_raised(site: Site, tmp_path: Path) -> None:
    site.agent()
    site.until(is_enrolled)
    kept = site.request(an_ask(profile="3g.40gb"))
    site.until_all("active", kept)
    backup = tmp_path / "backup"
    _tool(site.servers, "pg_dump", "--format=custom", "--file", str(backup))

    # After the backup one ends, and one that the backup knows nothing of begins.
    site.release(kept)
    site.until_all("ended", kept)
    lost = site.request(an_ask(profile="2g.20gb"))
    site.until_all("active", lost)
    assert len(site.hardware()) == 1

    site.kill("reader")
    _restore(site.servers, backup)
    site.reader()
    new = site.request(an_ask(profile="1g.10gb"))
    site.until_all("starting", new)
    # What the portal says now is older than what the node has heard: the node continues as it was,
    # and is not trusted.
    with as_system():
        assert not Booking.objects.filter(id=lost.id).exists()
        assert Booking.objects.get(id=kept.id).state == "active"
        wait_until(lambda: nodes_ahead() != [], seconds=SECONDS)
        assert _profiles(site) == [TWO]

        call_command("epoch_raise")
        assert nodes_ahead() == []
    wait_until(lambda: _profiles(site) == [THREE, ONE], seconds=SECONDS)
    site.until_all("active", kept, new)
    site.ends_well(kept, new)


def test_a_backup_is_checked_restored_and_names_what_came_after_it(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_ADMIN_URL", site.servers.admin_dsn)
    site.agent()
    site.until(is_enrolled)
    kept = site.request(an_ask(profile="3g.40gb"))
    site.until_all("active", kept)
    backup = tmp_path / "backup"
    _backup_made(backup)

    # One that a node was notified of, and one that nobody but the database knows.
    notified = site.request(an_ask(profile="2g.20gb"))
    site.until_all("active", notified)
    waiting = site.request(an_ask())
    site.kill("reader")
    assert "is not empty" in _restored(site.servers, backup)
    connections.close_all()
    said = _restored(site.servers, backup, "--replace")
    with psycopg.connect(site.servers.admin_dsn, autocommit=True) as admin:
        name = sql.Identifier(DATABASE)
        admin.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO portal_test").format(name))
    found = json.loads((backup / "accepted-after.json").read_text())
    assert [each["booking"] for each in found["known_to_nodes"]] == [notified.label]
    before = {each["booking"] for each in found["in_the_database_before"]}
    assert before == {notified.label, waiting.label}
    assert f"{notified.label} of helix" in said
    assert f"{waiting.label} of helix" in said
    assert "another one" not in said

    site.reader()
    site.until(lambda: _profiles(site) == [THREE])
    site.until_all("active", kept)
    site.ends_well(kept)
    _kept_dropped(site.servers)


def _backup_made(backup: Path) -> None:
    """A backup of one booking, checked; it has no secret in it."""
    with as_system():
        call_command("backup", to=backup, stdout=StringIO())
        call_command("backup", check=backup, stdout=StringIO())
        assert Backup.objects.get().checked_at is not None
        assert Client().get("/statusz").json()["backup_age_seconds"] < SECONDS
    text = (backup / "manifest.json").read_text()
    manifest = json.loads(text)
    assert manifest["state"]["allocation_booking"][0] == 1
    assert os.environ["AGENTS_MASTER_KEY"] not in text
    assert "AGENTS_MASTER_KEY" in manifest["secrets_not_included"]


def _restored(servers: Servers, backup: Path, *options: str) -> str:
    """What the command says, as the programs' role that it has in production."""
    return subprocess.run(
        [sys.executable, "manage.py", "restore", "--from", str(backup), *options],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": servers.dsn("portal_system")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    ).stdout


def _kept_dropped(servers: Servers) -> None:
    with psycopg.connect(servers.admin_dsn, autocommit=True) as admin:
        rows = admin.execute("SELECT datname FROM pg_database WHERE datname LIKE '%_before_%'")
        for (name,) in rows.fetchall():
            admin.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


def test_a_damaged_backup_is_refused(tmp_path: Path) -> None:
    for contents, why in (
        ({}, "no complete backup"),
        ({"manifest.json": "[]", "portal.dump": ""}, "does not know"),
        ({"manifest.json": '{"format": 1, "sha256": "x"}', "portal.dump": "y"}, "damaged"),
    ):
        folder = tmp_path / why
        folder.mkdir()
        for name, text in contents.items():
            (folder / name).write_text(text)
        with pytest.raises(BackupError, match=why):
            backup_read(folder)
