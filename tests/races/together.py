"""Threads let loose together, each with a database connection of its own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from django.db import connection

from tests.roles import as_system

Answer = TypeVar("Answer")


def at_once(act: Callable[[int], Answer], writers: int) -> list[Answer]:
    """What each of them answered, as the system's role; an error of one is raised."""
    barrier = Barrier(writers)

    def one(number: int) -> Answer:
        try:
            connection.ensure_connection()
            barrier.wait(timeout=30)
            return apart(lambda: act(number))
        finally:
            connection.close()

    with ThreadPoolExecutor(writers) as pool:
        return list(pool.map(one, range(writers)))


def apart(act: Callable[[], Answer]) -> Answer:
    """`act` as the system, on this thread's connection, which is closed afterwards."""
    try:
        with as_system():
            return act()
    finally:
        connection.close()
