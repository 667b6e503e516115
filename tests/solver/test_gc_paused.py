"""A cycle makes no circles of references, so nobody searches for them while it runs."""

import gc
from collections.abc import Callable, Iterator

import pytest

from allocation.solver import Snapshot, encode, solve
from allocation.solver.gc_paused import undisturbed
from tests.solver.builders import POLICY, a_request, a_snapshot, gpus, whole
from tests.solver.pausing import a_claim, a_site, running


@pytest.fixture(autouse=True)
def searching() -> Iterator[None]:
    """The search is on before and after."""
    assert gc.isenabled()
    yield
    gc.unfreeze()
    gc.enable()


def test_the_search_is_off_inside_and_on_again_afterwards() -> None:
    with undisturbed():
        assert not gc.isenabled()
        with undisturbed():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_on_again_after_a_snapshot_that_can_not_be_decided() -> None:
    twice = a_snapshot(a_request("a"), a_request("a"), fleet=gpus(1))
    with pytest.raises(ValueError, match="there twice"):
        solve(twice, POLICY)
    assert gc.isenabled()


def test_who_had_it_off_finds_it_off() -> None:
    gc.disable()
    with undisturbed():
        pass
    assert not gc.isenabled()


def crowded() -> Snapshot:
    """Some start, some wait, somebody is refused."""
    wishes = (a_request(f"b{n}", submitted=n, hours=9) for n in range(6))
    return a_snapshot(*wishes, a_request("never", tenant="nobody", fixed=True), fleet=gpus(2))


def with_pauses() -> Snapshot:
    held = (*running("one", whole("n1-0")), *running("two", whole("n1-1")))
    return a_site(a_claim(count=2), held=held, fleet=gpus(2))


@pytest.mark.parametrize("site", [crowded, with_pauses])
def test_a_cycle_leaves_nothing_that_only_a_search_would_find(
    site: Callable[[], Snapshot],
) -> None:
    snapshot = site()
    encode(solve(snapshot, POLICY))  # what is made once
    gc.freeze()  # what is there already is not looked at
    gc.disable()
    plan = solve(snapshot, POLICY)
    assert plan.waits or plan.pauses
    assert gc.collect() == 0
