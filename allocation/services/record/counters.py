"""Event counters in the database, shared by all processes."""

from collections import Counter
from collections.abc import Mapping

from django.db.models import F

from allocation.models import EventCounter
from allocation.solver import Part, Plan

# Prefixes of counter names; the reason follows.
DROPPED, WITHHELD = "plans_dropped:", "answers_withheld:"
PAUSES_DROPPED = "pauses_dropped:"


def counter_add(name: str, count: int = 1) -> None:
    """Adds to a counter of /metrics. Names come from the code, never from input."""
    if count and not EventCounter.objects.filter(name=name).update(count=F("count") + count):
        EventCounter.objects.bulk_create([EventCounter(name=name)], ignore_conflicts=True)
        EventCounter.objects.filter(name=name).update(count=F("count") + count)


def plan_dropped(why: str) -> None:
    """Counts a plan that was discarded as a whole."""
    counter_add(DROPPED + why)


def dropped_pauses_count(plan: Plan) -> None:
    """Counts the pauses that the plan left out because they would not come to rest, by rule."""
    for rule, count in Counter(each.rule for each in plan.dropped).items():
        counter_add(PAUSES_DROPPED + rule, count)


def withheld_count(withheld: Mapping[Part, str]) -> None:
    """Counts the parts of a plan that were not written, by reason."""
    for why, count in Counter(withheld.values()).items():
        counter_add(WITHHELD + why, count)
