"""Programs leave a mark when they worked last, and not more often than anybody looks."""

from datetime import UTC, datetime, timedelta

import pytest
from django.core.cache import cache

from allocation.services.record.liveness import SEEN_EVERY_SECONDS, SeenNow, programs_read

NOW = datetime(2026, 11, 16, 8, tzinfo=UTC)


@pytest.mark.usefixtures("valkey_url")
def test_a_program_that_works_each_second_is_marked_every_few_seconds() -> None:
    cache.clear()
    at = 7.0
    seen = SeenNow("reader", lambda: at)
    marked = []
    for second in range(int(2 * SEEN_EVERY_SECONDS)):
        at = 7.0 + second
        marked.append(seen(NOW + timedelta(seconds=second)))
    assert marked.count(True) == 2
    assert marked[0]
    age = dict(programs_read(NOW + timedelta(seconds=9)))
    assert age == {"reader": 9 - SEEN_EVERY_SECONDS}
