"""The Celery transport of Redis, with an acknowledgement that always gives its place back.

Plain kombu counts a message as being worked on until Redis has noted its acknowledgement. If the
connection breaks at that moment, the error is logged and the message counts for good. A worker that
takes one message at a time then never asks for another one (docs/decisions/programs-and-load.md).
"""

import math
from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.redis import Channel, QoS, SentinelChannel, SentinelTransport, Transport

SCHEMES = ("redis", "rediss")


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


class CountedChannel(Channel):
    """A channel that counts so."""

    QoS = CountedQoS


class CountedTransport(Transport):
    """A transport with such channels."""

    Channel = CountedChannel


class CountedSentinelChannel(SentinelChannel):
    """A channel that counts so, to the primary that Sentinels name."""

    QoS = CountedQoS


class CountedSentinelTransport(SentinelTransport):
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
