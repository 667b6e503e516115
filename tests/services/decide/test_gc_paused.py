"""The solver makes no reference cycles, so the garbage collector is paused while it runs."""

import ast
import gc
import re
from collections.abc import Callable, Iterator

import pytest

from allocation.services.gc_paused import gc_paused
from solver import Snapshot, encode, solve
from tests.servers.servers import ROOT
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
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_on_again_after_a_snapshot_that_can_not_be_decided() -> None:
    twice = a_snapshot(a_request("a"), a_request("a"), fleet=gpus(1))
    with pytest.raises(ValueError, match="occurs twice"), gc_paused():
        solve(twice, POLICY)
    assert gc.isenabled()


def test_who_had_it_off_finds_it_off() -> None:
    gc.disable()
    with gc_paused():
        pass
    assert not gc.isenabled()


def crowded() -> Snapshot:
    """Some start, some wait, somebody is refused."""
    demands = (a_request(f"b{n}", submitted=n, hours=9) for n in range(6))
    return a_snapshot(*demands, a_request("never", tenant="nobody", fixed=True), fleet=gpus(2))


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


def _unpaused(tree: ast.AST) -> Iterator[int]:
    """Lines of calls of the solver outside `with gc_paused()`."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.With) and any(
            isinstance(item.context_expr, ast.Call) and _name(item.context_expr) == "gc_paused"
            for item in child.items
        ):
            continue
        if isinstance(child, ast.Call) and _name(child) in {"solve", "simulate"}:
            yield child.lineno
        yield from _unpaused(child)


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def test_every_caller_of_the_solver_pauses_the_collector() -> None:
    folders = (ROOT / "allocation" / "services", ROOT / "devtools" / "simulation")
    callers = {
        path: path.read_text(encoding="utf-8")
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        if re.search(r"\b(solve|simulate)\(", path.read_text(encoding="utf-8")) and path.name != "simulate.py"
    }
    assert len(callers) >= 6
    found = [f"{path}:{line}" for path in callers for line in _unpaused(ast.parse(callers[path]))]
    assert found == []
