"""The programs of a portal: arguments, database role and settings of each.

The demo's launcher starts these. `docker-compose.yml` and the units in `deploy/systemd` repeat them
in their own formats, and tests compare them with the table.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import psycopg

from devtools.launch.embedded import free_port, http_answers
from devtools.launch.processes import Program
from portal.storage.database import database_dsn

ROOT = Path(__file__).resolve().parents[2]
# The simulated nodes of the demo, and their GPUs.
AGENTS = {
    "gpu-a1-01": "h100:8",
    "gpu-a2-01": "a100:6,a100+mig:2",
    "gpu-b1-01": "a100-40:4,a100-40+mig:4",
    "gpu-c1-01": "l40s:4",
    "cpu-a1-01": "core:32",
}
# Variables of the caller that the programs inherit.
INHERITED_VARIABLES = (
    "ALLOWED_HOSTS",
    "DEBUG",
    "CALLS_PER_TOKEN",
    "CALLS_PER_ADDRESS",
    "QUOTES_PER_PERSON",
    "TRACES_URL",
    "WATCHDOG_SECONDS",
)

# The launcher starts this program last.
SOLVER_PROGRAM = "solver"
# A second process of the web, which serves as soon as the first one ends, and the other way round.
SPARE_PROGRAM = "web-spare"
_SERVER = ("-m", "portal.web.serving.server")
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
    PortalProgram("sender", ("manage.py", "webhooks_sender", "--skip-checks")),
)

# The proxy of notebooks, where the site offers them (NOTEBOOK_URL).
NOTEBOOK_PROGRAM = PortalProgram(
    "notebooks",
    ("manage.py", "notebook_proxy", "--skip-checks"),
    role="portal_web",
    needs=("OPERATORS_URL",),
    listens=True,
)

# A worker that decides shards of a large site, on any machine and as often as there are cores. A
# demo starts none. It knows the address of Redis and nothing else, so it has no role.
SHARD_PROGRAM = PortalProgram(
    "shards",
    (
        *("-m", "celery", "--quiet", "-A", "portal.shards", "worker", "--without-gossip"),
        *("--without-mingle", "--without-heartbeat", "-Q", "decide", "-n", "shards@%h"),
    ),
    role="",
)


@dataclass(frozen=True)
class Secrets:
    """The secrets of a demo, created on its first start and kept in var/secrets.json."""

    django: str = field(repr=False)
    agents_master: str = field(repr=False)
    postgres: str = field(repr=False)
    owner: str = field(repr=False)
    web: str = field(repr=False)
    operators: str = field(repr=False)
    system: str = field(repr=False)
    valkey: str = field(repr=False)
    valkey_agents: str = field(repr=False)
    cloud: str = field(repr=False)
    valkey_port: int
    notebooks_port: int
    # Stored, because agents keep the address that they got when they enrolled.
    agents_port: int
    # The simulated cloud, which keeps its machines.
    cloud_port: int


@dataclass(frozen=True)
class Demo:
    """A demo: its folder and its address."""

    var: Path
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    @property
    def seeded(self) -> Path:
        """The file that the seeds write: names, passwords and tokens."""
        return self.var / "demo.json"

    @property
    def providers(self) -> Path:
        """The file that names the simulated cloud."""
        return self.var / "providers.toml"

    @property
    def notebooks(self) -> Path:
        """The file that says which notebooks the nodes offer."""
        return self.var / "notebooks.toml"

    def agent_state(self, name: str) -> Path:
        """The folder with the state of agent `name`."""
        return self.var / "agents" / name

    def identity(self, name: str) -> Path:
        """The file that agent `name` has after it enrolled."""
        return self.agent_state(name) / "identity.json"

    def agent_forget(self, name: str) -> None:
        """Removes who agent `name` was, and its record, which it can't read without its old key."""
        for path in (self.identity(name), self.agent_state(name) / "state.json"):
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Stores:
    """Addresses of PostgreSQL as superuser, and of both Redis servers with all rights."""

    admin: str = field(repr=False)
    redis: str = field(repr=False)
    agents_redis: str = field(repr=False)


