"""The template tag of a tier's hint about the planning horizon."""

from django import template

from allocation.queries.decisions.horizon import horizon_hint
from tenants.models import Tier

register = template.Library()


@register.simple_tag
def tier_hint(slug: str) -> str:
    """What the planning horizon takes from a tier; empty if nothing."""
    ahead = Tier.objects.filter(slug=slug).values_list("advance_seconds", flat=True).first()
    return horizon_hint(ahead)
