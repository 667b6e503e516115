"""Routes of paths are kept for all ids alike, and are those that Django finds."""

from uuid import UUID, uuid4

import pytest
from django.urls import Resolver404, get_resolver

from portal.web.serving.costly import _kept_route, route_of_path
from tests.web.crawl import filled, routes

NAMES = ("bk_{}", "sr_{}", "ar_{}", "{}", "00000000-0000-0000-0000-{:.12}", "x-{}")


@pytest.mark.turn
def test_every_route_is_that_of_django_with_its_own_id() -> None:
    found = 0
    for route in routes():
        for form in NAMES:
            for one in (uuid4().hex, str(uuid4()), str(UUID(int=0)), UUID(int=7).hex, "9" * 32):
                path = filled(route, {}, form.format(one))
                try:
                    right = get_resolver().resolve(path)
                except Resolver404:
                    with pytest.raises(Resolver404):
                        route_of_path(path)
                    continue
                kept = route_of_path(path)
                assert (kept.func, kept.kwargs) == (right.func, right.kwargs), path
                assert (kept.route, kept.url_name) == (right.route, right.url_name), path
                assert kept.namespaces == right.namespaces == []
                found += 1
    assert found > 100


def test_the_route_of_an_object_that_was_looked_at_is_kept_like_that_of_none() -> None:
    """The time of an answer would tell which ids were used before."""
    _kept_route.cache_clear()
    first, never = (f"/api/v1/bookings/bk_{UUID(int=each).hex}" for each in (0xA7 << 90, 0xB9 << 90))
    route_of_path(first)
    before = _kept_route.cache_info()
    assert route_of_path(never).kwargs != route_of_path(first).kwargs
    after = _kept_route.cache_info()
    assert (after.hits - before.hits, after.misses - before.misses) == (2, 0)