def program_environment(demo: Demo, secrets: Secrets, stores: Stores, role: str) -> dict[str, str]:
    """The environment of a portal process that connects as database role `role`."""
    password = {
        "portal_owner": secrets.owner,
        "portal_web": secrets.web,
        "portal_operators": secrets.operators,
        "portal_system": secrets.system,
    }[role]
    return {
        **_plain_environment(),
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "SECRET_KEY": secrets.django,
        # A web process does not get the key of agents.
        **({} if role == "portal_web" else {"AGENTS_MASTER_KEY": secrets.agents_master}),
        # Workers alone sign in at providers.
        **({"CLOUD_PASSWORD": secrets.cloud} if role == "portal_system" else {}),
        "PROVIDERS_FILE": str(demo.providers),
        "DATABASE_URL": database_dsn(stores.admin, "portal", user=role, password=password),
        "REDIS_URL": stores.redis,
        "AGENTS_REDIS_URL": stores.agents_redis,
        "PUBLIC_URL": demo.url,
        # Browsers find every name below localhost on their own machine.
        "NOTEBOOK_URL": f"http://notebook.localhost:{secrets.notebooks_port}",
        "COOKIE_PREFIX": f"portal-{demo.port}",
        "MAIL_URL": f"file://{demo.var}/mail",
        # A demo's webhooks may reach programs on this machine.
        "WEBHOOK_ALLOW": os.environ.get("WEBHOOK_ALLOW", "127.0.0.0/8,::1/128"),
        "SIGN_ON_ALLOW": os.environ.get("SIGN_ON_ALLOW", "127.0.0.0/8,::1/128"),
        "DEMO_FILE": str(demo.seeded),
        "LOG_LEVEL": os.environ.get("LOG_LEVEL", "WARNING"),
        **{name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ},
    }


def portal_programs(demo: Demo, secrets: Secrets, stores: Stores) -> list[Program]:
    """Web, operators' process, workers, beat and reader, each with its database role."""
    inner = free_port()
    places = {
        "operators": ("127.0.0.1", inner),
        "web": (demo.host, demo.port),
        NOTEBOOK_PROGRAM.name: (demo.host, secrets.notebooks_port),
    }
    found = [
        _portal_program(
            each,
            {
                **program_environment(demo, secrets, stores, each.role),
                **dict.fromkeys(each.needs, f"http://127.0.0.1:{inner}"),
            },
            places.get(each.name),
        )
        for each in (*PROGRAMS, NOTEBOOK_PROGRAM)
    ]
    return [_one_of_two(demo, each) if each.name == "web" else each for each in found]


def web_lock(demo: Demo) -> Path:
    """The file that the web process which serves holds."""
    return demo.var / "pids" / "web.lock"


def spare_program(web: Program) -> Program:
    """The process that serves when the web has ended."""
    return replace(web, name=SPARE_PROGRAM, is_ready=None)


def runs_program(demo: Demo) -> Program:
    """What the programs on the demo's GPUs say of their progress."""
    command = (sys.executable, "-m", "devtools.demo.runs", str(demo.seeded))
    return Program("runs", command, _plain_environment(), ROOT)


_PROVIDERS = """# The simulated cloud of the demo: an OpenStack of `devtools.cloud` on loopback.
[[provider]]
name = "cloud"
driver = "openstack"
key = "demo"
secret_env = "CLOUD_PASSWORD"
image = "agent"
most_machines = 2
most_cost_a_month = "500"
arguments = {{ ex_force_auth_url = "{url}", ex_force_auth_version = "3.x_password", ex_tenant_name = "demo" }}

[[provider.offer]]
name = "h100x4"
size = "h100:4"
gpu_class = "h100"
gpus = 4
price = "18.00"
reserved_price = "11.00"
lead_seconds = 45
least_seconds = 600
period_seconds = 300
zone = "cloud-a"

[[provider.offer]]
name = "l40s-spot"
size = "l40s:2@spot"
gpu_class = "l40s"
gpus = 2
price = "1.90"
lead_seconds = 45
least_seconds = 300
period_seconds = 60
zone = "cloud-b"
interruptible = true
"""


def cloud_program(demo: Demo, secrets: Secrets) -> Program:
    """The simulated cloud, and the file that names it to the portal."""
    demo.providers.write_text(
        _PROVIDERS.format(url=f"http://127.0.0.1:{secrets.cloud_port}"), encoding="utf-8"
    )
    command = (
        *(sys.executable, "-m", "devtools.cloud", "--port", str(secrets.cloud_port)),
        *("--folder", str(demo.var / "cloud")),
    )
    return Program("cloud", command, {**_plain_environment(), "CLOUD_PASSWORD": secrets.cloud}, ROOT)


_NOTEBOOKS = """# What the simulated nodes offer as notebooks.
portal = "http://127.0.0.1:{port}"

[programs.jupyterlab]
command = [
  "{jupyter}", "--no-browser", "--allow-root", "--ServerApp.sock={{socket}}",
  "--ServerApp.sock_mode=0600", "--ServerApp.allow_remote_access=True", "--IdentityProvider.token=",
  "--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
]
"""
JUPYTER = ROOT / ".venv-notebook" / "bin" / "jupyter-lab"


