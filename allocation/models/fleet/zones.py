"""Zones: the level above the rack, with what energy costs and emits there."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import TypeVar
from uuid import uuid4
from zoneinfo import ZoneInfo

from django.contrib.postgres.fields import ArrayField
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q

Amount = TypeVar("Amount", Decimal, int)

HOURS = 24
SLUG = r"^[a-z][a-z0-9-]*$"


class Zone(models.Model):
    """A site with its own power: a room, a building or a provider's region.

    Prices and grams are those of the 24 hours of a day in its time zone; empty: not known.
    """

    slug = models.CharField(primary_key=True, max_length=40, validators=[RegexValidator(SLUG)])
    name = models.CharField(max_length=60)
    time_zone = models.CharField(max_length=50)
    price = ArrayField(
        models.DecimalField(max_digits=8, decimal_places=4),
        default=list,
        help_text="Money per kWh by hour, in the site's currency.",
    )
    grams = ArrayField(models.PositiveIntegerField(), default=list, help_text="CO2 per kWh by hour.")
    created = models.DateTimeField()
    ended = models.DateTimeField(null=True, blank=True, help_text="When it was given up.")

    class Meta:
        ordering = ["slug"]
        constraints = [
            models.CheckConstraint(condition=Q(slug__regex=SLUG), name="zone_slug_sane"),
            models.CheckConstraint(condition=~Q(name=""), name="zone_named"),
            models.CheckConstraint(
                condition=Q(price__len=0) | Q(price__len=HOURS), name="zone_price_of_every_hour"
            ),
            models.CheckConstraint(
                condition=Q(grams__len=0) | Q(grams__len=HOURS), name="zone_grams_of_every_hour"
            ),
        ]

    def __str__(self) -> str:
        return self.slug

    @property
    def rack_names(self) -> list[str]:
        """The names of the racks that stand in it."""
        return sorted(rack.name for rack in self.racks.all())

    def price_at(self, moment: datetime) -> Decimal | None:
        """The price of a kWh at an instant; None: not known."""
        return _at(self.price, moment, self.time_zone)

    def grams_at(self, moment: datetime) -> int | None:
        """CO2 of a kWh at an instant in grams; None: not known."""
        return _at(self.grams, moment, self.time_zone)


def _at(hours: Sequence[Amount], moment: datetime, zone: str) -> Amount | None:
    return hours[moment.astimezone(ZoneInfo(zone)).hour] if hours else None


class Rack(models.Model):
    """A rack of nodes."""

    id = models.UUIDField(primary_key=True, default=uuid4, editable=False)
    name = models.SlugField(max_length=40, unique=True)
    zone = models.ForeignKey(
        Zone,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="racks",
        help_text="Where it stands, with all of its nodes; null: in no zone.",
    )

    def __str__(self) -> str:
        return self.name
