"""Every management command and every consumer of sockets with its production login.

The site has ladders, approvals, a policy hook and stops. `commands_run` starts one process for each
login, which runs its commands one after the other. Tasks: `test_tasks_as_system.py`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

import pytest
from django.core.management import get_commands
from django.db.models import F
from django.utils import timezone
from pytest_django import Settings
from websockets.exceptions import ConnectionClosed

from allocation.consumers import websocket_urlpatterns
from allocation.models import Decision, Node
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.cycle import cycle_run
from devtools.launch import programs
from devtools.launch.processes import Program, start, stop
from portal.asgi import application
from portal.integrations.live.push import beat
from portal.integrations.relay import outbox_relay
from tenants.models import WebhookDelivery
from tests.api.builders import Site, a_site
from tests.builders_allocation import a_booking_request, a_lab
from tests.jira.stub import a_jira
from tests.policy_hook.hook_server import a_hook
from tests.roles import as_system
from tests.servers.servers import ROOT, Servers
from tests.servers.test_tasks_as_system import every_kind, jira_connected
from tests.servers.waiting import wait_until
from tests.services.operate.test_bootstrap import SITE
from tests.services.plant import a_plant
from tests.services.publish.test_live_socket import a_page, signed_in
from tests.services.webhook_receiver import a_receiver
from tests.web import operator_sites
from tests.wire.test_sacct import HEAD, line

pytestmark = pytest.mark.turn
OURS = ("allocation", "billing", "tenants", "portal")
SYSTEM, OWNER = "portal_system", "portal_owner"


@dataclass(frozen=True)
class Run:
    """Runs of one command: its login, and the arguments of each run."""

    role: str
    each: tuple[tuple[str, ...], ...] = ((),)


BY = ("--operator", "otto")
# In this order. `{…}` is a value of the site.
RUNS: Mapping[str, Run] = {
    "migrate": Run(OWNER, (("--no-input",),)),
    "bootstrap": Run(OWNER, (("--from", "{site}", "--check"), ("--from", "{site}"))),
    "createoperator": Run(OWNER, (("--username", "omar", "--name", "Omar Berg"),)),
    "operator_token": Run(OWNER, (("--username", "omar", "--tenant", "helix"),)),
    "archive": Run(OWNER, (("--to", "{folder}/archive"),)),
    "policy": Run(SYSTEM, ((), ("grid=600", *BY), ("grid=", *BY))),
    "import_history": Run(SYSTEM, (("--slurm", "{folder}/jobs"),)),
    "policy_trial": Run(SYSTEM, (("--candidate", "1", "--days", "2", *BY), ("--work",), ("--list",))),
    "policy_shadow": Run(SYSTEM, (("--begin", "1", *BY), ("--show", "1"), ("--end", "1", *BY))),
    "enrol_token": Run(SYSTEM, (("--node", "gpu-z9-01", *BY), ("--engine", "main", *BY))),
    "rotate_key": Run(SYSTEM, (("--node", "{node}", *BY),)),
    "clock_accept": Run(SYSTEM, (BY,)),
    "freeze": Run(SYSTEM, (("begin", "--reason", "Power", *BY), ("status",), ("end", *BY))),
    "outage": Run(SYSTEM, (("begin", "--wait", "0", "--anyway", *BY), ("status",), ("end", *BY))),
    "decision_replay": Run(SYSTEM, (("{decision}",),)),
    "simulation": Run(SYSTEM, (("--live", "--days", "1", "--demand", "load=20"),)),
    "backup": Run(SYSTEM, (("--to", "{folder}/backup"), ("--check", "{folder}/backup"))),
    "restore": Run(SYSTEM, (("--recovered", *BY),)),
    "epoch_raise": Run(SYSTEM, (BY,)),
    "audit_verify": Run(SYSTEM, (("--heads", "{folder}/heads"),)),
    "invariants": Run(SYSTEM),
}
PROGRAMS = {"notebook_proxy", "reports_reader", "webhooks_sender"}
"""Commands that run until they are stopped; each has a test of its own below, or in `tests.faults`."""

RUN = """
import io, json, sys, traceback
import django
django.setup()
from django.core.management import call_command
from devtools.simulation.command import Command
failed = {}
for name, *arguments in json.loads(sys.argv[1]):
    try:
        command = Command() if name == "simulation" else name
        call_command(command, *arguments, stdout=io.StringIO(), stderr=io.StringIO())
    except (Exception, SystemExit):
        if arguments[-1:] != ["--check"]:
            failed[" ".join([name, *arguments])] = traceback.format_exc()
