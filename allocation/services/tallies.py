"""How often something happened, added up where every process sees it."""

from django.db.models import F

from allocation.models import Tally


def tally(name: str, count: int = 1) -> None:
    """Adds to what /metrics tells; names are ours, never what somebody sent."""
    if count and not Tally.objects.filter(name=name).update(count=F("count") + count):
        Tally.objects.bulk_create([Tally(name=name)], ignore_conflicts=True)
        Tally.objects.filter(name=name).update(count=F("count") + count)
