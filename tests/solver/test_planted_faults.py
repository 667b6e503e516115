"""Faults planted in the solver, one at a time: each is found within the draws of an ordinary run.

The draws are the same in every run of this file, so that it is no matter of luck; the properties
themselves draw anew each time.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from solver.cycle import planned_starts
from solver.cycle.extending import extensions
from solver.fleet import mig_geometry
from solver.fleet import pool as topology
from solver.fleet.mig_geometry import Geometry
from solver.fleet.pool import Bools, Pool
from solver.model import codec
from solver.model.inputs import Model
from solver.preemption import victims
from solver.preemption.leaving import Departures
from solver.preemption.victims import VictimSearch
from solver.quota.quota import Quota
from solver.state.running import RunningBooking
from solver.timeline.gpu_calendar import GpuCalendar
from solver.timeline.host_calendar import HostCalendar
from solver.timeline.share_calendar import ShareCalendar
from tests.solver.builders import POLICY
from tests.solver.cycle.test_properties import DENSE, DRAWS, two_cycles
from tests.solver.preemption.test_preemption_properties import WORLDS, lived

FOUND = (AssertionError, ValueError, KeyError, IndexError)


def found(holds: Callable[..., None], *drawn: st.SearchStrategy[Any], draws: int) -> None:
    """Raises what the property says of the first bad draw; nothing when all are good."""
    settings(
        max_examples=draws,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )(given(*drawn)(holds))()


def _short(really: Callable[..., None]) -> Callable[..., None]:
    def add(self: GpuCalendar, places: object, starts: int, ends: int) -> None:
        really(self, places, starts, max(starts + 1, ends - POLICY.grid))

    return add


def _without_memory(really: Callable[..., None]) -> Callable[..., None]:
    def take(self: HostCalendar, node: str, what: tuple[int, int], window: object, sign: int = 1) -> None:
        really(self, node, (what[0], 0), window, sign)

    return take


def _without_cores(really: Callable[..., None]) -> Callable[..., None]:
    def take(self: HostCalendar, node: str, what: tuple[int, int], window: object, sign: int = 1) -> None:
        really(self, node, (0, what[1]), window, sign)

    return take


def _half(really: Callable[..., None]) -> Callable[..., None]:
    def add(self: Quota, use: Any, window: object, sign: int = 1) -> None:  # noqa: ANN401
        really(self, use._replace(units=use.units // 2), window, sign)

    return add


def _without_tokens(_: object) -> Callable[[Model], Geometry]:
    def geometry_of(model: Model) -> Geometry:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mig_geometry, "_tokens", lambda *_: {})
            return Geometry(model)

    return geometry_of


def _everything(
    self: Departures, gpu_class: str, tenant: str, starts: int, *, planned: bool
) -> list[RunningBooking]:
    del planned
    return list(self.able(gpu_class, tenant, starts))


def _one_too_many(search: VictimSearch, gone: Bools, enough: Callable[[Bools], bool]) -> Bools:
    more: Bools = np.ones_like(gone)
    return more


# What is broken: where, and what takes its place, given what is there.
Fault = tuple[object, str, Callable[[Any], object]]
IN_PLANS: dict[str, Fault] = {
    "the last minutes of a booking are free": (GpuCalendar, "add", _short),
    "nothing takes its slots": (GpuCalendar, "add", lambda _: lambda *_: None),
    "the memory of a node is not counted": (HostCalendar, "take", _without_memory),
    "two owners share a GPU": (ShareCalendar, "add", lambda _: lambda *_: None),
    "half of the units count": (Quota, "add", _half),
    "the cores of a node are not counted": (HostCalendar, "take", _without_cores),
    "limits are not looked at": (Quota, "_route", lambda _: lambda *_: None),
    "a fixed mode is not looked at": (Pool, "suits", lambda _: lambda pool, _: pool.usable),
    "media engines are not counted": (topology, "geometry_of", _without_tokens),
    "planned starts are forgotten": (planned_starts, "_matches", lambda _: lambda *_: False),
    "an extension takes the next one's place": (extensions, "_room_blocks", lambda _: lambda *_: None),
    "an extension goes beyond a limit": (extensions, "quota_blocks", lambda _: lambda *_: None),
    "rows decide by their order": (codec, "in_order", lambda _: lambda snapshot: snapshot),
}
IN_PAUSES: dict[str, Fault] = {
    "work inside its guarantee is paused": (Departures, "borrowers", lambda _: _everything),
    "one more than needed must leave": (victims, "_filled_back", lambda _: _one_too_many),
}


# Each takes as long as the property that it tests, so the others are for each night.
EACH_TIME = 4


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if number >= EACH_TIME else [])
        for number, name in enumerate(IN_PLANS)
    ],
)
def test_a_fault_in_plans_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, attribute, fault = IN_PLANS[name]
    monkeypatch.setattr(target, attribute, fault(getattr(target, attribute)))
    with pytest.raises(FOUND):
        found(two_cycles, *DENSE, draws=DRAWS)


def test_without_a_fault_nothing_is_found() -> None:
    found(two_cycles, *DENSE, draws=20)


def lives(seed: int) -> None:
    """A world until nothing happens in it any more, each plan checked."""
    lived(seed, 8)


@pytest.mark.parametrize("name", IN_PAUSES)
def test_a_fault_in_pauses_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, attribute, fault = IN_PAUSES[name]
    monkeypatch.setattr(target, attribute, fault(getattr(target, attribute)))
    with pytest.raises(FOUND):
        found(lives, st.integers(0, 10**9), draws=WORLDS)
