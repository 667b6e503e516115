"""Tokens that enrol agents."""

from django.db import models
from django.db.models import Q

from allocation.models.fleet.engines import EngineAgent
from tenants.models import ApiToken


class EnrolmentToken(models.Model):
    """A token that enrols the agent of a node, or an engine, once, within 15 minutes. Only its SHA-256
    is stored."""

    digest = models.BinaryField(primary_key=True, max_length=32)
    node = models.ForeignKey("allocation.Node", on_delete=models.CASCADE, null=True, blank=True)
    engine_agent = models.ForeignKey(
        EngineAgent,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text="What it enrols in place of a node.",
    )
    made_with = models.ForeignKey(
        ApiToken,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="The operator's token that made it, with which it ends; null: a browser.",
    )
    expires = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(node__isnull=False, engine_agent__isnull=True)
                | Q(node__isnull=True, engine_agent__isnull=False),
                name="token_enrols_one",
            )
        ]
