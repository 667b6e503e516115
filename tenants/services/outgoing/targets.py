"""Resolves the name of an address that a tenant chose, and checks every address that it has."""

import socket
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from functools import cache
from ipaddress import ip_address

from django.conf import settings

from tenants.rules.webhooks import Address, BadTarget, Target, address_check

# A name server that does not answer holds a thread of the pool, and not the request.
RESOLVE_SECONDS = 3
RESOLVERS = 64


def target_address(target: Target, setting: str = "WEBHOOK_ALLOW") -> Address:
    """Returns an address to connect to, within three seconds.

    `setting` names the networks of the site that are allowed, in addition to public addresses.

    Connect to this address and not to the name, which may resolve to another one a moment later.

    Raises:
        BadTarget: The name does not resolve, or one of its addresses is not allowed.
    """
    try:
        return resolvers().submit(target_resolve, target, setting).result(timeout=RESOLVE_SECONDS)
    except TooLate:
        raise BadTarget("name_server") from None


def target_resolve(target: Target, setting: str = "WEBHOOK_ALLOW") -> Address:
    """As `target_address`, without a limit of time: run it in one of the `resolvers`."""
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    if not found:
        raise BadTarget("name_unresolved")
    addresses = [ip_address(str(place[0]).partition("%")[0]) for *_, place in found]
    for address in addresses:
        address_check(target, address, getattr(settings, setting), setting)
    return addresses[0]


@cache
def resolvers() -> ThreadPoolExecutor:
    """Returns the threads of this process that ask name servers."""
    return ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolve")
