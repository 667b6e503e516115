"""Only the portal's own pages can open WebSockets."""

from collections.abc import Awaitable, Callable
from typing import Any

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import validate_host

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
