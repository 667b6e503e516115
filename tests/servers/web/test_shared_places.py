"""Costly requests of a person are counted over all web processes, and by each alone without Valkey."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from unittest import mock
from uuid import uuid4

import pytest

from devtools.launch.embedded import free_port
from portal.web.serving import gate as shared_places
from portal.web.serving.gate import MOST_EACH, Full, SharedPlaces

Made = Callable[[str], SharedPlaces]


@pytest.fixture
async def made() -> AsyncIterator[Made]:
    """Makes the places of a process, whose connections end with the test."""
    found: list[SharedPlaces] = []

    def make(url: str) -> SharedPlaces:
        found.append(SharedPlaces(url))
        return found[-1]

    yield make
    for each in found:
        await asyncio.gather(*each._leaving)
        if each._server is not None:
            await each._server.aclose()


async def test_a_person_has_the_places_of_one_in_two_processes(valkey_url: str, made: Made) -> None:
    first, second = made(valkey_url), made(valkey_url)
    async with AsyncExitStack() as held:
        for each in range(MOST_EACH):
            await held.enter_async_context((first, second)[each % 2].place("person 7"))
        for process in (first, second):
            with pytest.raises(Full) as refused:
                await held.enter_async_context(process.place("person 7"))
            assert (refused.value.reason, refused.value.retry_seconds) == ("yours", 1)
        # Another person has their own.
        await held.enter_async_context(second.place("person 8"))
    await asyncio.gather(*first._leaving, *second._leaving)
    async with AsyncExitStack() as held:
        for _ in range(MOST_EACH):
            await held.enter_async_context(second.place("person 7"))


async def test_a_place_of_a_killed_process_ends_by_itself(valkey_url: str, made: Made) -> None:
    killed = made(valkey_url)
    with mock.patch.object(shared_places, "PLACE_SECONDS", 1):
        for _ in range(MOST_EACH):
            assert await killed._take("costly:person 9", uuid4().hex)
    with pytest.raises(Full):
        await killed._take("costly:person 9", uuid4().hex)
    async with asyncio.timeout(5):
        while True:
            try:
                assert await killed._take("costly:person 9", uuid4().hex)
            except Full:
                await asyncio.sleep(0.1)
            else:
                return


async def test_without_valkey_nobody_is_refused_and_only_the_first_waits(made: Made) -> None:
    places = made(f"redis://127.0.0.1:{free_port()}/0")
    async with asyncio.timeout(1), AsyncExitStack() as held:
        for _ in range(3 * MOST_EACH):
            await held.enter_async_context(places.place("person 7"))
