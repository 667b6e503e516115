"""Rules of webhooks: which addresses they may have, and when a message is tried again. Pure."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from urllib.parse import SplitResult, urlsplit

from tenants.platform.coded import CodedError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

URL_LENGTH_MAX = 500
PUBLIC_PORTS = (443, 8443)
# IPv6 addresses that stand for an IPv4 address, which a gateway may route to a private network.
_TRANSLATED = tuple(ip_network(text) for text in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16"))
# Networks of a site by an older rule, for documents, and of protocols: `ipaddress` of some versions of
# Python takes them for public. A cloud has its metadata at 192.0.0.192.
_NOT_PUBLIC = tuple(
    ip_network(text) for text in ("fec0::/10", "3fff::/20", "192.88.99.0/24", "192.0.0.0/24", "2001::/23")
)
_REFUSED = (*_TRANSLATED, *_NOT_PUBLIC)
# The metadata service of Azure has a public address.
_METADATA = ip_address("168.63.129.16")
_VISIBLE = re.compile(r"[!-~]+")
_NAME = re.compile(
    r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)

# After these delays a message is tried again, the last time a day after the first attempt.
RETRY_SECONDS = (5, 60, 300, 1_800, 7_200, 18_000, 18_000, 18_000, 18_000, 18_000)
RETRY_PERIOD = timedelta(hours=24)
RETRY_AFTER_MAX = timedelta(hours=1)


class BadTarget(CodedError):
    """A webhook may not have this address; the message is a sentence for people."""


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of a webhook's URL. `host` is in lower case, without brackets or a final dot."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def header(self) -> str:
        """Returns the value of the header `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"https": 443, "http": 80}[self.scheme]
        return host if self.port == usual else f"{host}:{self.port}"

    def at(self, address: Address) -> str:
        """Returns the URL with the address in place of the name."""
        host = f"[{address}]" if address.version == 6 else str(address)
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def target_read(url: str) -> Target:
    """Returns the parts of the URL. Raises BadTarget."""
    if len(url) > URL_LENGTH_MAX:
        raise BadTarget("address_long", most=URL_LENGTH_MAX)
    if not _VISIBLE.fullmatch(url) or "\\" in url:
        raise BadTarget("address_ascii")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadTarget("address_form") from None
    if parts.scheme not in ("https", "http"):
        raise BadTarget("address_https")
    if "@" in parts.netloc:
        raise BadTarget("address_password")
    if "#" in url:
        raise BadTarget("address_fragment")
    usual = 443 if parts.scheme == "https" else 80
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, _host_read(parts), usual if port is None else port, path)


def _host_read(parts: SplitResult) -> str:
    host = (parts.hostname or "").removesuffix(".")
    if ":" in host and "%" not in host:
        try:
            return str(IPv6Address(host))
        except ValueError:
            raise BadTarget("address_ipv6") from None
    if not _NAME.fullmatch(host):
        raise BadTarget("address_host")
    return host


def address_check(
    target: Target,
    address: Address,
    allowed: Collection[Network],
    setting: str = "WEBHOOK_ALLOW",
) -> None:
    """Refuses an address that the name of `target` has, unless the operator allows its network.

    Public addresses need HTTPS and one of two ports, so that no other service is reached.

    Raises:
        BadTarget: The message does not repeat the address, which may be an internal one.
    """
    plain = getattr(address, "ipv4_mapped", None) or address
    if any(plain in network for network in allowed if network.version == plain.version):
        return
    if not _is_public(plain):
        raise BadTarget("address_private", setting=setting)
    if target.scheme != "https":
        raise BadTarget("address_public_https")
    if target.port not in PUBLIC_PORTS:
        raise BadTarget("address_public_port")


def _is_public(address: Address) -> bool:
    if any(address in network for network in _REFUSED if network.version == address.version):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved and address != _METADATA


def next_try(tries: int, first: datetime, now: datetime) -> datetime | None:
    """Returns when a message is tried again after `tries` attempts; None when it is given up."""
    if now >= first + RETRY_PERIOD or tries > len(RETRY_SECONDS):
        return None
    return min(now + timedelta(seconds=RETRY_SECONDS[tries - 1]), first + RETRY_PERIOD)


def retry_after(header: str) -> timedelta:
    """Returns the wait that a receiver asks for, in seconds and at most an hour; else zero."""
    text = header.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        return timedelta()
    return min(timedelta(seconds=int(text)), RETRY_AFTER_MAX)
