"""Headers with which all answers tell browsers what pages of the portal may do."""

from collections.abc import Callable, Mapping

from csp.constants import HEADER
from csp.utils import build_policy
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

# What no page of the portal uses. Features that a browser does not know are only noted by it.
UNUSED = (
    "accelerometer",
    "autoplay",
    "camera",
    "display-capture",
    "encrypted-media",
    "fullscreen",
    "geolocation",
    "gyroscope",
    "hid",
    "idle-detection",
    "local-fonts",
    "magnetometer",
    "microphone",
    "midi",
    "payment",
    "picture-in-picture",
    "screen-wake-lock",
    "serial",
    "usb",
    "xr-spatial-tracking",
)
# What pages use: passkeys, and the buttons that copy a secret.
OWN = ("publickey-credentials-create", "publickey-credentials-get", "clipboard-write")
PERMISSIONS = ", ".join([*(f"{each}=()" for each in UNUSED), *(f"{each}=(self)" for each in OWN)])


def fixed_headers() -> Mapping[str, str]:
    """Returns the headers that are the same for all answers: no view changes them."""
    return {
        HEADER: build_policy(),
        "Permissions-Policy": PERMISSIONS,
        "X-Frame-Options": settings.X_FRAME_OPTIONS,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": settings.SECURE_REFERRER_POLICY,
        "Cross-Origin-Opener-Policy": settings.SECURE_CROSS_ORIGIN_OPENER_POLICY,
        "Cross-Origin-Resource-Policy": "same-origin",
    }


class PolicyMiddleware:
    """Sets the headers. It stands before what answers by itself: files, errors, other hosts.

    The packages' own middlewares build them for each answer, for views that change them.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response
        self._headers = fixed_headers()

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Returns the view's answer with the headers; it is kept nowhere unless it says where."""
        response = self._get_response(request)
        for name, value in self._headers.items():
            response.headers[name] = value
        response.headers.setdefault("Cache-Control", "no-store, private")
        return response
