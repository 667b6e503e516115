"""How often something happened, added up where every process sees it."""

from collections import Counter
from collections.abc import Mapping

from django.db.models import F

from allocation.models import EventCounter
from allocation.solver import Part

# Before why it was, in the names of tallies.
DROPPED, WITHHELD = "plans_dropped:", "answers_withheld:"


def counter_add(name: str, count: int = 1) -> None:
    """Adds to what /metrics tells; names are ours, never what somebody sent."""
    if count and not EventCounter.objects.filter(name=name).update(count=F("count") + count):
        EventCounter.objects.bulk_create([EventCounter(name=name)], ignore_conflicts=True)
        EventCounter.objects.filter(name=name).update(count=F("count") + count)


def plan_dropped(why: str) -> None:
    """Counts a plan of which nothing was written."""
    counter_add(DROPPED + why)


def withheld_count(withheld: Mapping[Part, str]) -> None:
    """Counts what of a plan was not written, by why."""
    for why, count in Counter(withheld.values()).items():
        counter_add(WITHHELD + why, count)
