"""docker-compose.yml for real: up, ready, a booking that becomes active, down.

Not part of `make test`: `make test-containers` runs it where podman can, and says why where not.
"""

import json
import secrets
from collections.abc import Iterator

import httpx
import pytest

from devtools.launch.embedded import free_port
from tests.containers.composed import Composed
from tests.containers.engine import NoEngine, engine_here
from tests.servers.deploy.test_compose import SECRETS
from tests.servers.waiting import wait_until

pytestmark = pytest.mark.containers
FIRST_SECONDS = 120


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def site(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    """The whole file, up."""
    try:
        engine = engine_here()
        engine.images_ensure()
    except NoEngine as error:
        pytest.skip(f"No container was tried: {error}")
    engine.portal_build()
    environment = tmp_path_factory.mktemp("compose") / "env"
    lines = [*(f"{name}={secrets.token_hex(32)}" for name in SECRETS), f"PORT={port}"]
    environment.write_text("\n".join(lines) + "\n", encoding="utf-8")
    composed = Composed(engine, environment)
    composed.down()
    try:
        composed.up()
        yield composed
    finally:
        composed.down()


@pytest.fixture(scope="module")
def portal(site: Composed, port: int) -> Iterator[httpx.Client]:
    """The web's published port, with the token of the demo's researcher."""
    seeded = json.loads(site.file("setup", "/app/var/demo.json"))
    secrets = [
        *seeded["tokens"].values(),
        *(one["password"] for one in seeded["passwords"].values()),
    ]
    assert not [one for one in secrets if one in site.logs("setup")], "a log is read by others"
    headers = {"Authorization": f"Bearer {seeded['tokens']['researcher']}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30) as client:
        yield client


def test_every_store_takes_a_write(portal: httpx.Client) -> None:
    wait_until(lambda: portal.get("/readyz").status_code == 200, seconds=30)


def test_a_booking_becomes_active(portal: httpx.Client) -> None:
    """Before the nodes have come a request is refused or waits; then it is made again."""
    asked = {"project": "protein-folding", "request": "1 1g.10gb h100 10m"}
    numbers: list[str] = []

    def is_active() -> bool:
        if not numbers or state_of(numbers[-1]) in {"refused", "failed", "cancelled"}:
            made = portal.post("/api/v1/bookings", json=asked)
            numbers.extend([made.json()["number"]] if made.status_code == httpx.codes.CREATED else [])
        return bool(numbers) and state_of(numbers[-1]) == "active"

    def state_of(number: str) -> str:
        return str(portal.get(f"/api/v1/bookings/{number}").json()["state"])

    wait_until(is_active, seconds=FIRST_SECONDS, every=1)


def test_what_should_run_runs_as_nobody_and_writes_nowhere(site: Composed, portal: httpx.Client) -> None:
    assert portal.get("/healthz").status_code == 200
    for name, service in site.services.items():
        if service["restart"] == "no":
            assert site.state(name) == "exited", name
            continue
        assert site.state(name) == "running", site.logs(name)[-2000:]
        assert site.inside(name, "id", "-u").strip() != "0"
        status = site.inside(name, "cat", "/proc/1/status")
        rights = dict(line.split(":", 1) for line in status.splitlines())
        assert int(rights["CapEff"], 16) == int(rights["CapBnd"], 16) == 0, name
        assert rights["NoNewPrivs"].strip() == "1", name
        with pytest.raises(NoEngine, match="Read-only file system"):
            site.inside(name, "touch", "/usr/mine")


def test_an_agent_reaches_neither_the_database_nor_the_portals_valkey(site: Composed) -> None:
    for name in ("agent-a1", "agent-c1"):
        assert site.inside(name, "getent", "hosts", "valkey-agents")
        for store in ("postgres", "valkey", "operators"):
            with pytest.raises(NoEngine):
                site.inside(name, "getent", "hosts", store)
