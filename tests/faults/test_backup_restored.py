"""A backup comes back while the nodes have gone on: pg_dump, pg_restore, and the raised epoch."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections
from psycopg import sql

from allocation.models import Booking
from allocation.services.epochs import nodes_ahead
from tests.builders_allocation import an_ask
from tests.faults.test_site_killed import SECONDS, Site, is_enrolled
from tests.roles import as_system
from tests.servers.servers import DATABASE, Servers
from tests.servers.waiting import wait_until

pytestmark = pytest.mark.faults
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


def test_nodes_follow_a_restored_backup_once_the_epoch_is_raised(
    site: Site, tmp_path: Path
) -> None:
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
    # What the portal says now is older than what the node has heard: the node goes on as it was,
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