print(json.dumps(failed))
"""


def commands_run(servers: Servers, role: str, values: Mapping[str, str]) -> dict[str, str]:
    """The traceback of each run that failed."""
    runs = [
        [name, *(part.format(**values) for part in arguments)]
        for name, run in RUNS.items()
        if run.role == role
        for arguments in run.each
    ]
    environment = {"DATABASE_URL": servers.dsn(role), "DATABASE_ADMIN_URL": servers.admin_dsn}
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(runs)],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    failed: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return failed


def test_each_command_has_a_run_with_its_login() -> None:
    ours = {name for name, app in get_commands().items() if app in OURS}
    assert RUNS.keys() | PROGRAMS == ours | {"simulation"}


@contextmanager
def a_full_site(settings: Settings) -> Iterator[Site]:
    """A site with ladders, approvals, stops, a hook and Jira, and with what tasks work on."""
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    with a_jira() as jira, a_hook() as hook:
        site = a_site()
        assert site.admin.put("policy-hook", {"url": hook.url}).status_code == 200
        every_kind(site)
        jira_connected(site, jira.url)
        yield site


def test_no_command_fails_with_its_login(real_db: Servers, settings: Settings, tmp_path: Path) -> None:
    tmp_path.joinpath("site.toml").write_text(SITE, "utf-8")
    tmp_path.joinpath("jobs").write_text(f"{HEAD}\n{line()}\n", "utf-8")
    with a_full_site(settings) as site, as_system():
        cycle_run(timezone.now())
        operator_sites.enrolled(site)
        operator_sites.jumped(site)
        values = {
            "folder": str(tmp_path),
            "site": str(tmp_path / "site.toml"),
            "node": Node.objects.earliest("name").name,
            "decision": str(Decision.objects.latest("id").id),
        }
    assert commands_run(real_db, OWNER, values) == {}
    assert commands_run(real_db, SYSTEM, values) == {}


@contextmanager
def a_program(servers: Servers, name: str) -> Iterator[None]:
    """The command as the program that production starts, with its login."""
    (known,) = (each for each in programs.PROGRAMS if name in each.arguments)
    own = {"DATABASE_URL": servers.dsn(known.role), "WEBHOOK_ALLOW": "127.0.0.0/8"}
    program = Program(name, (sys.executable, *known.arguments), {**os.environ, **own}, ROOT)
    process = start(program)
    try:
        yield
        assert process.poll() is None
    finally:
        stop(process, program)
    assert process.returncode == 0


def test_the_reader_applies_reports_with_its_login(real_db: Servers, tmp_path: Path) -> None:
    with a_plant(tmp_path) as plant:
        lab = a_lab("helix", gpus=0)
        with as_system():
            request = a_booking_request(lab.project)
            booking_request(actor=lab.actor, request=request, now=plant.now)
        plant.cycle()
        plant.node_works()

        def is_applied() -> bool:
            with as_system():
                return not Node.objects.exclude(observed_generation=F("generation")).exists()

        assert not is_applied()
        with a_program(real_db, "reports_reader"):
            wait_until(is_applied, seconds=30)


def test_the_sender_sends_with_its_login(real_db: Servers, settings: Settings) -> None:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    with a_receiver() as receiver:
        site = a_site()
        hook = {"name": "ci", "url": receiver.url, "events": ["*"]}
        assert site.admin.post("webhooks", hook).status_code == 201
        every_kind(site)
        with as_system():
            outbox_relay(timezone.now())

        def is_delivered() -> bool:
            with as_system():
                rows = WebhookDelivery.objects.filter(webhook__url=receiver.url)
                if not rows.exists():
                    # The relay lost its connection, and tries again, as it does each second.
                    outbox_relay(timezone.now())
                return rows.exists() and not rows.exclude(state="delivered").exists()

        with a_program(real_db, "webhooks_sender"):
            wait_until(is_delivered, seconds=60)


def test_each_consumer_works_with_its_login(live_portal: str, settings: Settings) -> None:
    """The web process of `live_portal` has the web's login."""
    routes = application.application_mapping
    assert routes.keys() == {"http", "websocket"}, "another kind of consumer needs a run here"
    assert [str(each.pattern) for each in websocket_urlpatterns] == ["ws/t/<slug:tenant>/"]
    with a_full_site(settings) as site, ExitStack() as stack:
        pages = {
            who: stack.enter_context(a_page(live_portal, "helix", signed_in(person.pk)))
            for who, person in site.people.items()
            if who != "outsider"
        }
        with as_system():
            outbox_relay(timezone.now())
            beat()
        for page in pages.values():
            kinds: set[str] = set()
            while not kinds > {"live.beat"}:
                kinds.add(str(json.loads(page.recv(timeout=20))["kind"]))
        outside = signed_in(site.people["outsider"].pk)
        with a_page(live_portal, "helix", outside) as page, pytest.raises(ConnectionClosed):
            page.recv(timeout=20)
