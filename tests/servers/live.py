"""Portal processes for tests that need them: each with the database role it has in production."""

import os
import sys

from devtools.launch.embedded import http_answers
from devtools.launch.processes import Program
from tests.servers.servers import ROOT, Servers


def web_program(servers: Servers, port: int, operators_port: int | None = None) -> Program:
    """A web process on 127.0.0.1:`port`, connected as portal_web.

    What operators ask goes to the process of `operators_program` on `operators_port`.
    """
    own = {
        "DATABASE_URL": servers.dsn("portal_web"),
        "OPERATORS_URL": f"http://127.0.0.1:{operators_port or 1}",
        "AGENTS_MASTER_KEY": "",
    }
    return _server("web", port, f"http://localhost:{port}", own)


def operators_program(servers: Servers, port: int, web_port: int) -> Program:
    """The operators' process on 127.0.0.1:`port`, for the web on `web_port`."""
    own = {
        "DATABASE_URL": servers.dsn("portal_operators"),
        "SERVES_OPERATORS": "1",
        "WEB_THREADS": "2",
    }
    return _server("operators", port, f"http://localhost:{web_port}", own)


def _server(name: str, port: int, public: str, own: dict[str, str]) -> Program:
    return Program(
        name=name,
        command=(sys.executable, "-m", "portal.web.serving.server", "--port", str(port)),
        environment={
            **os.environ,
            "PUBLIC_URL": public,
            "METRICS_ALLOW": "127.0.0.0/8",
            **own,
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
