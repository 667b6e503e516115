"""Names of a booking's objects are bounded, safe and its own."""

import pytest

from agent.kubernetes.names import flavor_name
from tests.kubernetes.validation import problem_of
from wire.kubernetes_names import RANKS, bounded, gang_queue_name, queue_names, rank_name


def test_a_booking_has_the_number_that_people_know() -> None:
    assert queue_names("helix", "BK-12").local == "bk-12"
    assert queue_names("helix", "BK-12").queue == "helix.bk-12"
    assert queue_names("helix", "BK-12_3").queue == "helix.bk-12-3"
    assert flavor_name("helix.bk-12", "gpu01") == "helix.bk-12.gpu01"


@pytest.mark.parametrize("tenant", ["helix", "Helix", "he_lix", "a.b", "x" * 40, "-", "ä/../b"])
@pytest.mark.parametrize("booking", ["BK-1", "BK-1_2", "BK-" + "9" * 30, "x/../y", "", "BK-1-2"])
def test_whatever_comes_is_a_name_and_a_label(tenant: str, booking: str) -> None:
    found = queue_names(tenant, booking)
    node = "gpu-01.rack-7.example.org" * 3
    assert rank_name(found.queue, node).startswith(RANKS)
    assert gang_queue_name(found.queue).startswith(RANKS)
    of_nodes = (flavor_name(found.queue, node), rank_name(found.queue, node))
    for name in (found.local, found.queue, gang_queue_name(found.queue), *of_nodes):
        assert len(name) <= 63
        data = {"metadata": {"name": name, "labels": {"gpu-portal/booking": name}}}
        assert problem_of("ResourceFlavor", data) is None


def test_no_two_bookings_have_the_same_names() -> None:
    pairs = [
        *(("helix", "BK-1"), ("Helix", "BK-1"), ("he-lix", "BK-1"), ("he_lix", "BK-1"), ("he.lix", "BK-1")),
        *(("helix", "BK-11"), ("helix", "BK-1_1"), ("helix", "BK-1-1"), ("helix", "bk-1")),
        *(
            ("x" * 40, "BK-" + "1" * 18),
            ("x" * 40, "BK-" + "1" * 17 + "2"),
            ("x" * 39 + "y", "BK-" + "1" * 18),
        ),
    ]
    names = {queue_names(tenant, booking).queue for tenant, booking in pairs}
    assert len(names) == len({gang_queue_name(name) for name in names}) == len(pairs)
    long = "n" * 80
    assert bounded(long, "a") != bounded(long, "b")
