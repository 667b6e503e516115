"""A worker keeps its connection to the database between tasks, and replaces a broken one."""

import psycopg
import pytest

from devtools.launch.processes import start, stop
from portal.celery import app
from tenants.models import OutboxMessage
from tests.builders_allocation import NOW, Lab, a_lab
from tests.roles import as_system
from tests.servers.live import worker_program
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until

SESSIONS = "SELECT pid FROM pg_stat_activity WHERE usename = 'portal_system'"
END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'portal_system'"


def sent(lab: Lab, number: int) -> None:
    """Waits until a worker has taken a message out of the outbox."""
    with as_system():
        OutboxMessage.objects.create(
            tenant_id=lab.tenant_id,
            kind="booking.queued",
            created=NOW,
            payload={"booking": f"BK-{number}", "version": 1},
        )
    app.send_task("outbox.relay")

    def is_sent() -> bool:
        with as_system():
            return not OutboxMessage.objects.filter(sent=None).exists()

    wait_until(is_sent, seconds=30)


@pytest.mark.long
@pytest.mark.usefixtures("redis_client")
def test_a_worker_keeps_its_connection_until_it_breaks(real_db: Servers) -> None:
    lab = a_lab("helix")
    program = worker_program(real_db, "default")
    process = start(program)
    try:
        with psycopg.connect(real_db.admin_dsn, autocommit=True) as admin:
            sent(lab, 1)
            first = admin.execute(SESSIONS).fetchall()
            sent(lab, 2)
            assert len(first) == 1
            assert admin.execute(SESSIONS).fetchall() == first
            admin.execute(END)
            sent(lab, 3)
            assert admin.execute(SESSIONS).fetchall() != first
    finally:
        stop(process, program)
