"""Tokens of other systems, such as a tracker's, encrypted with a key derived from `SECRET_KEY`.

Unlike the secrets of webhooks they can't be derived, because the other system makes them. A token
stays readable while its key is among `SECRET_KEY_FALLBACKS`.
"""

import hashlib
import hmac
from uuid import UUID

from django.conf import settings
from joserfc import jwe
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

_HEADER = {"alg": "dir", "enc": "A256GCM"}
_ALGORITHMS = ["dir", "A256GCM"]


def token_seal(tenant_id: UUID, token: str) -> str:
    """Returns the encrypted token."""
    key = _key(settings.SECRET_KEY, tenant_id)
    return jwe.encrypt_compact(_HEADER, token.encode(), key, _ALGORITHMS)


def token_open(tenant_id: UUID, sealed: str) -> str | None:
    """Returns the token; None when its key is gone or the tenant is another one."""
    for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        try:
            found = jwe.decrypt_compact(sealed, _key(key, tenant_id), _ALGORITHMS).plaintext
        except (JoseError, ValueError):
            continue
        return None if found is None else found.decode()
    return None


def _key(key: str, tenant_id: UUID) -> OctKey:
    message = b"token of another system:" + tenant_id.bytes
    return OctKey.import_key(hmac.digest(key.encode(), message, hashlib.sha256))
