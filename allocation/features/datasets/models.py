"""Tables of what nodes have in their cache folders, and of what they fetched for bookings."""

from django.db import models
from django.db.models.functions import Cast, Length
from django.db.models.lookups import LessThanOrEqual

from allocation.models import Booking, Node
from tenants.models import Tenant

MOST_CHARACTERS = 24_000
"""Of one node's listing as text: more than `wire.DATA_SETS_MAX` data sets need."""


class NodeCache(models.Model):
    """The data sets of a node's cache folder, as its newest message with some said."""

    node = models.OneToOneField(Node, models.CASCADE, primary_key=True, related_name="+")
    sets = models.JSONField(
        help_text="By name: the size in MiB and the Unix seconds of the last use, or null."
    )
    said_at = models.DateTimeField(help_text="When the node said so.")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=LessThanOrEqual(Length(Cast("sets", models.TextField())), MOST_CHARACTERS),
                name="node_cache_bounded",
            ),
        ]


class Staging(models.Model):
    """What nodes fetch, or have fetched, for the newest start of a booking."""

    booking = models.OneToOneField(
        Booking, models.PROTECT, primary_key=True, db_constraint=False, related_name="staging"
    )
    tenant = models.ForeignKey(Tenant, models.PROTECT)
    nodes = models.JSONField(
        help_text="By name of the node: `data`, `began_at` (Unix s), `seconds` (null: not yet), `error`."
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "booking"], name="staging_in_tenant")]
