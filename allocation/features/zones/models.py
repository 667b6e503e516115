"""The table of tiers whose work waits for energy."""

from django.db import models
from django.db.models import Q

from tenants.models import Tier

MOST_HOURS = 48


class TierEnergy(models.Model):
    """What work of a tier prefers, and how long it may wait for it. Without a row it waits for nothing."""

    class Prefers(models.TextChoices):
        PRICE = "price", "Cheap energy"
        CARBON = "carbon", "Clean energy"

    tier = models.OneToOneField(Tier, models.CASCADE, primary_key=True, related_name="+")
    prefers = models.CharField(max_length=6, choices=Prefers.choices)
    hours = models.PositiveSmallIntegerField(help_text="The most that it waits, from when it could have run.")

    class Meta:
        ordering = ["tier"]
        constraints = [
            models.CheckConstraint(condition=Q(prefers__in=["price", "carbon"]), name="tier_energy_is_one"),
            models.CheckConstraint(
                condition=Q(hours__gte=1, hours__lte=MOST_HOURS), name="tier_energy_waits_so_long"
            ),
        ]
