"""Forwards operators' requests to a separate process.

The web process authenticates the request and forwards it; it has no operator rights. The operators'
process authenticates again and serves operators only.
"""

import http.client
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse
from django.http.request import RawPostDataException

from portal.web.errors import busy
from portal.web.serving.threads import BODY
from tenants.platform.errors import missing
from tenants.platform.wall import ServedElsewhere
from tenants.web.frame import refused_page

# Headers that the web process adds to a forwarded request. A client's own are removed.
CLIENT = "X-Portal-Client"
SCHEME = "X-Portal-Scheme"
# Headers of one connection; lengths are recomputed, and the web process compresses.
OF_CONNECTION = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        CLIENT.lower(),
        SCHEME.lower(),
    }
)
# The paths that the operators' process serves.
OPERATORS_PATHS = (
    "/ops/",
    "/second-factor",
    "/sso",
    "/scim/v2/",
    "/api/v1/",
    "/metrics",
    "/healthz",
    "/readyz",
)
# The pages of a tenant that it serves: a provider's secret and the token of a directory.
TENANTS_PATH = re.compile(r"/t/[-\w]+/settings/(?:sign-on|directory)")
ANSWER_SECONDS = 60

Respond = Callable[[HttpRequest], HttpResponse]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class OperatorsMiddleware:
    """Forwards operators' requests; in the operators' process, serves nothing else."""

    def __init__(self, get_response: Respond) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Returns the view's response; in the operators' process 404 for other paths."""
        if settings.SERVES_OPERATORS and not _is_served(request.path_info):
            return refused_page(request, missing("page"))
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Returns the operators' process's response when a view requires it."""
        if not isinstance(error, ServedElsewhere) or not isinstance(request, ASGIRequest):
            return None
        try:
            return _passed_on(request)
        except (OSError, http.client.HTTPException):
            return busy(request)


class OperatorsHandler:
    """The operators' process as an ASGI application with the original client's address."""

    def __init__(self, inner: Callable[..., Awaitable[None]]) -> None:
        self.inner = inner

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Replaces the web process's address with the client's."""
        said = dict(scope["headers"])
        client = said.get(CLIENT.lower().encode())
        scheme = said.get(SCHEME.lower().encode())
        if client is not None:
            scope["client"] = (client.decode("latin-1"), 1)
        if scheme is not None:
            scope["scheme"] = scheme.decode("latin-1")
        await self.inner(scope, receive, send)


def _is_served(path: str) -> bool:
    return path.startswith(OPERATORS_PATHS) or TENANTS_PATH.fullmatch(path) is not None


def _passed_on(request: ASGIRequest) -> HttpResponse:
    address = urlsplit(settings.OPERATORS_URL)
    link = http.client.HTTPConnection(address.hostname or "", address.port or 80, timeout=ANSWER_SECONDS)
    sent = _body(request)
    try:
        link.putrequest(
            request.method or "GET",
            request.get_full_path(),
            skip_host=True,
            skip_accept_encoding=True,
        )
        for name, value in _headers(request):
            link.putheader(name, value)
        link.putheader("Content-Length", str(len(sent)))
        link.endheaders(sent or None)
        return _answer(link.getresponse())
    finally:
        link.close()


def _body(request: ASGIRequest) -> bytes:
    try:
        return request.body
    except RawPostDataException:
        # A view has already read the body as a stream.
        kept = request.scope[BODY]
        kept.seek(0)
        return bytes(kept.read())


def _headers(request: ASGIRequest) -> Iterator[tuple[str, bytes]]:
    for name, value in request.scope["headers"]:
        if name.decode("latin-1").lower() not in OF_CONNECTION:
            yield name.decode("latin-1"), value
    yield CLIENT, request.META.get("REMOTE_ADDR", "").encode("latin-1")
    yield SCHEME, str(request.scope.get("scheme", "http")).encode("latin-1")


def _answer(found: http.client.HTTPResponse) -> HttpResponse:
    response = HttpResponse(found.read(), status=found.status, reason=found.reason)
    del response["Content-Type"]
    for name, value in _kept(found.getheaders()):
        if name.lower() == "set-cookie":
            response.cookies.update(SimpleCookie(value))
        else:
            response[name] = value
    return response


def _kept(headers: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    dropped = OF_CONNECTION | {"date", "server"}
    return ((name, value) for name, value in headers if name.lower() not in dropped)
