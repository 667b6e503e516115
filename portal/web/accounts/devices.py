"""Browsers in which an account has signed in before, by a signed cookie.

The cookie gives the browser its own sign-in attempts for the account
(portal/web/accounts/limits.py) and no other right. It follows OWASP's
device cookies: signed, bound to the account, with a nonce.
"""

import secrets

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import salted_hmac

SALT = "portal.device"
# Browsers limit cookies to 400 days; each sign-in renews it.
AGE_SECONDS = 400 * 24 * 60 * 60
MOST_ACCOUNTS = 5


def device_of(request: HttpRequest, username: str) -> str | None:
    """Returns the nonce that counts this browser's attempts for the account; None if unknown."""
    return _devices(request).get(_account(username))


def device_remember(request: HttpRequest, response: HttpResponse, username: str) -> None:
    """Marks the browser as known to the account for 400 days."""
    known = _devices(request)
    account = _account(username)
    nonce = known.pop(account, None) or secrets.token_urlsafe(12)
    kept = dict([*known.items()][-(MOST_ACCOUNTS - 1) :])
    response.set_cookie(
        settings.DEVICE_COOKIE_NAME,
        signing.dumps({**kept, account: nonce}, salt=SALT),
        max_age=AGE_SECONDS,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


def _devices(request: HttpRequest) -> dict[str, str]:
    """Returns nonces by account, most recent last."""
    try:
        found = signing.loads(
            request.COOKIES.get(settings.DEVICE_COOKIE_NAME, ""), salt=SALT, max_age=AGE_SECONDS
        )
    except signing.BadSignature:
        return {}
    return dict(found)


def _account(username: str) -> str:
    # The cookie must not reveal other users of the browser.
    return salted_hmac(SALT, username.casefold(), algorithm="sha256").hexdigest()[:16]
