"""Machines of clouds, by Apache Libcloud."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import requests
from libcloud.common.exceptions import BaseHTTPError
from libcloud.common.types import LibcloudError
from libcloud.compute.base import Node, NodeDriver, NodeImage, NodeSize
from libcloud.compute.providers import get_driver
from libcloud.compute.types import NodeState

from allocation.features.capacity.providers import Listed, Provider, ProviderFailed
from allocation.features.capacity.rules import Offer

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 20
MESSAGE_LENGTH = 200
# The metadata or tag that says when its provider takes a machine back, such as 2026-11-21T14:02:00Z.
NOTICE = "leaves-at"
_GONE = (NodeState.TERMINATED,)
_FAILED = (NodeState.ERROR,)
_COMING = (NodeState.PENDING, NodeState.STARTING, NodeState.REBOOTING, NodeState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class _Network:
    """A network of OpenStack, of which its driver reads the id."""

    id: str


# How each driver takes the script that a machine runs, and a token for one machine.
_CREATE: Mapping[str, Callable[[str, str], dict[str, Any]]] = {
    "openstack": lambda _name, boot: {"ex_userdata": boot},
    "ec2": lambda name, boot: {"ex_userdata": boot, "ex_clienttoken": name},
    "gce": lambda _name, boot: {"ex_metadata": {"items": [{"key": "startup-script", "value": boot}]}},
    "dummy": lambda _name, _boot: {},
}
DRIVERS = tuple(_CREATE)


class Cloud:
    """One account at one provider."""

    def __init__(self, provider: Provider) -> None:
        """Opens no connection yet. Raises ProviderFailed for a driver that is not known."""
        if provider.driver not in _CREATE:
            raise ProviderFailed(f"{provider.name}: the driver is one of {', '.join(DRIVERS)}.")
        self._provider = provider
        self._opened: NodeDriver | None = None

    def listing(self) -> Sequence[Listed]:
        """The machines that are paid for. Raises ProviderFailed."""
        with self._asked("list machines") as driver:
            return [_listed(each) for each in driver.list_nodes() if each.state not in _GONE]

    def acquire(self, name: str, offer: Offer, boot: str) -> str:
        """Requests a machine; returns its id. Raises ProviderFailed."""
        kind = self._provider.driver
        more = {**self._provider.create, **_CREATE[kind](name, boot)}
        if "networks" in more:
            more["networks"] = [_Network(each) for each in more["networks"]]
        with self._asked("request a machine") as driver:
            size: Any = offer.size
            image: Any = self._provider.image
            if kind != "gce":
                size = NodeSize(offer.size, offer.size, 0, 0, 0, 0, driver)
                image = NodeImage(image, image, driver)
            return str(driver.create_node(name=name, size=size, image=image, **more).id)

    def release(self, machine_id: str) -> None:
        """Gives a machine back; one that is not there is no failure. Raises ProviderFailed."""
        with self._asked("give a machine back") as driver:
            found = [each for each in driver.list_nodes() if str(each.id) == machine_id]
            for each in found:
                driver.destroy_node(each)

    @contextmanager
    def _asked(self, what: str) -> Iterator[NodeDriver]:
        secret = self._provider.secret()
        try:
            if self._opened is None:
                self._opened = self._open(secret)
            yield self._opened
        except (LibcloudError, BaseHTTPError, requests.RequestException, OSError, ValueError) as error:
            # Libraries can put what they sent into their messages.
            text = f"{type(error).__name__}: {error}".replace(secret or "\0", "…")[:MESSAGE_LENGTH]
            self._opened = None
            raise ProviderFailed(f"{self._provider.name} did not {what}: {text}") from None

    def _open(self, secret: str) -> NodeDriver:
        known = self._provider
        made: Any = get_driver(known.driver)
        if known.driver == "dummy":
            opened: NodeDriver = made(known.key)
        else:
            opened = made(known.key, secret, timeout=ANSWER_SECONDS, **known.arguments)
        return opened


def _listed(node: Node) -> Listed:
    return Listed(
        id=str(node.id),
        name=str(node.name),
        is_running=node.state not in (*_COMING, *_FAILED),
        has_failed=node.state in _FAILED,
        leaves=leaves_of(node.extra or {}),
    )


def leaves_of(extra: Mapping[str, Any]) -> datetime | None:
    """When a machine leaves, from its metadata or tags; None without a notice that can be read."""
    found = extra.get("metadata") or extra.get("tags") or {}
    if isinstance(found, Mapping) and isinstance(found.get("items"), list):
        # The metadata of GCE is a list.
        found = {each.get("key"): each.get("value") for each in found["items"]}
    text = found.get(NOTICE) if isinstance(found, Mapping) else None
    if not text:
        return None
    try:
        leaves = datetime.fromisoformat(str(text))
    except ValueError:
        logger.warning("%s is no moment: %.60s", NOTICE, text)
        return None
    return leaves if leaves.tzinfo is not None else leaves.replace(tzinfo=UTC)
