"""What arrives while work runs is done together after it."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

import pytest

from tenants.api import gathered
from tenants.api.gathered import Gathering
from tests.servers.waiting import wait_until


class Work:
    """Doubles numbers. The first of a key waits for `go`."""

    def __init__(self, together: Callable[[Sequence[int]], Sequence[int | None]]) -> None:
        self.gathering = Gathering[int, int](self._together)
        self._doubled = together
        self.batches: list[list[int]] = []
        self.alone: list[int] = []
        self.go, self.began = Event(), Event()

    def _together(self, members: Sequence[int]) -> Sequence[int | None]:
        self.batches.append(list(members))
        return self._doubled(members)

    def _first(self) -> int:
        self.began.set()
        assert self.go.wait(10)
        return 0

    def run(self, numbers: Sequence[int]) -> list[int]:
        """The answers of all, which arrive while the first works."""
        with ThreadPoolExecutor(len(numbers) + 1) as threads:
            first = threads.submit(self.gathering.answer, "key", 0, self._first)
            assert self.began.wait(10)
            others: list[Future[int]] = []
            for number in numbers:
                others.append(
                    threads.submit(self.gathering.answer, "key", number, self._one(number))
                )
                self._await(len(others))
            self.go.set()
            assert first.result(10) == 0
            return [each.result(10) for each in others]

    def _one(self, number: int) -> Callable[[], int]:
        def alone() -> int:
            self.alone.append(number)
            return 2 * number

        return alone

    def _await(self, count: int) -> None:
        wait_until(lambda: self._waiting() in (count, None), seconds=10)

    def _waiting(self) -> int | None:
        queue = self.gathering._waiting.get("key")
        return None if queue is None else len(queue)


def test_those_who_wait_are_answered_together() -> None:
    work = Work(lambda members: [2 * each for each in members])
    assert work.run([1, 2, 3]) == [2, 4, 6]
    assert (work.batches, work.alone) == ([[1, 2, 3]], [])
    assert not work.gathering._waiting


def test_who_gets_no_answer_works_alone() -> None:
    work = Work(lambda members: [None if each == 2 else 2 * each for each in members])
    assert work.run([1, 2, 3]) == [2, 4, 6]
    assert work.alone == [2]


def test_after_a_failure_each_works_alone_and_so_do_the_next() -> None:
    def fail(members: Sequence[int]) -> Sequence[int]:
        raise ZeroDivisionError

    work = Work(fail)
    assert work.run([1, 2, 3]) == [2, 4, 6]
    assert sorted(work.alone) == [1, 2, 3]
    work.go.clear()
    work.began.clear()
    assert work.run([4, 5]) == [8, 10]
    assert len(work.batches) == 1


def test_who_has_waited_long_works_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered, "WAIT_SECONDS", 0.01)
    work = Work(lambda members: [2 * each for each in members])
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(work.gathering.answer, "key", 0, work._first)
        assert work.began.wait(10)
        assert work.gathering.answer("key", 1, work._one(1)) == 2
        work.go.set()
        assert first.result(10) == 0
    assert (work.batches, work.alone) == ([], [1])


def test_an_error_of_the_leader_lets_the_others_go_on() -> None:
    gathering = Gathering[int, int](list)

    def fail() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gathering.answer("key", 1, fail)
    assert gathering.answer("key", 2, lambda: 2) == 2
    assert not gathering._waiting
