"""Entry point of web processes: pages, REST and WebSockets."""

import os
import sys

# After each database answer a thread waits this long for the interpreter while others compute,
# and every thread that needs its database locks waits with it.
sys.setswitchinterval(0.0005)
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

# ruff: noqa: E402 (Django must be set up before anything that imports models)
import django
from channels.routing import ProtocolTypeRouter, URLRouter

django.setup(set_prefix=False)

from channels.sessions import CookieMiddleware
from django.conf import settings

from allocation.consumers import websocket_urlpatterns
from portal.web.operators import OperatorsHandler
from portal.web.origin import SameOrigin
from portal.web.serving.threads import ThreadedHandler

handler = ThreadedHandler(settings.WEB_THREADS)
application = ProtocolTypeRouter(
    {
        "http": OperatorsHandler(handler) if settings.SERVES_OPERATORS else handler,
        "websocket": SameOrigin(CookieMiddleware(URLRouter(websocket_urlpatterns))),
    }
)
