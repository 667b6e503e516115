"""Client secrets of providers, encrypted with a key of their tenant.

The key is derived from `AGENTS_MASTER_KEY`, which no web process and no backup has.
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


def secret_seal(tenant_id: UUID, secret: str) -> str:
    """Returns the encrypted secret."""
    return jwe.encrypt_compact(_HEADER, secret.encode(), _key(tenant_id), _ALGORITHMS)


def secret_open(tenant_id: UUID, sealed: str) -> str | None:
    """Returns the secret; None when the master key or the tenant is another one."""
    try:
        found = jwe.decrypt_compact(sealed, _key(tenant_id), _ALGORITHMS).plaintext
    except (JoseError, ValueError):
        return None
    return None if found is None else found.decode()


def _key(tenant_id: UUID) -> OctKey:
    message = b"single sign-on:" + tenant_id.bytes
    key = settings.AGENTS_MASTER_KEY.encode()
    return OctKey.import_key(hmac.digest(key, message, hashlib.sha256))
