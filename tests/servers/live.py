"""Portal processes for tests that need them: each with the database role it has in production."""

import os
import sys

from portal.embedded import http_answers
from portal.processes import Program
from tests.servers.servers import ROOT, Servers


def web_program(servers: Servers, port: int) -> Program:
    """A web process on 127.0.0.1:`port`, connected as portal_web."""
    address = f"http://127.0.0.1:{port}"
    return Program(
        name="web",
        command=(sys.executable, "-m", "portal.web.server", "--port", str(port)),
        environment={
            **os.environ,
            "DATABASE_URL": servers.dsn("portal_web"),
            "PUBLIC_URL": address,
        },
        folder=ROOT,
        is_ready=lambda: http_answers(port, "/healthz"),
    )


def worker_program(servers: Servers, queue: str) -> Program:
    """A Celery worker of `queue` with one process, connected as portal_system."""
    return Program(
        name=queue,
        command=(
            *(sys.executable, "-m", "celery", "--quiet", "-A", "portal", "worker"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
            *("-Q", queue, "-c", "1", "-n", f"{queue}@%h"),
        ),
        environment={**os.environ, "DATABASE_URL": servers.dsn("portal_system")},
        folder=ROOT,
    )
