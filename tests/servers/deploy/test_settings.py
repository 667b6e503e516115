"""What the settings promise: tried on a fresh process, as they are read once."""

import json
import os
import subprocess
import sys

import pytest

from allocation import tasks
from allocation.services.decide.leading import MOST_SOLVE_SECONDS
from portal.celery import app
from tests.servers.deploy.test_deploy import production
from tests.servers.servers import ROOT

SHOW = """
import json
from django.conf import settings as s
print(json.dumps({name: getattr(s, name) for name in (
    "SESSION_COOKIE_SECURE", "SESSION_COOKIE_NAME", "SESSION_COOKIE_HTTPONLY",
    "CSRF_COOKIE_SECURE", "SECURE_HSTS_SECONDS", "DEBUG", "ALLOWED_HOSTS",
    "AGENTS_MASTER_KEY", "AGENTS_REDIS_URL", "BROKER_REDIS_URL", "CHANNELS_REDIS_URL",
    "CACHE_REDIS_URL",
    "CONTENT_SECURITY_POLICY", "DATABASES")}))
"""


def read_settings(**environment: str) -> subprocess.CompletedProcess[str]:
    """The settings that a process started with these variables would have."""
    given = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", SHOW],
        cwd=ROOT,
        env={name: value for name, value in given.items() if value},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.turn
def test_an_https_address_makes_cookies_and_transport_strict() -> None:
    shown = json.loads(read_settings(**production()).stdout)
    assert shown["SESSION_COOKIE_SECURE"]
    assert shown["CSRF_COOKIE_SECURE"]
    assert shown["SESSION_COOKIE_NAME"] == "__Host-session"
    assert shown["SECURE_HSTS_SECONDS"] > 0
    assert "gpu.example.org" in shown["ALLOWED_HOSTS"]
    directives = shown["CONTENT_SECURITY_POLICY"]["DIRECTIVES"]
    assert directives["connect-src"] == ["'self'", "wss://gpu.example.org"]
    del directives["style-src-attr"]
    assert "unsafe" not in json.dumps(directives)


@pytest.mark.turn
def test_nodes_share_no_server_with_broker_pages_and_cache() -> None:
    done = read_settings(AGENTS_REDIS_URL=os.environ["REDIS_URL"])
    assert done.returncode != 0
    assert "AGENTS_REDIS_URL must name another server than REDIS_URL" in done.stderr


@pytest.mark.turn
def test_broker_pages_cache_and_agents_have_a_database_each() -> None:
    shown = json.loads(read_settings().stdout)
    urls = [value for name, value in shown.items() if name.endswith("_REDIS_URL")]
    assert len(set(urls)) == 4


MUST_KNOW = ["SECRET_KEY", "DATABASE_URL", "REDIS_URL", "AGENTS_REDIS_URL", "AGENTS_MASTER_KEY"]


@pytest.mark.turn
@pytest.mark.parametrize("name", MUST_KNOW)
def test_nothing_starts_without_what_it_must_know(name: str) -> None:
    done = read_settings(**{name: ""})
    assert done.returncode != 0
    assert f"BadSetting: {name} is not set" in done.stderr


@pytest.mark.turn
def test_a_web_process_does_not_read_what_nodes_keys_are_made_of() -> None:
    shown = json.loads(read_settings(OPERATORS_URL="http://127.0.0.1:1").stdout)
    assert shown["AGENTS_MASTER_KEY"] == ""
    assert json.loads(read_settings().stdout)["AGENTS_MASTER_KEY"]


def test_a_task_is_cut_off_before_the_broker_gives_it_to_another() -> None:
    configured = app.conf
    assert (
        configured.task_soft_time_limit
        < configured.task_time_limit
        < configured.broker_transport_options["visibility_timeout"]
    )
    # But a turn of the solver may take longer: another worker finds its lock taken.
    limits = {task.time_limit for task in (tasks.allocation_cycle, tasks.allocation_tick)}
    assert limits == {MOST_SOLVE_SECONDS + 75}
    assert configured.accept_content == ["json"]
    assert configured.task_acks_late


def test_the_cycle_has_a_queue_of_its_own() -> None:
    assert app.amqp.router.route({}, "allocation.cycle")["queue"].name == "solver"
    assert app.amqp.router.route({}, "outbox.relay")["queue"].name == "default"
