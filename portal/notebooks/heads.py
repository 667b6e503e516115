"""Heads of requests and answers on the way between browsers and notebooks. Pure.

Both sides are read and written by h11, so a request ends for the notebook exactly where it ends for
us, whatever its head says.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11

Headers = list[tuple[bytes, bytes]]
METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})
_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect", b"http2-settings"),
    }
)
# What a browser must not say in place of a proxy.
_SAID_BY_PROXIES = (b"x-forwarded-", b"forwarded", b"x-real-ip", b"x-scheme", b"remote-user")
# What would reach beyond the notebook's origin.
_NOT_PASSED = frozenset({b"alt-svc", b"strict-transport-security", b"nel", b"report-to"})


class BadHead(Exception):
    """A request that is not passed on: the status of the answer, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass(frozen=True, slots=True)
class Site:
    """Where notebooks are: scheme and host with port of `NOTEBOOK_URL`; the name of our cookie, and
    those of the portal's, which no notebook gets."""

    scheme: str
    netloc: str
    cookie: str
    hidden: frozenset[str]

    @classmethod
    def of(cls, url: str, hidden: Collection[str]) -> "Site":
        """Returns the site of a setting."""
        parts = urlsplit(url)
        cookie = "__Host-gpu-notebook" if parts.scheme == "https" else "gpu-notebook"
        return cls(parts.scheme, parts.netloc, cookie, frozenset({cookie, *hidden}))

    def label_of(self, host: str) -> str:
        """Returns the label of a notebook's host, else an empty text."""
        label, dot, rest = host.lower().partition(".")
        return label if dot and rest == self.netloc and label.isalnum() else ""

    def origin_of(self, label: str) -> str:
        """Returns a notebook's origin."""
        return f"{self.scheme}://{label}.{self.netloc}"


def value_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str:
    """Returns the first value of a header, empty without one."""
    return next((value.decode("latin-1") for each, value in headers if each == name), "")


def request_check(request: h11.Request) -> None:
    """Raises BadHead for what no browser sends, or what two readers could read in two ways."""
    names = [name for name, _ in request.headers]
    if request.method not in METHODS:
        raise BadHead(405, "This method is not passed on.")
    if not request.target.startswith(b"/") or request.http_version != b"1.1":
        raise BadHead(400, "This is not a request of a browser.")
    if b"transfer-encoding" in names and b"content-length" in names:
        raise BadHead(400, "A request has one length.")


def origin_check(request: h11.Request, own: str) -> None:
    """Raises BadHead if a page of another origin sends this, other than by a link to a page."""
    origin = value_of(request.headers, b"origin")
    if origin and origin != own:
        raise BadHead(403, "Pages of other sites have no access to a notebook.")
    if is_websocket(request) and not origin:
        raise BadHead(403, "A socket needs the page from which it is opened.")
    if value_of(request.headers, b"sec-fetch-site") not in ("cross-site", "same-site"):
        return
    mode = value_of(request.headers, b"sec-fetch-mode")
    target = value_of(request.headers, b"sec-fetch-dest")
    if request.method not in (b"GET", b"HEAD") or mode != "navigate" or target != "document":
        raise BadHead(403, "Pages of other sites have no access to a notebook.")


def has_body(request: h11.Request) -> bool:
    """Returns whether something follows the head."""
    length = value_of(request.headers, b"content-length")
    return bool(value_of(request.headers, b"transfer-encoding")) or length.strip("0") != ""


def is_websocket(request: h11.Request) -> bool:
    """Returns whether a request opens a WebSocket."""
    words = value_of(request.headers, b"connection").lower().replace(" ", "").split(",")
    wants = value_of(request.headers, b"upgrade").lower() == "websocket"
    return request.method == b"GET" and wants and "upgrade" in words


def cookie_of(request: h11.Request, name: str) -> str:
    """Returns a cookie's value; empty without one, or if there are several."""
    found = [value for each, value in _cookies(request.headers) if each == name]
    return found[0] if len(found) == 1 else ""


def request_for_notebook(request: h11.Request, site: Site) -> h11.Request:
    """Returns the request as the notebook gets it: without our cookie and the portal's."""
    named = _named_by_connection(request.headers)
    headers: Headers = [
        (name, value)
        for name, value in request.headers
        if name not in _HOP | named | {b"cookie"} and not name.startswith(_SAID_BY_PROXIES)
    ]
    if value_of(request.headers, b"transfer-encoding"):
        headers.append((b"transfer-encoding", b"chunked"))
    kept = "; ".join(f"{n}={v}" for n, v in _cookies(request.headers) if n not in site.hidden)
    if kept:
        headers.append((b"cookie", kept.encode("latin-1")))
    headers.append((b"x-forwarded-proto", site.scheme.encode()))
    if is_websocket(request):
        headers += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    return h11.Request(method=request.method, target=request.target, headers=headers)


def headers_for_browser(headers: Iterable[tuple[bytes, bytes]], site: Site) -> Headers:
    """Returns the headers of an answer as the browser gets them."""
    all_of_them = list(headers)
    drop = _HOP | _NOT_PASSED | _named_by_connection(all_of_them)
    found: Headers = []
    for name, value in all_of_them:
        if name == b"set-cookie":
            own = _own_cookie(value, site)
            found += [(name, own)] if own else []
        elif name not in drop:
            found.append((name, value))
    return found


def _own_cookie(value: bytes, site: Site) -> bytes:
    """A cookie that a notebook sets, for its own host only; empty for one that is ours."""
    first, *rest = value.split(b";")
    name = first.partition(b"=")[0].strip().decode("latin-1")
    kept = [each for each in rest if each.partition(b"=")[0].strip().lower() != b"domain"]
    return b"" if name in site.hidden else b";".join([first, *kept])


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Headers that are for the next hop only, because `Connection` names them. Those that say where
    a message ends are never among them."""
    words = (value.lower().split(b",") for name, value in headers if name == b"connection")
    found = {word.strip() for each in words for word in each}
    return frozenset(found - {b"content-length", b"host", b"cookie", b"set-cookie"})


def _cookies(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    parts = (part for name, value in headers if name == b"cookie" for part in value.split(b";"))
    pairs = (part.decode("latin-1").strip().partition("=") for part in parts)
    return [(name, value) for name, sign, value in pairs if name and sign]


def cookie_make(site: Site, value: str) -> str:
    """Returns the header that sets our cookie, for the notebook's host alone."""
    secure = "; Secure" if site.scheme == "https" else ""
    return f"{site.cookie}={value}; Path=/; HttpOnly; SameSite=Lax{secure}"
