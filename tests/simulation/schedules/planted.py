"""Faults to be planted in the product, one at a time: the schedules have to find each.

`python -m tests.simulation --planted NAME` runs schedules with one of them.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from agent.act.leases import Leases
from agent.act.suspensions import Suspensions
from agent.state import store
from allocation.rules.nodes.leases import TTL_SECONDS, LongLeases
from solver.cycle import relocation_orders
from solver.model import demand
from solver.state import held_space
from tests.simulation.model import inbox
from tests.simulation.model.portal import ModelPortal


def _unsynced(path: Path, raw: bytes) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_bytes(raw)
    fresh.replace(path)


def _at_once(really: Callable[..., Any]) -> Callable[..., Any]:
    def done(working: Any, order: Any, found: Any, moving: Any) -> Any:  # noqa: ANN401
        carriage = really(working, order, found, moving)
        pauses = tuple(dataclasses.replace(each, at=working.now + 1) for each in carriage.pauses)
        return dataclasses.replace(carriage, pauses=pauses)

    return done


def _anywhere(really: Callable[..., Any]) -> Callable[..., Any]:
    def demand_of(*requested: Any, **named: Any) -> Any:  # noqa: ANN401
        found = really(*requested, **named)
        return dataclasses.replace(found, level="rack") if found.level == "node" else found

    return demand_of


def _mixed(really: Callable[..., Any]) -> Callable[..., Any]:
    def pools_of(gpus: Any, *rest: Any) -> Any:  # noqa: ANN401
        every = tuple(gpus)
        return {
            name: really([dataclasses.replace(gpu, gpu_class=name) for gpu in every], *rest)[name]
            for name in sorted({gpu.gpu_class for gpu in every})
        }

    return pools_of


def _unless_it_slept(really: Callable[..., Any]) -> Callable[..., Any]:
    """An agent that was stopped takes the gap for a jump of its clock, and fences nothing."""
    looks: dict[int, float] = {}
    slept: set[int] = set()

    def fence(leases: Leases, held: Any, steady_now: float) -> Any:  # noqa: ANN401
        if steady_now - looks.get(id(leases), steady_now) > TTL_SECONDS:
            slept.add(id(leases))
        looks[id(leases)] = steady_now
        return dict(held) if id(leases) in slept else really(leases, held, steady_now)

    return fence


# Where, and what takes its place, given what is there.
Fault = tuple[object, str, Callable[[Any], object]]
FAULTS: dict[str, Fault] = {
    "a move begins without its notice": (relocation_orders, "_done", _at_once),
    "the agent does not sync what it must not forget": (store, "write_synced", lambda _: _unsynced),
    "a word that was overtaken is proof": (inbox, "is_proof", lambda _: lambda *_: True),
    "what died while it was suspended resumes": (Suspensions, "_alive", lambda _: lambda *_: True),
    "a class has the GPUs of every class": (held_space, "pools_of", _mixed),
    "a gang of one node is spread": (demand, "demand_of", _anywhere),
    "an agent that was stopped keeps its lease": (Leases, "fence", _unless_it_slept),
    "a long lease is over with the portal's outage": (
        LongLeases,
        "over",
        lambda _: lambda _, leases, __: {n: s for n, (s, _) in leases.items()},
    ),
    "work begins while decisions are frozen": (ModelPortal, "_is_frozen", lambda _: lambda *_: False),
}


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """While this lasts, the product has one of the faults."""
    target, attribute, fault = FAULTS[name]
    with mock.patch.object(target, attribute, fault(getattr(target, attribute))):
        yield
