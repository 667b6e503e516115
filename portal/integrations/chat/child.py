"""Sends messages by `apprise`, in a process that has no secrets of the portal.

The library opens its own connections, so that a check of names before is not enough: a name can
resolve to another address a moment later. Here every connection of the process goes through
`_connect`, which resolves, checks and connects to the address that it has checked, for redirects,
too. Standard input has {"allow": networks, "messages": [{"id", "url", "title", "body"}]}; each line
of the output is {"id", "error"}.
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

from tenants.rules.webhooks import BadTarget, Network, Target, address_check
from tenants.words import fault_text

MEMORY_BYTES = 1 << 30
CPU_SECONDS = 60
TLS_PORTS = (443, 8443)

_plain_connect = pool.create_connection


class Connections:
    """The connections of this process, and why the last one was refused."""

    def __init__(self, allowed: list[Network]) -> None:
        self.allowed = allowed
        self.refused = ""

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
            self.refused = fault_text(fault)
            raise OSError(self.refused) from None
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
        connections.refused = ""
        error = _sent(each, asset) and (connections.refused or _NOT_TAKEN)
        sys.stdout.write(json.dumps({"id": each["id"], "error": error}) + "\n")
        sys.stdout.flush()


_NOT_TAKEN = "The service did not take the message."


def _sent(message: dict[str, Any], asset: apprise.AppriseAsset) -> str:
    """Sends one message; returns what is wrong, empty for nothing."""
    service = apprise.Apprise.instantiate(message["url"], asset=asset, suppress_exceptions=True)
    if service is None:
        return "The address is not complete."
    is_taken = service.notify(title=message["title"], body=message["body"])
    return "" if is_taken else _NOT_TAKEN


if __name__ == "__main__":
    main()
