"""The table of what nodes have in their cache folders."""

from django.db import models
from django.db.models.functions import Cast, Length
from django.db.models.lookups import LessThanOrEqual

from allocation.models import Node

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
