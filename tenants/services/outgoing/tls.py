"""TLS of outgoing connections: the machine's certificate authorities, and no environment."""

import ssl
from functools import cache

import httpx


@cache
def tls_context() -> ssl.SSLContext:
    """Returns the context of this process; making one reads all authorities."""
    return httpx.create_ssl_context(trust_env=False)
