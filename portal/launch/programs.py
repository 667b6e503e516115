"""The programs of a portal: arguments, database role and settings of each.

The launcher starts these. `docker-compose.yml` and the units in `deploy/systemd` repeat them in
their own formats, and tests compare them with this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

# The launcher starts this program last.
SOLVER_PROGRAM = "solver"
_SERVER = ("-m", "portal.web.server")
_CELERY = ("-m", "celery", "--quiet", "-A", "portal")
_WORKER = (*_CELERY, "worker", "--without-gossip", "--without-mingle", "--without-heartbeat")


@dataclass(frozen=True)
class PortalProgram:
    """A program: arguments of the Python interpreter, database role, and environment variables.

    A program that `listens` also gets `--host` and `--port`. `needs` names variables whose value
    depends on the installation.
    """

    name: str
    arguments: tuple[str, ...]
    role: str = "portal_system"
    settings: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    listens: bool = False


PROGRAMS = (
    PortalProgram(
        "operators",
        _SERVER,
        role="portal_operators",
        settings={"SERVES_OPERATORS": "1", "WEB_THREADS": "4"},
        listens=True,
    ),
    PortalProgram("web", _SERVER, role="portal_web", needs=("OPERATORS_URL",), listens=True),
    PortalProgram("worker", (*_WORKER, "-Q", "default", "-c", "2", "-n", "worker@%h")),
    PortalProgram(SOLVER_PROGRAM, (*_WORKER, "-Q", "solver", "-c", "1", "-n", "solver@%h")),
    PortalProgram("beat", (*_CELERY, "beat", "--pidfile=")),
    PortalProgram("reader", ("manage.py", "reports_reader", "--skip-checks")),
)
