"""Entry point of web processes: pages, REST, and WebSockets of the portal's own pages."""

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

# After each database answer a thread waits this long for the interpreter while others compute. With
# less, threads change three times as often, which costs more than they wait.
sys.setswitchinterval(0.002)
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

# ruff: noqa: E402 (Django must be set up before anything that imports models)
import django
from channels.routing import ProtocolTypeRouter, URLRouter

django.setup(set_prefix=False)

from channels.security.websocket import WebsocketDenier
from channels.sessions import CookieMiddleware
from django.conf import settings
from django.http.request import validate_host

from allocation.consumers import websocket_urlpatterns
from portal.web.operators import OperatorsHandler
from portal.web.serving.threads import handler_here

App = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


class SameOrigin:
    """Denies a WebSocket from another origin (scheme, host or port).

    Cookies ignore ports: without this check, a page of any program on the same host could listen.
    """

    def __init__(self, inner: App) -> None:
        self._inner = inner

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401
        """Forwards the socket, or denies it."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        app = self._inner if is_ours(headers) else WebsocketDenier()
        await app(scope, receive, send)


def is_ours(headers: dict[bytes, str]) -> bool:
    """Returns whether the page came from `PUBLIC_URL` or the socket's own host."""
    origin, host = headers.get(b"origin", ""), headers.get(b"host", "")
    if origin == settings.PUBLIC_URL:
        return True
    scheme = settings.PUBLIC_URL.partition("://")[0]
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return origin == f"{scheme}://{host}" and validate_host(name, settings.ALLOWED_HOSTS)


handler = handler_here()
application = ProtocolTypeRouter(
    {
        "http": OperatorsHandler(handler) if settings.SERVES_OPERATORS else handler,
        "websocket": SameOrigin(CookieMiddleware(URLRouter(websocket_urlpatterns))),
    }
)
