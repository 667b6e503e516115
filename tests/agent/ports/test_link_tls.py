"""The agent's link through TLS: only a certificate that the node trusts, for that name."""

import hashlib
import queue
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from agent.ports.link import Arrival, Connected, Link
from allocation.services.nodes.redis_accounts import agent_account_open
from tests.agent.builders import NODE
from tests.faults.proxy import Proxy
from tests.servers.servers import Servers

pytestmark = pytest.mark.turn

CERTIFICATES = Path(__file__).parent / "tls"
PASSWORD = "a" * 64


@pytest.fixture
def port(servers: Servers, redis_client: "redis.Redis") -> Iterator[int]:
    """A line to the agents' server that ends TLS, as its own TLS port would."""
    agent_account_open(NODE, hashlib.sha256(PASSWORD.encode()).digest())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATES / "localhost.pem")
    with Proxy(servers.agents_access.port, context) as line:
        yield line.port


def comes(address: str) -> bool:
    """Whether an agent with this address connects soon."""
    arrived: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
    link = Link(url=address, node=NODE, deliver=arrived.put)
    link.start()
    try:
        return isinstance(arrived.get(timeout=2), Connected)
    except queue.Empty:
        return False
    finally:
        link.stop()


def address(port: int, host: str = "localhost", options: str = "") -> str:
    return f"rediss://agent-{NODE}:{PASSWORD}@{host}:{port}/0{options}"


TRUSTED = f"?ssl_ca_certs={CERTIFICATES / 'cert.pem'}"


def test_an_agent_comes_through_tls_by_a_certificate_that_it_trusts(port: int) -> None:
    assert comes(address(port, options=TRUSTED))


def test_the_machines_own_authorities_may_name_it(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATES / "cert.pem"))
    assert comes(address(port))


@pytest.mark.parametrize(
    ("host", "options"),
    [("localhost", ""), ("127.0.0.1", TRUSTED)],
    ids=["nobody vouches for it", "it is for another name"],
)
def test_it_speaks_to_no_other(port: int, host: str, options: str) -> None:
    assert not comes(address(port, host, options))
