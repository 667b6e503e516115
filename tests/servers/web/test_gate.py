"""The gate of costly work: a few at once, fairly by person, and the rest refused at once."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from portal.web.serving.gate import MOST_EACH, MOST_FOR_A_SLOT, Full, Gate


class Crowd:
    """Requests at a gate: each holds its place until it is ended."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.served: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *names: str) -> None:
        """Requests such as `ann 1`, in this order."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._hold(name))
            await settled()

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
            await self._tasks[name]
            await settled()

    async def leave(self, name: str) -> None:
        self._tasks[name].cancel()
        with pytest.raises(asyncio.CancelledError):
            await self._tasks[name]
        await settled()

    async def refusal(self, name: str) -> str:
        with pytest.raises(Full) as refused:
            await self._tasks[name]
        return refused.value.reason

    async def _hold(self, name: str) -> None:
        async with self.gate.place(name.split(maxsplit=1)[0]):
            self.served.append(name)
            await self._ends[name].wait()


async def settled() -> None:
    """Lets every task run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_person_never_takes_all_slots_and_others_come_next() -> None:
    crowd = Crowd(Gate(slots=2))
    await crowd.come("ann 1", "ann 2", "ann 3")
    assert crowd.served == ["ann 1"]
    await crowd.come("bob 1", "cid 1", "bob 2")
    assert crowd.served == ["ann 1", "bob 1"]
    # By turns, whoever came first: Cid has had none.
    await crowd.end("ann 1")
    assert crowd.served[2:] == ["cid 1"]
    await crowd.end("cid 1")
    assert crowd.served[3:] == ["ann 2"]
    await crowd.end("bob 1", "ann 2", "bob 2", "ann 3")
    assert crowd.gate.under_way == 0


async def test_what_is_too_much_of_one_person_is_refused_at_once() -> None:
    crowd = Crowd(Gate(slots=2))
    names = [f"ann {number}" for number in range(MOST_EACH + 1)]
    await crowd.come(*names, "bob 1")
    assert await crowd.refusal(names[-1]) == "yours"
    assert crowd.served == [names[0], "bob 1"]
    # A place is free again when one is answered.
    await crowd.end(names[0])
    await crowd.come("ann later")
    await crowd.end(*names[1:-1], "ann later", "bob 1")
    assert crowd.served[-1] == "ann later"


async def test_what_is_too_much_of_everybody_is_refused_at_once() -> None:
    crowd = Crowd(Gate(slots=1))
    names = [f"person{number} 1" for number in range(MOST_FOR_A_SLOT)]
    await crowd.come(*names, "late 1")
    assert await crowd.refusal("late 1") == "everybody"
    await crowd.end(*names)
    assert crowd.served == names


async def test_who_waits_too_long_is_refused_and_leaves_no_trace() -> None:
    crowd = Crowd(Gate(slots=1, patience=0.01))
    await crowd.come("ann 1", "bob 1")
    assert await crowd.refusal("bob 1") == "waited"
    await crowd.end("ann 1")
    assert crowd.served == ["ann 1"]
    assert crowd.gate.under_way == 0


async def test_who_goes_away_is_not_served_and_leaves_the_place_to_others() -> None:
    crowd = Crowd(Gate(slots=1))
    await crowd.come("ann 1", "bob 1", "cid 1")
    await crowd.leave("bob 1")
    await crowd.leave("ann 1")
    assert crowd.served == ["ann 1", "cid 1"]
    await crowd.end("cid 1")
    assert crowd.gate.under_way == 0


async def test_a_turn_that_meets_a_cancellation_is_given_to_the_next() -> None:
    gate = Gate(slots=1)
    async with AsyncExitStack() as first:
        await first.enter_async_context(gate.place("ann"))
        waits = asyncio.create_task(gate.place("bob").__aenter__())
        await settled()
        await first.aclose()
        # Bob has his turn and does not know it yet.
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
    async with gate.place("cid"):
        assert gate.under_way == 1
