"""What the proxy passes on between browsers and notebooks, and what it refuses."""

import h11
import pytest

from portal.notebooks.heads import (
    BadHead,
    Site,
    cookie_make,
    cookie_of,
    headers_for_browser,
    is_websocket,
    origin_check,
    request_check,
    request_for_notebook,
)
from tests.agent.builders import cases

SITE = Site.of("http://notebook.localhost:8010", ("portal-session", "portal-csrf"))
SECURE = Site.of("https://notebooks.example.org", ())
OWN = "http://abc.notebook.localhost:8010"
HOST = ("Host", "abc.notebook.localhost:8010")


def a_request(*headers: tuple[str, str], method: str = "GET", target: str = "/lab") -> h11.Request:
    return h11.Request(method=method, target=target, headers=[HOST, *headers])


def passed(*headers: tuple[str, str], method: str = "GET") -> dict[str, str]:
    request = request_for_notebook(a_request(*headers, method=method), SITE)
    return {name.decode(): value.decode() for name, value in request.headers}


@pytest.mark.parametrize(
    ("host", "label"),
    cases(
        {
            "a notebook": ("abc.notebook.localhost:8010", "abc"),
            "in capitals": ("ABC.Notebook.LOCALHOST:8010", "abc"),
            "the bare host": ("notebook.localhost:8010", ""),
            "another port": ("abc.notebook.localhost:8000", ""),
            "no port": ("abc.notebook.localhost", ""),
            "below a notebook": ("x.abc.notebook.localhost:8010", ""),
            "the portal": ("localhost:8000", ""),
            "another site": ("abc.notebook.localhost:8010.evil.org", ""),
            "with a path": ("abc/../.notebook.localhost:8010", ""),
            "with a user": ("abc@notebook.localhost:8010", ""),
            "nothing": ("", ""),
        }
    ),
)
def test_only_the_own_host_of_a_notebook_is_one(host: str, label: str) -> None:
    assert SITE.label_of(host) == label


@pytest.mark.parametrize(
    ("request_", "status"),
    cases(
        {
            "TRACE": (a_request(method="TRACE"), 405),
            "CONNECT": (a_request(method="CONNECT", target="example.org:443"), 405),
            "an address of another site": (a_request(target="http://localhost:8000/t/helix"), 400),
            "a star": (a_request(target="*"), 400),
            "two lengths": (
                a_request(("Content-Length", "3"), ("Transfer-Encoding", "chunked"), method="POST"),
                400,
            ),
        }
    ),
)
def test_what_two_readers_could_read_in_two_ways_is_refused(request_: h11.Request, status: int) -> None:
    with pytest.raises(BadHead) as refused:
        request_check(request_)
    assert refused.value.status == status


def test_paths_are_the_notebooks_own_matter() -> None:
    for target in ("/..%2f..%2fetc/passwd", "/a/../../b", "//evil.org/", "/a?b=c#d"):
        request_check(a_request(target=target))
        assert request_for_notebook(a_request(target=target), SITE).target == target.encode()


def test_no_cookie_of_ours_or_of_the_portal_reaches_a_notebook() -> None:
    cookies = "_xsrf=2; portal-session=secret; gpu-notebook=secret; username=a=b; portal-csrf=secret"
    assert passed(("Cookie", cookies))["cookie"] == "_xsrf=2; username=a=b"
    assert "cookie" not in passed(("Cookie", "gpu-notebook=secret"))
    assert "secret" not in str(passed(("Cookie", "gpu-notebook=secret"), ("Cookie", "portal-session=secret")))


def test_headers_for_one_hop_end_here_and_so_do_those_that_proxies_say() -> None:
    found = passed(
        ("Connection", "keep-alive, X-Secret, Content-Length"),
        ("X-Secret", "1"),
        ("Keep-Alive", "5"),
        ("TE", "trailers"),
        ("Proxy-Authorization", "x"),
        ("X-Forwarded-For", "10.0.0.1"),
        ("Forwarded", "for=10.0.0.1"),
        ("Remote-User", "admin"),
        ("Content-Length", "0"),
        ("Accept", "text/html"),
        method="POST",
    )
    assert found == {
        "host": HOST[1],
        "content-length": "0",
        "accept": "text/html",
        "x-forwarded-proto": "http",
    }


def test_a_socket_keeps_what_opens_it() -> None:
    opening = (("Connection", "keep-alive, Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", "k"))
    found = passed(*opening)
    assert (found["connection"], found["upgrade"], found["sec-websocket-key"]) == (
        "Upgrade",
        "websocket",
        "k",
    )
    assert is_websocket(a_request(*opening))
    assert not is_websocket(a_request(*opening, method="POST"))
    assert "upgrade" not in passed(("Connection", "Upgrade"), ("Upgrade", "h2c"))


@pytest.mark.parametrize(
    "headers",
    cases(
        {
            "another notebook": ([("Origin", "http://xyz.notebook.localhost:8010")],),
            "the portal": ([("Origin", "http://localhost:8000")],),
            "no origin": ([("Origin", "null")],),
            "a script of another site": ([("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")],),
            "a frame of another notebook": (
                [
                    ("Sec-Fetch-Site", "same-site"),
                    ("Sec-Fetch-Mode", "navigate"),
                    ("Sec-Fetch-Dest", "iframe"),
                ],
            ),
            "a socket without a page": ([("Connection", "Upgrade"), ("Upgrade", "websocket")],),
        }
    ),
)
def test_pages_of_other_origins_reach_no_notebook(headers: list[tuple[str, str]]) -> None:
    with pytest.raises(BadHead):
        origin_check(a_request(*headers), OWN)


def test_a_link_and_the_own_page_do() -> None:
    link = (("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document"))
    origin_check(a_request(*link), OWN)
    origin_check(a_request(("Origin", OWN), ("Sec-Fetch-Site", "same-origin"), method="POST"), OWN)
    with pytest.raises(BadHead):
        origin_check(a_request(*link, method="POST"), OWN)


def test_a_notebook_sets_cookies_for_its_own_host_alone_and_never_ours() -> None:
    sent = [
        (b"set-cookie", b"mine=1; Path=/; domain=localhost; HttpOnly"),
        (b"set-cookie", b"gpu-notebook=stolen; Path=/"),
        (b"set-cookie", b" portal-session = x"),
        (b"alt-svc", b'h3=":443"'),
        (b"strict-transport-security", b"max-age=1; includeSubDomains"),
        (b"connection", b"close"),
        (b"location", b"http://localhost:8000/"),
    ]
    assert headers_for_browser(sent, SITE) == [
        (b"set-cookie", b"mine=1; Path=/; HttpOnly"),
        (b"location", b"http://localhost:8000/"),
    ]


def test_our_cookie_is_for_one_host_and_no_script_reads_it() -> None:
    assert cookie_make(SITE, "v") == "gpu-notebook=v; Path=/; HttpOnly; SameSite=Lax"
    assert cookie_make(SECURE, "v") == "__Host-gpu-notebook=v; Path=/; HttpOnly; SameSite=Lax; Secure"
    assert cookie_of(a_request(("Cookie", "a=1; gpu-notebook=v")), SITE.cookie) == "v"
    # One of them was put there by somebody else.
    assert cookie_of(a_request(("Cookie", "gpu-notebook=w; gpu-notebook=v")), SITE.cookie) == ""
