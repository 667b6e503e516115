"""Entry point of web processes: pages, REST and sockets."""

import os
import sys
import warnings

# A thread that holds a lock of the database waits so long for the interpreter after each answer
# of the database, while others compute; all who want that lock wait with it.
sys.setswitchinterval(0.0005)
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
# WhiteNoise streams files from a plain iterator; they are small, and Django reads them in a thread.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous")

# ruff: noqa: E402 (Django must be set up before anything that imports models)
import django
from channels.routing import ProtocolTypeRouter, URLRouter

django.setup(set_prefix=False)

from channels.sessions import CookieMiddleware
from django.conf import settings

from portal.routing import websocket_urlpatterns
from portal.web.operators import OperatorsHandler
from portal.web.origin import SameOrigin
from portal.web.threads import ThreadedHandler

handler = ThreadedHandler(settings.WEB_THREADS)
application = ProtocolTypeRouter(
    {
        "http": OperatorsHandler(handler) if settings.SERVES_OPERATORS else handler,
        "websocket": SameOrigin(CookieMiddleware(URLRouter(websocket_urlpatterns))),
    }
)
