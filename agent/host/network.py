"""The network interface over which this node's programs reach those of other nodes.

A node's own name often means 127.0.1.1 on the node itself (Debian writes it so), where no peer can
call. Gloo and NCCL resolve the name, so the environment names the interface; the first node of a
gang meets at the interface's address.
"""

import dataclasses
import fcntl
import socket
import struct
from pathlib import Path

_SIOCGIFADDR = 0x8915
_ROUTES = Path("/proc/net/route")
_ANYWHERE = "00000000"
_UP = 0x1


@dataclasses.dataclass(frozen=True, slots=True)
class Network:
    """An interface and its IPv4 address."""

    interface: str
    address: str


def network_find(interface: str | None = None, routes: Path = _ROUTES) -> Network | None:
    """Returns the interface of that name, else that of the default route; None if it has no IPv4
    address that others can reach. Asks the kernel only, never a name server."""
    name = interface or default_interface(routes)
    if name is None:
        return None
    request = struct.pack("256s", name.encode()[:15])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            answer = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, request)
    except OSError:
        return None
    address = socket.inet_ntoa(answer[20:24])
    return None if address.startswith("127.") else Network(name, address)


def default_interface(routes: Path) -> str | None:
    """Returns the interface of the default route with the lowest metric."""
    try:
        lines = routes.read_text().splitlines()[1:]
    except OSError:
        return None
    rows = [line.split() for line in lines]
    ways = [
        (int(row[6]), row[0])
        for row in rows
        if len(row) > 6 and row[1] == _ANYWHERE and int(row[3], 16) & _UP
    ]
    return min(ways)[1] if ways else None
