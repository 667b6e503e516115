"""The secrets of webhooks: derived from `SECRET_KEY` and a salt, so that none is stored.

A database or backup that leaks holds salts only. A salt ends with a mark of the key that it is for,
so secrets stay the same while that key is among `SECRET_KEY_FALLBACKS`.
"""

import base64
import hashlib
import hmac
import secrets
from datetime import datetime

from django.conf import settings

from tenants.models import Webhook

PREFIX = "whsec_"
_RANDOM_BYTES, _MARK_BYTES = 24, 8


def salt_new() -> bytes:
    """Returns a salt for the present key."""
    return secrets.token_bytes(_RANDOM_BYTES) + _mark(settings.SECRET_KEY)


def secret_of(salt: bytes | memoryview) -> str | None:
    """Returns the secret `whsec_…`; None when the key that it was derived from is gone."""
    for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        if hmac.compare_digest(_mark(key), bytes(salt)[_RANDOM_BYTES:]):
            derived = _derive(key, b"webhook secret:" + bytes(salt)[:_RANDOM_BYTES])
            return PREFIX + base64.b64encode(derived).decode()
    return None


def webhook_secrets(webhook: Webhook, now: datetime) -> tuple[str, ...]:
    """Returns the secrets that are valid now, the newest first."""
    return secrets_valid(webhook.salt, webhook.previous_salt, webhook.previous_until, now)


def secrets_valid(
    salt: bytes | memoryview,
    previous: bytes | memoryview | None,
    until: datetime | None,
    now: datetime,
) -> tuple[str, ...]:
    """Returns the secret of a salt, and the one of the previous salt before its end."""
    salts = [salt, previous] if previous and until and now < until else [salt]
    return tuple(secret for each in salts if each and (secret := secret_of(each)))


def _mark(key: str) -> bytes:
    return _derive(key, b"webhook key")[:_MARK_BYTES]


def _derive(key: str, text: bytes) -> bytes:
    return hmac.digest(key.encode(), text, hashlib.sha256)
