"""Clients of Redis by address: of one server, or of the primary that Sentinels name.

`redis://user:password@host:6379/2` is a server.
`redis+sentinel://user:password@one:26379,two:26379,three:26379/portal/2` is database 2 of the
primary that the Sentinels know as `portal`. Their own account is in `?sentinel_user=…` and
`&sentinel_password=…`. A client asks them for each new connection. One to a server that is not the
primary any more ends with the first write, or earlier, as Sentinel closes it.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.asyncio.sentinel
import redis.retry
import redis.sentinel
from redis.backoff import NoBackoff

from tenants.platform.stores.patience import Patience

SCHEME = "redis+sentinel"
SENTINEL_PORT = 26379
# A Sentinel that does not answer for so long is passed over for the next one.
SENTINEL_SECONDS = 1.0
# The library's types leave these four out.
_Sentinel: Any = redis.sentinel.Sentinel
_Pool: Any = redis.sentinel.SentinelConnectionPool
_AsyncSentinel: Any = redis.asyncio.sentinel.Sentinel
_AsyncPool: Any = redis.asyncio.sentinel.SentinelConnectionPool
_LIMITS = {"socket_timeout": SENTINEL_SECONDS, "socket_connect_timeout": SENTINEL_SECONDS}


class BadAddress(ValueError):
    """An address of Sentinels that can't be read; the message never repeats a password."""


@dataclass(frozen=True)
class SentinelAddress:
    """The primary `name` of these Sentinels, with the accounts at it and at them."""

    sentinels: tuple[tuple[str, int], ...]
    name: str
    database: int
    user: str = ""
    password: str = field(default="", repr=False)
    sentinel_user: str = ""
    sentinel_password: str = field(default="", repr=False)

    @property
    def account(self) -> dict[str, Any]:
        """What a client signs in with at the primary, and its database."""
        given = {"username": self.user, "password": self.password}
        return {"db": self.database, **{name: value for name, value in given.items() if value}}

    def sentinel_account(self, *, is_async: bool = False) -> dict[str, Any]:
        """What a client signs in with at a Sentinel. It asks each once, as another one may answer."""
        given = {"username": self.sentinel_user, "password": self.sentinel_password}
        kind = redis.asyncio.retry.Retry if is_async else redis.retry.Retry
        limits = {**_LIMITS, "retry": kind(NoBackoff(), 0)}
        return {**limits, **{name: value for name, value in given.items() if value}}


def sentinel_address(url: str) -> SentinelAddress | None:
    """The parts of an address of Sentinels; None for the address of a server. Raises BadAddress."""
    parts = urlsplit(url)
    if parts.scheme != SCHEME:
        return None
    account, _, places = parts.netloc.rpartition("@")
    user, _, password = account.partition(":")
    name, _, number = parts.path.strip("/").partition("/")
    options = dict(parse_qsl(parts.query))
    sentinels = tuple(_place(each) for each in places.split(",") if each)
    if not sentinels or not name or not (number or "0").isdigit():
        raise BadAddress(f"it must look like {SCHEME}://user:password@one:26379,two:26379/name")
    if unknown := options.keys() - {"sentinel_user", "sentinel_password"}:
        raise BadAddress(f"it has unknown options: {', '.join(sorted(unknown))}")
    return SentinelAddress(sentinels, name, int(number or 0), unquote(user), unquote(password), **options)


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":") if ":" in text else (text, "", str(SENTINEL_PORT))
    if not host or not port.isdigit():
        raise BadAddress("a Sentinel is not named as host:port")
    return host, int(port)


def redis_client(url: str, **options: Any) -> "redis.Redis":  # noqa: ANN401 (redis')
    """A client of the server, or of the primary, with the options of a connection."""
    return redis.Redis.from_pool(PoolByAddress.from_url(url, **options))


def async_client(url: str, **options: Any) -> "redis.asyncio.Redis":  # noqa: ANN401
    """As `redis_client`, for an event loop."""
    at = sentinel_address(url)
    if at is None:
        return redis.asyncio.Redis.from_url(url, **options)
    given = at.sentinel_account(is_async=True)
    manager = _AsyncSentinel(at.sentinels, sentinel_kwargs=given)
    return redis.asyncio.Redis.from_pool(_AsyncPool(at.name, manager, **at.account, **options))


class PoolByAddress:
    """Makes pools of connections; Django's cache takes it as its `pool_class`."""

    @classmethod
    def from_url(cls, url: str, **options: Any) -> "redis.ConnectionPool":  # noqa: ANN401
        """The pool of one client, whose connections rest when the server hangs."""
        options.setdefault("retry", _patience(places_of(url)))
        at = sentinel_address(url)
        if at is None:
            return redis.ConnectionPool.from_url(url, **options)
        manager = _Sentinel(at.sentinels, sentinel_kwargs=at.sentinel_account())
        pool: redis.ConnectionPool = _Pool(at.name, manager, **at.account, **options)
        return pool


@cache
def _patience(places: tuple[object, ...]) -> Patience:
    """What this process knows of a server."""
    return Patience()


def channels_host(url: str, **options: Any) -> dict[str, Any]:  # noqa: ANN401
    """The server as the channel layer names it."""
    at = sentinel_address(url)
    if at is None:
        return {"address": url, **options}
    return {
        "master_name": at.name,
        "sentinels": list(at.sentinels),
        "sentinel_kwargs": at.sentinel_account(is_async=True),
        **at.account,
        **options,
    }


def broker_address(url: str) -> tuple[str, dict[str, Any]]:
    """The server as Celery names it: an address, and options of its transport."""
    at = sentinel_address(url)
    if at is None:
        return url, {}
    account = f"{quote(at.user, safe='')}:{quote(at.password, safe='')}@" if at.password else ""
    urls = (f"sentinel://{account}{host}:{port}/{at.database}" for host, port in at.sentinels)
    return ";".join(urls), {"master_name": at.name, "sentinel_kwargs": at.sentinel_account()}


def database_address(url: str, number: int) -> str:
    """The address with the number of a logical database."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{number}"))


def places_of(url: str) -> tuple[object, ...]:
    """What distinguishes two servers, without accounts: host and port, or Sentinels and a name."""
    if at := sentinel_address(url):
        return (frozenset(at.sentinels), at.name)
    parts = urlsplit(url)
    return (parts.hostname, parts.port or 6379)
