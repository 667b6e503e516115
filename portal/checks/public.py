"""Checks of settings for the public: addresses, secrets, proxies."""

import os
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

from portal.deploy import weaknesses
from portal.env import Database

Network = IPv4Network | IPv6Network
# Proxies are single machines or small networks.
MIN_PREFIX = {4: 16, 6: 48}
LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def public_check(**_: object) -> list[CheckMessage]:
    """Findings about PUBLIC_URL, secrets, proxies and the link to nodes."""
    return [*_address(), *_secrets(), *_proxies(), *_agents_link()]


def _address() -> Iterator[CheckMessage]:
    if not settings.IS_HTTPS:
        yield Error(
            "PUBLIC_URL is not an https address: sessions and passwords are sent unencrypted.",
            hint="Use a proxy with a certificate in front and set PUBLIC_URL=https://…",
            id="portal.E001",
        )
    if settings.WHITENOISE_USE_FINDERS:
        yield Warning(
            "Static files are read from the source tree, uncompressed.",
            hint="Run manage.py collectstatic with STATIC_COLLECTED=1, and keep that setting.",
            id="portal.W002",
        )


def _secrets() -> Iterator[CheckMessage]:
    database = settings.DATABASES["default"]
    secrets = {
        "SECRET_KEY": settings.SECRET_KEY,
        "AGENTS_MASTER_KEY": settings.AGENTS_MASTER_KEY,
        **{f"SECRET_KEY_FALLBACKS[{at}]": old for at, old in enumerate(settings.SECRET_KEY_FALLBACKS)},
    }
    found = weaknesses(
        is_debug=settings.DEBUG,
        hosts=settings.ALLOWED_HOSTS,
        secrets={name: value for name, value in secrets.items() if value},
        stores={
            "DATABASE_URL": Database(
                name=database["NAME"],
                user=database["USER"],
                password=database["PASSWORD"],
                host=database["HOST"],
            ),
            "REDIS_URL": settings.BROKER_REDIS_URL,
            "AGENTS_REDIS_URL": settings.AGENTS_REDIS_URL,
        },
    )
    for weakness in found:
        yield Error(
            f"{weakness}.",
            hint="Secrets and passwords of stores: openssl rand -hex 32, one for each purpose.",
            id="portal.E003",
        )
    if settings.OPERATORS_URL and os.environ.get("AGENTS_MASTER_KEY"):
        yield Warning(
            "This web process has AGENTS_MASTER_KEY, from which every node's key is derived.",
            hint="Remove it from the environment of web processes: they do not use it.",
            id="portal.W009",
        )


def _proxies() -> Iterator[CheckMessage]:
    is_behind = hasattr(settings, "SECURE_PROXY_SSL_HEADER") and bool(settings.SECURE_PROXY_SSL_HEADER)
    for network in _too_wide(settings.TRUSTED_PROXIES):
        yield Error(
            f"TRUSTED_PROXIES has {network}: every machine in it can claim any client address.",
            hint="List the addresses of the proxies themselves.",
            id="portal.E004",
        )
    if is_behind and not settings.TRUSTED_PROXIES:
        yield Error(
            "A proxy ends TLS, and TRUSTED_PROXIES is empty: all people share its address, so an"
            " attacker who guesses passwords delays everybody's sign-in.",
            hint="Set TRUSTED_PROXIES to the proxy's address.",
            id="portal.E005",
        )
    if settings.TRUSTED_PROXIES and settings.IS_HTTPS and not is_behind:
        yield Error(
            "TRUSTED_PROXIES is set without BEHIND_TLS_PROXY: every request is redirected to https"
            " in a loop.",
            hint="Set BEHIND_TLS_PROXY=1 if the proxy sets X-Forwarded-Proto.",
            id="portal.E006",
        )
    for network in settings.METRICS_ALLOW:
        if any(_overlap(network, proxy) for proxy in settings.TRUSTED_PROXIES):
            yield Error(
                f"METRICS_ALLOW has {network}, which contains a proxy.",
                hint="Give Prometheus METRICS_TOKEN instead.",
                id="portal.E007",
            )


def _too_wide(networks: Sequence[Network]) -> Iterator[Network]:
    yield from (network for network in networks if network.prefixlen < MIN_PREFIX[network.version])


def _overlap(one: Network, other: Network) -> bool:
    return one.version == other.version and one.overlaps(other)


def _agents_link() -> Iterator[CheckMessage]:
    parts = urlsplit(settings.AGENTS_REDIS_PUBLIC_URL)
    hosts = {urlsplit(f"//{place}").hostname for place in parts.netloc.split(",")}
    if parts.scheme == "redis" and hosts - LOOPBACK:
        yield Warning(
            "Nodes connect to their server without TLS: passwords of their accounts can be read in transit.",
            hint="docs/guides/nodes.md, The agents' server: AGENTS_REDIS_PUBLIC_URL=rediss://…",
            id="portal.W008",
        )
