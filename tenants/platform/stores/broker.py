"""The Celery transport of Redis: an acknowledgement always gives its place back, and a message that
can't be read is dropped.

Plain kombu counts a message as being worked on until Redis has noted its acknowledgement. If the
connection breaks at that moment, the error is logged and the message counts for good. A worker that
takes one message at a time then never asks for another one (docs/decisions/programs-and-load.md).
"""

import logging
import math
from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.redis import Channel, QoS, SentinelChannel, SentinelTransport, Transport

from tenants.platform.stores.messages import message_fault

SCHEMES = ("redis", "rediss")
_UNREADABLE = (ValueError, TypeError, RecursionError)
logger = logging.getLogger(__name__)


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


class _Reading:
    """A channel that drops what is no JSON."""

    def _brpop_read(self, **options: Any) -> Any:  # noqa: ANN401 (kombu has no types)
        known = set(self.qos._delivered)  # type: ignore[attr-defined]  # of a channel
        try:
            return super()._brpop_read(**options)  # type: ignore[misc]  # of a channel
        except _UNREADABLE as error:
            taken = set(self.qos._delivered) - known  # type: ignore[attr-defined]  # as above
            for tag in taken:
                # The worker ends by a message of a form that nobody foresaw, but only once.
                self.qos.reject(tag)  # type: ignore[attr-defined]  # as above
            if taken:
                raise
            logger.error("A message of the broker was dropped, because it is no JSON: %s", error)  # noqa: TRY400 (of the sender)
            return True


class _Delivering:
    """A transport that delivers no message that Celery can't read."""

    def _deliver(self, message: Any, queue: str) -> None:  # noqa: ANN401 (of any form)
        if fault := message_fault(message):
            logger.error("A message of the queue %s was dropped, because of its %s.", queue, fault)
            return
        super()._deliver(message, queue)  # type: ignore[misc]  # of a transport


class CountedChannel(_Reading, Channel):
    """A channel that counts so."""

    QoS = CountedQoS


class CountedTransport(_Delivering, Transport):  # type: ignore[misc]  # kombu's stubs are looser
    """A transport with such channels."""

    Channel = CountedChannel


class CountedSentinelChannel(_Reading, SentinelChannel):
    """A channel that counts so, to the primary that Sentinels name."""

    QoS = CountedQoS


class CountedSentinelTransport(_Delivering, SentinelTransport):  # type: ignore[misc]  # as above
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
