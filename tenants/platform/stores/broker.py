"""The Celery transport of Redis: an acknowledgement always gives its place back, and a message that
can't be read is dropped.

Plain kombu counts a message as being worked on until Redis has noted its acknowledgement. If the
connection breaks at that moment, the error is logged and the message counts for good. A worker that
takes one message at a time then never asks for another one (docs/decisions/programs-and-load.md).
Celery ends its process at a message whose parts it can't read, and gets the same message again at its
next start; so such a message is found before Celery sees it.
"""

import base64
import json
import logging
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.redis import Channel, QoS, SentinelChannel, SentinelTransport, Transport

SCHEMES = ("redis", "rediss")
_UNREADABLE = (ValueError, TypeError, RecursionError)
logger = logging.getLogger(__name__)


def message_fault(message: object) -> str:
    """Returns the part of a message that can't be read; empty: it is as kombu and Celery write it."""
    if not isinstance(message, dict):
        return "message"
    properties = message.get("properties")
    if not isinstance(properties, dict) or not isinstance(properties.get("delivery_tag"), str):
        return "properties"
    info = properties.get("delivery_info")
    if not isinstance(info, dict) or not {"exchange", "routing_key"} <= info.keys():
        return "delivery_info"
    headers = message.get("headers") or {}
    if not isinstance(headers, dict):
        return "headers"
    if not isinstance(message.get("body") or "", str):
        return "body"
    return _task_fault(message, headers) if "task" in headers else ""


def _task_fault(message: Mapping[str, Any], headers: Mapping[str, Any]) -> str:
    """Returns the header of a task, or `body`, that can't be read; empty: all can."""
    wrong = (name for name, is_right in _HEADERS.items() if not is_right(headers.get(name)))
    found = next(wrong, "")
    return found or ("" if _has_arguments(message) else "body")


def _has_arguments(message: Mapping[str, Any]) -> bool:
    """Whether the body is JSON: positional and named arguments, and what follows."""
    try:
        args, kwargs, embed = json.loads(base64.b64decode(message.get("body") or ""))
    except (ValueError, TypeError, RecursionError):
        return False
    is_json = message.get("content-type") == "application/json"
    return is_json and isinstance(args, list) and isinstance(kwargs, dict) and isinstance(embed, dict | None)


def _is_time(value: object) -> bool:
    if not isinstance(value, str):
        return value is None
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _are_limits(value: object) -> bool:
    if not isinstance(value, list):
        return value is None
    return len(value) == 2 and all(isinstance(each, int | float | None) for each in value)


_HEADERS: dict[str, Callable[[object], bool]] = {
    "task": lambda value: isinstance(value, str),
    "id": lambda value: isinstance(value, str),
    "eta": _is_time,
    "expires": _is_time,
    "timelimit": _are_limits,
    "retries": lambda value: isinstance(value, int | None),
}


def _dropped(error: Exception) -> None:
    logger.error("A message of the broker was dropped, because it is no JSON: %s", str(error)[:200])


class CountedQoS(QoS):
    """The messages of a channel that are being worked on."""

    def ack(self, delivery_tag: str) -> None:
        """Acknowledges a message. One that Redis did not note is delivered again later."""
        try:
            super().ack(delivery_tag)
        finally:
            super(QoS, self).ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002 (kombu's)
        """Gives a message back, or drops it."""
        try:
            super().reject(delivery_tag, requeue)
        finally:
            super(QoS, self).ack(delivery_tag)

    def restore_by_tag(self, tag: str, client: Any = None, leftmost: bool = False) -> None:  # noqa: ANN401, FBT001, FBT002 (kombu's)
        """Puts a message that nobody acknowledged back into its queue. One that can't be read would be
        tried again by each worker, which ends by it."""
        try:
            super().restore_by_tag(tag, client, leftmost)
        except _UNREADABLE as error:
            _dropped(error)
            self._forget(tag)

    def _forget(self, tag: str) -> None:
        """Takes a message out of those that nobody acknowledged."""
        plain: Any = super()
        plain._remove_from_indices(tag).execute()


class CountedChannel(Channel):
    """A channel that counts so, and drops what is no JSON."""

    QoS = CountedQoS

    def _brpop_read(self, **options: Any) -> Any:  # noqa: ANN401 (kombu has no types)
        qos: Any = self.qos
        channel: Any = super()
        known = set(qos._delivered)
        try:
            return channel._brpop_read(**options)
        except _UNREADABLE as error:
            taken = set(qos._delivered) - known
            for tag in taken:
                # The worker ends by a message of a form that nobody foresaw, but only once.
                qos.reject(tag)
            if taken:
                raise
            _dropped(error)
            return True

    def _restore(self, message: Any, leftmost: bool = False) -> None:  # noqa: ANN401, FBT001, FBT002 (kombu's)
        """Puts back a message that this worker took. It may have been overwritten since."""
        channel: Any = super()
        try:
            channel._restore(message, leftmost)
        except _UNREADABLE as error:
            _dropped(error)
            qos: Any = self.qos
            qos._forget(message.delivery_tag)


class CountedTransport(Transport):
    """A transport with such channels, which delivers no message that Celery can't read."""

    Channel = CountedChannel

    def _deliver(self, message: Any, queue: str | None) -> None:  # noqa: ANN401 (of any form)
        if fault := message_fault(message):
            logger.error("A message of the queue %s was dropped, because of its %s.", queue, fault)
            return
        super()._deliver(message, queue)


class CountedSentinelChannel(CountedChannel, SentinelChannel):
    """A channel that counts so, to the primary that Sentinels name."""


class CountedSentinelTransport(CountedTransport, SentinelTransport):
    """A transport with such channels."""

    Channel = CountedSentinelChannel


def broker_transport_register() -> None:
    """Makes Celery use these transports for the addresses of Redis and of Sentinels."""
    TRANSPORT_ALIASES.update(dict.fromkeys(SCHEMES, f"{__name__}:{CountedTransport.__name__}"))
    TRANSPORT_ALIASES["sentinel"] = f"{__name__}:{CountedSentinelTransport.__name__}"


def asked_at(channel: Any) -> float:  # noqa: ANN401 (kombu has no types)
    """When the channel last asked Redis for a message, by the clock that never jumps."""
    at: float | None = getattr(channel, "_brpop_sent_at", None)
    return -math.inf if at is None else at
