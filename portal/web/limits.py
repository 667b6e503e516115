"""Brakes on guessing passwords: per account and address, and per address over all accounts.

Never per account alone: a stranger could then lock its owner out.
"""

import hashlib
import logging
from contextlib import suppress
from datetime import datetime

from django.core.cache import BaseCache, cache
from django.core.cache.backends.locmem import LocMemCache
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

WINDOW_SECONDS = 15 * 60
FREE_TRIES = 5
FREE_TRIES_OF_ADDRESS = 50
FIRST_PAUSE_SECONDS = 15

# Without Redis each process counts for itself: a weaker brake, but never none.
_own = LocMemCache("sign-in", {})


def sign_in_try(username: str, address: str, now: datetime) -> int:
    """Counts a try that is about to be made. Seconds to wait before it may be; 0: go on."""
    try:
        return _try(cache, username, address, now)
    except RedisError:
        logger.warning("The cache did not answer; sign-in tries are counted in this process.")
        return _try(_own, username, address, now)


def sign_in_done(username: str, address: str) -> None:
    """The password was right: forgets the account's tries from here, and that this was a guess."""
    _forget(_own, username, address)
    try:
        _forget(cache, username, address)
    except RedisError:
        logger.warning("The cache did not answer; old sign-in tries stay counted.")


def _forget(store: BaseCache, username: str, address: str) -> None:
    key = _account_key(username, address)
    store.delete_many([f"tries:{key}", f"pause:{key}"])
    # Many people may share an address: their right passwords must not add up.
    with suppress(ValueError):
        store.decr(f"tries:{_address_key(address)}")


def _try(store: BaseCache, username: str, address: str, now: datetime) -> int:
    waits = (
        _admit(store, _account_key(username, address), FREE_TRIES, now),
        _admit(store, _address_key(address), FREE_TRIES_OF_ADDRESS, now),
    )
    return max(waits)


def _admit(store: BaseCache, key: str, free: int, now: datetime) -> int:
    wait = _wait(store, key, now)
    if wait:
        return wait
    # Counted before the password is looked at, so that parallel guesses share the free tries.
    store.add(f"tries:{key}", 0, timeout=WINDOW_SECONDS)
    tries = store.incr(f"tries:{key}")
    if tries <= free:
        return 0
    pause = min(FIRST_PAUSE_SECONDS * 2 ** min(tries - free - 1, 10), WINDOW_SECONDS)
    # Past the free tries one try opens the pause, and only that one is made.
    store.touch(f"tries:{key}", WINDOW_SECONDS)
    if store.add(f"pause:{key}", int(now.timestamp()) + pause, timeout=pause):
        return 0
    return _wait(store, key, now) or 1


def _wait(store: BaseCache, key: str, now: datetime) -> int:
    until: int = store.get(f"pause:{key}", 0)
    return max(0, until - int(now.timestamp()))


def _account_key(username: str, address: str) -> str:
    return hashlib.sha256(f"{username.casefold()}\0{address}".encode()).hexdigest()


def _address_key(address: str) -> str:
    return hashlib.sha256(address.encode()).hexdigest()