def notebooks_write(demo: Demo, secrets: Secrets) -> bool:
    """Writes what nodes offer; False: JupyterLab is not installed, and they offer nothing."""
    demo.notebooks.unlink(missing_ok=True)
    if not JUPYTER.exists():
        return False
    text = _NOTEBOOKS.format(port=secrets.notebooks_port, jupyter=JUPYTER)
    demo.notebooks.write_text(text, encoding="utf-8")
    return True


def _one_of_two(demo: Demo, web: Program) -> Program:
    return replace(web, command=(*web.command, "--lock", str(web_lock(demo))))


def _portal_program(
    one: PortalProgram, environment: Mapping[str, str], place: tuple[str, int] | None
) -> Program:
    command = (sys.executable, *one.arguments)
    # Celery warns about pickled tasks when a worker runs as root; ours accept JSON only.
    quiet = {"PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges"}
    environment = {**environment, **one.settings, **quiet}
    if place is None:
        return Program(one.name, command, environment, ROOT)
    host, port = place
    return Program(
        name=one.name,
        command=(*command, "--host", host, "--port", str(port)),
        environment=environment,
        folder=ROOT,
        is_ready=lambda: http_answers(port, "/healthz"),
    )


LIBRARY = {"imagenet": 12, "coco-2017": 6, "common-crawl": 24, "genomes": 9, "cityscapes": 4}
"""The data sets of the library, with their MiB. They stand for larger ones."""
CACHED = {
    "gpu-a1-01": ("imagenet", "common-crawl"),
    "gpu-a2-01": ("imagenet", "genomes"),
    "gpu-b1-01": ("coco-2017",),
    "gpu-c1-01": ("coco-2017", "cityscapes"),
}
_MEGABYTE = bytes(1 << 20)
_STAGE = """#!/bin/sh
# Fetches a data set from the library of the demo.
test -d "{library}/$GPU_DATA" || {{ echo "the library has no $GPU_DATA"; exit 1; }}
for part in "{library}/$GPU_DATA"/*; do
  cp "$part" "$GPU_DATA_FOLDER/" && sleep 0.5
done
"""


def hooks_write(var: Path) -> Path:
    """Writes the hooks of the demo's nodes; returns their folder."""
    folder = var / "hooks"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "stage"
    program.write_text(_STAGE.format(library=(var / "library").absolute()), encoding="utf-8")
    program.chmod(0o755)
    return folder


def data_sets_write(var: Path, nodes: dict[str, Path]) -> None:
    """Fills the library, and the cache folder of each node, which is below its state; what is there
    stays."""
    library = var / "library"
    for name, size in LIBRARY.items():
        _folder_write(library / name, size)
    for node, state in nodes.items():
        for name in CACHED.get(node, ()):
            _folder_write(state / "data" / name, LIBRARY[name])


def _folder_write(folder: Path, megabytes: int) -> None:
    if folder.exists():
        return
    folder.mkdir(parents=True)
    for number in range(megabytes):
        (folder / f"part-{number:03}").write_bytes(_MEGABYTE)


def agent_programs(demo: Demo, tokens: Mapping[str, str], database: str) -> list[Program]:
    """The simulated nodes, which know the portal's address and their token only.

    A node is ready when the portal has received a message of it, which `database` shows.
    """
    programs = []
    hooks = hooks_write(demo.var)
    data_sets_write(demo.var, {name: demo.agent_state(name) for name in AGENTS})
    with psycopg.connect(database) as connection:
        (begun,) = connection.execute("SELECT now()").fetchone() or (None,)
    for name, hardware in AGENTS.items():
        environment = {
            **_plain_environment(),
            **({"GPU_AGENT_TOKEN": tokens[name]} if name in tokens else {}),
        }
        options = ("--name", name, "--simulate", hardware, "--state", str(demo.agent_state(name)))
        offer = ("--notebooks", str(demo.notebooks)) if demo.notebooks.exists() else ()
        cache = ("--data", str(demo.agent_state(name) / "data"), "--hooks", str(hooks))
        programs.append(
            Program(
                name=name,
                command=(
                    *(sys.executable, "-m", "devtools.simulated", "--portal", demo.url),
                    *options,
                    *offer,
                    *cache,
                ),
                environment=environment,
                folder=ROOT,
                is_ready=partial(_node_is_connected, database, name, begun),
            )
        )
    return programs


def _node_is_connected(database: str, name: str, begun: object) -> bool:
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT last_seen > %s FROM allocation_node WHERE name = %s", [begun, name])
        return row.fetchone() == (True,)


def _plain_environment() -> dict[str, str]:
    """The variables of our environment that every program gets."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "PATH") if name in os.environ}
    return {**kept, "PYTHONUNBUFFERED": "1", "TZ": "UTC"}
