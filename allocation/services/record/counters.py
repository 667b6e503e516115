"""Event counters in the database, shared by all processes."""

from collections import Counter
from collections.abc import Mapping

from django.db import connection

from solver import Part, Plan

# Prefixes of counter names; the reason follows.
DROPPED, WITHHELD = "plans_dropped:", "answers_withheld:"
PAUSES_DROPPED = "pauses_dropped:"
SHARDS = "shards:"


_ADD = """
INSERT INTO allocation_eventcounter AS counter (name, count)
SELECT name, added FROM unnest(%s::text[], %s::bigint[]) AS more (name, added) ORDER BY name
ON CONFLICT (name) DO UPDATE SET count = counter.count + excluded.count
"""


def counter_add(name: str, count: int = 1) -> None:
    """Adds to a counter of /metrics. Names come from the code, never from input."""
    counters_add({name: count})


def counters_add(counts: Mapping[str, int]) -> None:
    """Adds to several counters in one statement."""
    added = {name: count for name, count in counts.items() if count}
    if added:
        with connection.cursor() as cursor:
            cursor.execute(_ADD, [list(added), list(added.values())])


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
