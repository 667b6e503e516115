"""What data sets add to the core: what nodes say of them, what starts fetch, and cards."""

from datetime import datetime
from typing import Any
from uuid import UUID

from rest_framework import serializers

from allocation.features.datasets.models import Staging
from allocation.features.datasets.services import caches_keep, data_of_node, nodes_with
from allocation.features.datasets.staging import nodes_listing, staged_of, staging_keep
from allocation.models import Booking
from allocation.points import (
    BOOKING_PARTS,
    NODE_CARDS,
    NODE_DATA,
    NODE_TELEMETRY,
    NODES_WITH_DATA,
    START_REPORTS,
    BookingCard,
    BookingPart,
)
from tenants.platform.rest.body import Shape


def data_card(node: UUID, now: datetime) -> BookingCard | None:
    """Returns the card of a node that has data sets."""
    rows = data_of_node(node, now)
    return BookingCard("datasets/card.html", {"rows": rows}) if rows else None


class StagedOnOut(serializers.Serializer[Any]):
    """The data of a booking on one of its nodes."""

    node = serializers.CharField()
    data: Any = serializers.ListField(child=serializers.CharField(), help_text="What was missing there.")
    began_at = serializers.DateTimeField()
    seconds = serializers.FloatField(allow_null=True, help_text="Null: it is being fetched, or was not.")
    error = serializers.CharField(help_text="Why it was not fetched. The start has failed then.")


class StagingOut(Shape):
    """The step of a start in which nodes fetch data that the booking names."""

    nodes = StagedOnOut(many=True)


def staging_shown(booking: Booking, row: Staging) -> dict[str, Any]:
    """The step as `StagingOut` takes it."""
    return {"nodes": staged_of(row)}


BOOKING_PARTS.append(BookingPart("staging", Staging, StagingOut, staging_shown))
NODES_WITH_DATA.append(nodes_listing)
START_REPORTS.append(staging_keep)
NODE_DATA.append(nodes_with)
NODE_TELEMETRY.append(caches_keep)
NODE_CARDS.append(data_card)
