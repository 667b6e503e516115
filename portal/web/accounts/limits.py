"""Rate limits against password guessing.

A browser that has signed in to the account before has its own attempts, which no one else can use
up. All other browsers share few attempts per account and many per address. After the free attempts,
each attempt starts a pause that is twice as long as the one before.
"""

import hashlib
import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv6Address, ip_address, ip_network

from django.core.cache import BaseCache, cache
from django.core.cache.backends.locmem import LocMemCache
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

WINDOW_SECONDS = 15 * 60


@dataclass(frozen=True, slots=True)
class Limit:
    """Free attempts within 15 minutes, and the length of pauses."""

    free: int
    first_pause: int
    longest_pause: int


DEVICE = Limit(free=5, first_pause=15, longest_pause=15 * 60)
ACCOUNT = Limit(free=5, first_pause=15, longest_pause=15 * 60)
# Many people can share an address, so one of them must not lock out the others for long.
ADDRESS = Limit(free=100, first_pause=2, longest_pause=30)

# Without Redis each process counts for itself: weaker, but never unlimited.
_own = LocMemCache("sign-in", {"OPTIONS": {"MAX_ENTRIES": 50_000}})


@dataclass(frozen=True, slots=True)
class Attempt:
    """A sign-in attempt: name, address and known browser, if any."""

    username: str
    address: str
    device: str | None = None

    @property
    def limits(self) -> list[tuple[str, Limit]]:
        """Returns the counters of the attempt with their limits."""
        if self.device is not None:
            return [(_key("device", self.device), DEVICE)]
        return [(_key("account", self.username.casefold()), ACCOUNT), (self._address, ADDRESS)]

    @property
    def _address(self) -> str:
        """Returns one key per network of a person: an IPv4 address or an IPv6 /64."""
        with suppress(ValueError):
            if isinstance(found := ip_address(self.address), IPv6Address):
                return _key("address", str(ip_network((found, 64), strict=False)))
        return _key("address", self.address)


def sign_in_try(attempt: Attempt, now: datetime) -> int:
    """Counts an attempt before it is made. Returns the seconds to wait; 0 allows it."""
    try:
        return _try(cache, attempt, now)
    except RedisError:
        logger.warning("The cache did not answer; sign-in tries are counted in this process.")
        return _try(_own, attempt, now)


def sign_in_done(attempt: Attempt) -> None:
    """Resets the counters after a correct password."""
    _forget(_own, attempt)
    try:
        _forget(cache, attempt)
    except RedisError:
        logger.warning("The cache did not answer; old sign-in tries stay counted.")


def _try(store: BaseCache, attempt: Attempt, now: datetime) -> int:
    # An attempt that has to wait is not made, so other limits don't count it.
    waiting = max(_wait(store, key, now) for key, _ in attempt.limits)
    return waiting or max(_admit(store, key, limit, now) for key, limit in attempt.limits)


def _forget(store: BaseCache, attempt: Attempt) -> None:
    for key, limit in attempt.limits:
        if limit is ADDRESS:
            # Others may be guessing from this address, so only this attempt is uncounted.
            with suppress(ValueError):
                store.decr(f"tries:{key}")
        else:
            store.delete_many([f"tries:{key}", f"pause:{key}"])


def _admit(store: BaseCache, key: str, limit: Limit, now: datetime) -> int:
    # Counts before checking the password, so that parallel guesses share the free attempts.
    store.add(f"tries:{key}", 0, timeout=WINDOW_SECONDS)
    try:
        tries = store.incr(f"tries:{key}")
    except ValueError:
        # Somebody has just signed in, which resets the counter, or its window is over.
        store.add(f"tries:{key}", 1, timeout=WINDOW_SECONDS)
        tries = 1
    if tries <= limit.free:
        return 0
    pause = min(limit.first_pause * 2 ** min(tries - limit.free - 1, 10), limit.longest_pause)
    # After the free attempts one attempt starts the pause, and only that one is made. They are
    # remembered for longer than the pause, or each long pause would be followed by free ones.
    store.touch(f"tries:{key}", WINDOW_SECONDS + pause)
    if store.add(f"pause:{key}", int(now.timestamp()) + pause, timeout=pause):
        return 0
    return _wait(store, key, now) or 1


def _wait(store: BaseCache, key: str, now: datetime) -> int:
    until: int = store.get(f"pause:{key}", 0)
    return max(0, until - int(now.timestamp()))


def _key(kind: str, what: str) -> str:
    return f"{kind}:{hashlib.sha256(what.encode('utf-8', 'surrogatepass')).hexdigest()}"
