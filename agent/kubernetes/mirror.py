"""A copy of all objects of one kind, which a thread keeps current by list and watch."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from agent.kubernetes.api import ApiError, KubernetesApi, Object, Resource

log = logging.getLogger(__name__)

T = TypeVar("T")

WATCH_S = 15
"""Seconds after which a watch ends and begins again: a connection that has died is noticed by then."""
PAUSE_S = 0.5
LONGEST_PAUSE_S = 4.0

Key = tuple[str, str]
"""Namespace and name."""


class Mirror(Generic[T]):
    """`read` makes of an object what is kept of it, None for one that is not. Only a thread that holds
    `news` reads `items`."""

    def __init__(
        self,
        api: KubernetesApi,
        resource: Resource,
        read: Callable[[Object], T | None],
        news: threading.Condition,
        steady: Callable[[], float] = time.monotonic,
        **query: str,
    ) -> None:
        self.items: dict[Key, T] = {}
        self.error: str | None = None
        self.failing_since: float | None = None
        self.answered: float | None = None
        """When the server said last what there is; None before its first answer."""
        self.changes = 0
        self._api = api
        self._resource = resource
        self._read = read
        self._news = news
        self._steady = steady
        self._query = query
        self._version: str | None = None
        self._versions: dict[Key, int] = {}
        self._stopped = threading.Event()

    def start(self) -> None:
        name = f"watch-{self._resource.plural}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def stop(self) -> None:
        """Ends with the watch that is open."""
        self._stopped.set()

    def take(self, data: Object) -> None:
        """Takes in the server's answer to a change, so that it is seen at once."""
        with self._news:
            self._put(data)

    def _run(self) -> None:
        pause = PAUSE_S
        while not self._stopped.is_set():
            began = self._steady()
            try:
                if self._version is None:
                    self._list()
                self._watch(self._version or "")
                pause = PAUSE_S
            except (OSError, ValueError, LookupError, TypeError) as error:
                pause = self._failed(error, pause if self._steady() - began < WATCH_S else PAUSE_S)

    def _failed(self, error: Exception, pause: float) -> float:
        """Waits before the next try; returns the pause after it."""
        # What there is now is listed again: a watch that continues says nothing until something changes.
        self._version = None
        if isinstance(error, ApiError) and error.is_gone:
            return PAUSE_S
        asked = error.retry_after if isinstance(error, ApiError) else 0.0
        with self._news:
            if self.error is None:
                log.warning("the API server does not show its %s: %s", self._resource.plural, error)
            self.error = str(error) or type(error).__name__
            if self.failing_since is None:
                self.failing_since = self._steady()
        self._stopped.wait(max(pause, asked))
        return min(2 * pause, LONGEST_PAUSE_S)

    def _answered(self) -> None:
        self.answered = self._steady()
        self.error = self.failing_since = None
        self._news.notify_all()

    def _list(self) -> None:
        rows, version = self._api.listed(self._resource, **self._query)
        with self._news:
            self.items.clear()
            self._versions.clear()
            for data in rows:
                self._put(data)
            self.changes += 1
            self._answered()
        self._version = version

    def _watch(self, version: str) -> None:
        for event in self._api.watched(self._resource, version, WATCH_S, **self._query):
            kind, data = event["type"], event["object"]
            if kind == "ERROR":
                raise ApiError(int(data.get("code", 0)), str(data.get("message", "the watch broke")))
            with self._news:
                if kind == "DELETED":
                    self._drop(data)
                elif kind != "BOOKMARK":
                    self._put(data)
                self._answered()
            self._version = str(data["metadata"]["resourceVersion"])
        with self._news:
            self._answered()

    def _put(self, data: Object) -> None:
        key = _key(data)
        version = int(data["metadata"]["resourceVersion"])
        if version < self._versions.get(key, 0):
            return
        self._versions[key] = version
        found = self._read(data)
        if found is None:
            self.items.pop(key, None)
        else:
            self.items[key] = found
        self.changes += 1

    def _drop(self, data: Object) -> None:
        key = _key(data)
        if int(data["metadata"]["resourceVersion"]) >= self._versions.get(key, 0):
            self._versions.pop(key, None)
            self.items.pop(key, None)
            self.changes += 1


def _key(data: Mapping[str, Mapping[str, str]]) -> Key:
    meta = data["metadata"]
    return meta.get("namespace", ""), meta["name"]
