"""A web process as a browser meets it."""

import urllib.error
import urllib.request
from email.message import Message

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.servers.servers import Servers

pytestmark = pytest.mark.turn


def headers_of(url: str, **sent: str) -> tuple[int, Message]:
    request = urllib.request.Request(url, headers=sent)  # noqa: S310 (our own address)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers


def test_every_answer_tells_the_browser_to_trust_only_this_site(live_portal: str) -> None:
    status, headers = headers_of(f"{live_portal}/healthz")
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    # Positions are style attributes; nothing else inline is trusted.
    assert "unsafe" not in policy.replace("style-src-attr 'unsafe-inline'", "")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"


def test_another_host_name_is_refused(live_portal: str) -> None:
    status, _ = headers_of(f"{live_portal}/healthz", Host="evil.example.org")
    assert status == 400


def test_it_is_ready_when_database_and_redis_answer(live_portal: str) -> None:
    status, _ = headers_of(f"{live_portal}/readyz")
    assert status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "{http}://{host}",
        "{http}://{host}:9",
        "{http}://{host}:{port}9",
        "https://{host}:{port}",
        "http://127.0.0.1:{port}",
        "http://evil.example:{port}",
        "null",
        "http://evil@{host}:{port}",
        "http://{host}:{port}/",
        None,
    ],
)
def test_a_socket_from_another_origin_is_refused(live_portal: str, origin: str | None) -> None:
    """Another port is another origin, and cookies go there all the same."""
    address = live_portal.replace("http", "ws") + "/ws/anything"
    http, host, port = live_portal.replace("//", "").split(":")
    named = None if origin is None else Origin(origin.format(http=http, host=host, port=port))
    with pytest.raises(InvalidStatus) as refusal, connect(address, origin=named):
        pass
    assert refusal.value.response.status_code == 403


def test_it_lives_through_the_loss_of_its_database_sessions(live_portal: str, real_db: Servers) -> None:
    assert headers_of(f"{live_portal}/readyz")[0] == 200
    real_db.database_renew()
    assert headers_of(f"{live_portal}/readyz")[0] == 200
