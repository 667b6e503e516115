"""Sends messages by `apprise`, in a process that has no secrets of the portal.

The library opens its own connections, so that a check of names before is not enough: a name can
resolve to another address a moment later. Here every connection of the process goes through
`_connect`, which resolves, checks and connects to the address that it has checked, for redirects,
too. Standard input has {"allow": networks, "messages": [{"id", "url", "title", "body"}]}; each line
of the output is {"id", "error"}: null, or a code and facts in the catalogue of `tenants`. This
process has no Django.
"""

import json
import logging
import resource
import socket
import sys
from ipaddress import ip_address, ip_network
from typing import Any

import apprise
import urllib3.util.connection as pool

from tenants.platform.coded import Coded
from tenants.rules.webhooks import BadTarget, Network, Target, address_check

MEMORY_BYTES = 1 << 30
CPU_SECONDS = 60
TLS_PORTS = (443, 8443)

_plain_connect = pool.create_connection


class Connections:
    """The connections of this process, and why the last one was refused."""

    def __init__(self, allowed: list[Network]) -> None:
        self.allowed = allowed
        self.refused: Coded | None = None

    def refused_last(self) -> Coded | None:
        """Returns why the last connection was refused, and forgets it."""
        found, self.refused = self.refused, None
        return found

    def connect(
        self,
        address: tuple[str, int],
        *arguments: Any,  # noqa: ANN401 (urllib3's)
        **options: Any,  # noqa: ANN401 (urllib3's)
    ) -> socket.socket:
        """Connects to an address that the name has and that is allowed. Raises OSError."""
        host, port = address[:2]
        target = Target("https" if port in TLS_PORTS else "http", host, port, "/")
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            places = [ip_address(str(place[0]).partition("%")[0]) for *_, place in found]
            for each in places:
                address_check(target, each, self.allowed)
        except BadTarget as fault:
            self.refused = fault.text
            raise OSError(fault.text.code) from None
        return _plain_connect((str(places[0]), port), *arguments, **options)


def main() -> None:
    """Sends each message of standard input, and says how it went."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    logging.disable(logging.CRITICAL)
    asked = json.load(sys.stdin)
    connections = Connections([ip_network(each) for each in asked["allow"]])
    pool.create_connection = connections.connect
    asset = apprise.AppriseAsset(app_id="GPU Portal", app_desc="GPU Portal", secure_logging=True)
    for each in asked["messages"]:
        connections.refused_last()
        error = _sent(each, asset)
        if error is not None:
            error = connections.refused_last() or error
        shown = None if error is None else [error.code, dict(error.facts)]
        sys.stdout.write(json.dumps({"id": each["id"], "error": shown}) + "\n")
        sys.stdout.flush()


_NOT_TAKEN = Coded("chat_not_taken")


def _sent(message: dict[str, Any], asset: apprise.AppriseAsset) -> Coded | None:
    """Sends one message; returns what is wrong, or None."""
    service = apprise.Apprise.instantiate(message["url"], asset=asset, suppress_exceptions=True)
    if service is None:
        return Coded("chat_incomplete")
    is_taken = service.notify(title=message["title"], body=message["body"])
    return None if is_taken else _NOT_TAKEN


if __name__ == "__main__":
    main()
