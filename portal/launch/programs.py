"""The programs of a portal: what each is started with, and as which role of the database.

The launcher starts these. `docker-compose.yml` and the units in `deploy/systemd` say the same in
their own formats, and tests compare them with this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

# The name of the one program that decides; the launcher starts it last.
SOLVER_PROGRAM = "solver"
_SERVER = ("-m", "portal.web.server")
_CELERY = ("-m", "celery", "--quiet", "-A", "portal")
_WORKER = (*_CELERY, "worker", "--without-gossip", "--without-mingle", "--without-heartbeat")


@dataclass(frozen=True)
class PortalProgram:
    """A program: the words after the Python interpreter, its role, and settings of its own.

    A program that `listens` is told `--host` and `--port` besides. `needs` names settings whose
    value the installation knows.
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
