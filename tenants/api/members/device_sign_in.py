"""Sign-in of programs on devices without a browser (RFC 8628)."""

from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.access import client_address
from tenants.api.base import ApiView
from tenants.models import Scope
from tenants.platform.rest.fields import Strict, Text
from tenants.platform.rest.schema import described
from tenants.services.sign_in.devices import (
    LIFETIME,
    POLL_SECONDS,
    device_sign_in_start,
    device_token_take,
)
from tenants.services.sign_in.rate_limits import call_limit_check

SCOPES_DEFAULT = (Scope.READ, Scope.BOOK)
PAGE = "/device"


class DeviceSignInNew(Strict):
    """A device that asks to sign in."""

    name = Text(max_length=80, help_text="Shown to the person who confirms it; names the token.")
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=Scope.values),
        required=False,
        allow_empty=False,
        max_length=len(Scope.values),
        help_text="What the token may do. By default read and book.",
    )


class DeviceSignInOut(serializers.Serializer[Any]):
    """The codes of a sign-in."""

    device_code = serializers.CharField(help_text="Keep it secret; it is exchanged for the token.")
    user_code = serializers.CharField(help_text="The person types it at `verification_uri`.")
    verification_uri = serializers.URLField()
    verification_uri_complete = serializers.URLField(help_text="The same page with the code.")
    expires_in = serializers.IntegerField(help_text="Seconds.")
    interval = serializers.IntegerField(help_text="Seconds between requests for the token.")


class DeviceSignIns(ApiView):
    """Begins sign-ins of devices. No credential is needed."""

    authentication_classes = ()
    permission_classes = ()

    @described(
        "create_device_sign_in",
        "Begin the sign-in of a device without a browser",
        answer=DeviceSignInOut,
        status=201,
        request=DeviceSignInNew,
        public=True,
    )
    def post(self, request: Request) -> Response:
        """Returns the codes."""
        address = client_address(request.META)
        call_limit_check("device", address, self.now)
        sent = self.sent(DeviceSignInNew)
        codes = device_sign_in_start(
            name=sent["name"],
            scopes=sent.get("scopes", SCOPES_DEFAULT),
            address=address,
            now=self.now,
        )
        page = f"{settings.PUBLIC_URL}{PAGE}"
        shown = {
            "device_code": codes.device_code,
            "user_code": codes.user_code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?code={codes.user_code}",
            "expires_in": int(LIFETIME.total_seconds()),
            "interval": POLL_SECONDS,
        }
        return Response(shown, status=201)


class DeviceTokenIn(Strict):
    """The code of a device."""

    device_code = Text(max_length=100)


class DeviceTokenOut(serializers.Serializer[Any]):
    """The token of a device."""

    token = serializers.CharField(help_text="Returned once.")


class DeviceTokens(ApiView):
    """Hands tokens to devices. The device's code is the only credential."""

    authentication_classes = ()
    permission_classes = ()

    @described(
        "create_device_token",
        "Fetch the token of a device, once a person has confirmed its sign-in",
        answer=DeviceTokenOut,
        request=DeviceTokenIn,
        public=True,
    )
    def post(self, request: Request) -> Response:
        """Returns the token, or a problem with the code `authorization_pending`."""
        return Response({"token": device_token_take(self.sent(DeviceTokenIn)["device_code"])})
