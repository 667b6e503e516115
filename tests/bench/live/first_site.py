"""From an empty database to the first active booking: `python -m tests.bench.live.first_site`.

Follows the steps of docs/guides/install.md with a site file: roles, `migrate`, the portal's programs,
`bootstrap`, one simulated node, and a booking that the tenant's admin types in the browser. Prints
JSON with the seconds of each step.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import psycopg

from devtools.launch.embedded import free_port
from devtools.launch.programs import (
    ROOT,
    SOLVER_PROGRAM,
    Demo,
    Secrets,
    Stores,
    agent_programs,
    portal_programs,
    program_environment,
)
from devtools.launch.supervisor import ProgramOutput, Supervisor
from devtools.local import secrets_load, stores_start
from portal.storage.database import Passwords, database_dsn, roles_ensure
from tests.bench.machine import machine
from tests.browser.chromium import chromium

NODE = "gpu-a1-01"
REQUEST = "1 h100 1h"
PASSWORD = "a-long-enough-passphrase-7"
PATIENCE_S = 120


class Steps:
    """Seconds of each step, in order."""

    def __init__(self) -> None:
        """The first step begins now."""
        self.seconds: dict[str, float] = {}
        self._last = self._first = time.monotonic()

    def done(self, name: str) -> None:
        """Ends a step; the next one begins."""
        now = time.monotonic()
        self.seconds[name] = round(now - self._last, 1)
        self.seconds["all"] = round(now - self._first, 1)
        self._last = now


def manage(environment: Mapping[str, str], *words: str) -> str:
    """Runs a management command; returns what it printed."""
    command = (sys.executable, "manage.py", *words)
    done = subprocess.run(
        command, cwd=ROOT, env=dict(environment), check=True, capture_output=True, text=True
    )
    return done.stdout


def site_file(folder: Path, environment: Mapping[str, str]) -> Path:
    """The example of `bootstrap`, for one model and the one node."""
    text = manage(environment, "bootstrap", "--example")
    text = text.replace("approve = []", f'approve = ["{NODE}"]').replace(', "l40s"]', "]")
    text = re.sub(r"\[tenant\.quota\.l40s\]\n(.+\n)+", "", text)
    secret = folder / "tanja"
    secret.write_text(PASSWORD, encoding="utf-8")
    admin = 'email = "tanja@example.org"'
    text = text.replace(admin, f'{admin}\npassword_file = "{secret}"')
    path = folder / "site.toml"
    path.write_text(text, encoding="utf-8")
    return path


def booking_make(url: str, supervisor: Supervisor, database: str) -> None:
    """The tenant's admin signs in, types a request and confirms; returns when it is active."""
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"{url}/sign-in")
        page.fill("[name=username]", "tanja")
        page.fill("[name=password]", PASSWORD)
        page.press("[name=password]", "Enter")
        page.wait_for_url("**/t/helix/**")
        page.goto(f"{url}/t/helix/book?q={REQUEST.replace(' ', '+')}")
        page.get_by_role("button", name=re.compile("^Book ")).click()
        page.wait_for_url("**/bookings/**")
    deadline = time.monotonic() + PATIENCE_S
    with psycopg.connect(database, autocommit=True) as connection:
        while time.monotonic() < deadline:
            supervisor.turn()
            row = connection.execute("SELECT state FROM allocation_booking").fetchone()
            if row == ("active",):
                return
    raise TimeoutError(f"the booking is not active after {PATIENCE_S} s: {row}")


def measure(folder: Path) -> dict[str, object]:
    """Sets a site up in `folder` and books on it."""
    for each in (folder, folder.parent):
        each.chmod(0o711)
    demo = Demo(folder, "127.0.0.1", free_port())
    supervisor = Supervisor(folder / "pids", ProgramOutput(folder / "logs", is_quiet=True))
    try:
        secrets = secrets_load(folder)
        stores = stores_start(demo, secrets, supervisor)
        seconds = site_make(demo, secrets, stores, supervisor)
    finally:
        supervisor.stop()
    return {"bench": "first_site", "seconds": seconds, "machine": machine()}


def site_make(demo: Demo, secrets: Secrets, stores: Stores, supervisor: Supervisor) -> dict[str, float]:
    """The steps, on running stores that are empty; returns the seconds of each."""
    steps = Steps()
    roles = Passwords(secrets.owner, secrets.web, secrets.operators, secrets.system)
    roles_ensure(stores.admin, roles)
    owner = program_environment(demo, secrets, stores, "portal_owner")
    steps.done("roles")
    manage(owner, "migrate", "--verbosity", "0")
    steps.done("migrate")
    programs = portal_programs(demo, secrets, stores)
    supervisor.start([each for each in programs if each.name != SOLVER_PROGRAM])
    steps.done("programs")
    token = manage(owner, "enrol_token", "--node", NODE).strip()
    agents = agent_programs(demo, {NODE: token}, owner["DATABASE_URL"])
    supervisor.start([each for each in agents if each.name == NODE])
    supervisor.start([each for each in programs if each.name == SOLVER_PROGRAM])
    steps.done("node")
    manage(owner, "bootstrap", "--from", str(site_file(demo.var, owner)))
    steps.done("bootstrap")
    booking_make(demo.url, supervisor, database_dsn(stores.admin, "portal"))
    steps.done("booking")
    return steps.seconds


def main() -> None:
    """Measures and prints."""
    with tempfile.TemporaryDirectory(prefix="first-site-") as folder:
        var = Path(folder) / "var"
        var.mkdir()
        sys.stdout.write(json.dumps(measure(var)) + "\n")


if __name__ == "__main__":
    main()
