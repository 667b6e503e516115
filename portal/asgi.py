"""Entry point of web processes: pages, REST and sockets."""

import os
import warnings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
# WhiteNoise streams files from a plain iterator; they are small, and Django reads them in a thread.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous")

# ruff: noqa: E402 (Django must be set up before anything that imports models)
from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

pages = get_asgi_application()

from channels.auth import AuthMiddlewareStack
from channels.security.websocket import AllowedHostsOriginValidator

from portal.routing import websocket_urlpatterns

application = ProtocolTypeRouter(
    {
        "http": pages,
        "websocket": AllowedHostsOriginValidator(
            AuthMiddlewareStack(URLRouter(websocket_urlpatterns))
        ),
    }
)
