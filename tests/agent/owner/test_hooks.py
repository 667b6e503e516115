"""A site's own programs run for each booking, bounded, without a shell, and safe from others."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.owner.hooks import Environments, Hooks, Step, lifecycle_steps, notice_steps
from tests.servers.waiting import wait_until

BOOKING = {"biology.BK-7": {"GPU_BOOKING": "BK-7", "GPU_BOOKING_OWNER": "ada"}}
WRITES = 'echo "$GPU_HOOK $(basename "$0") $GPU_BOOKING $GPU_BOOKING_OWNER" >> said\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "hooks.d"
    for event in ("start", "end"):
        (found / event).mkdir(parents=True)
    return found


def a_program(folder: Path, place: str, text: str = WRITES, mode: int = 0o755) -> Path:
    path = folder / place
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(mode)
    return path


@contextmanager
def hooks(folder: Path, *, limit_s: float = 10.0) -> Iterator[Hooks]:
    found = Hooks(folder, folder.parent, limit_s=limit_s)
    yield found
    found.stop()


def said(folder: Path) -> list[str]:
    path = folder / "said"
    return path.read_text().splitlines() if path.exists() else []


def test_programs_run_in_their_order_at_the_start_and_at_the_end(folder: Path) -> None:
    for place in ("start/20-second", "start/10-first", "end/10-last"):
        a_program(folder, place)
    with hooks(folder) as found:
        found.sync(BOOKING)
        found.sync(BOOKING)
        wait_until(lambda: len(said(folder)) == 2, seconds=10)
        found.sync({})
    assert said(folder) == [
        "start 10-first BK-7 ada",
        "start 20-second BK-7 ada",
        "end 10-last BK-7 ada",
    ]


def test_an_end_that_came_while_the_agent_was_away_is_run_once_and_a_start_not_again(
    folder: Path,
) -> None:
    a_program(folder, "start/1")
    a_program(folder, "end/1")
    with hooks(folder) as found:
        found.sync(BOOKING)
    with hooks(folder) as found:
        found.sync(BOOKING)
    assert said(folder) == ["start 1 BK-7 ada"]
    for _ in range(2):
        with hooks(folder) as found:
            found.sync({})
    assert said(folder) == ["start 1 BK-7 ada", "end 1 BK-7 ada"]


def test_a_program_that_hangs_is_killed_with_all_it_started_and_the_next_one_runs(
    folder: Path,
) -> None:
    a_program(folder, "start/1-hangs", "sleep 300 &\necho $! > child\nwait\n")
    a_program(folder, "start/2-next")
    with hooks(folder, limit_s=0.5) as found:
        found.sync(BOOKING)
        wait_until(lambda: said(folder) == ["start 2-next BK-7 ada"], seconds=10)
    child = int((folder / "child").read_text())
    status = Path(f"/proc/{child}/status")
    wait_until(lambda: not status.exists() or "zombie" in status.read_text(), seconds=10)


@pytest.mark.parametrize("text", ["exit 3\n", "kill -9 $$\n"], ids=["says no", "dies"])
def test_a_program_that_fails_stops_nothing(folder: Path, text: str) -> None:
    a_program(folder, "start/1", text)
    a_program(folder, "start/2")
    with hooks(folder) as found:
        found.sync(BOOKING)
    assert said(folder) == ["start 2 BK-7 ada"]


def test_what_is_no_program_is_not_run(folder: Path) -> None:
    (folder / "start" / "readme").write_text("no program\n")
    (folder / "start" / "data").write_text("no interpreter\n")
    (folder / "start" / "data").chmod(0o755)
    (folder / "start" / "folder").mkdir()
    a_program(folder, "start/z")
    with hooks(folder) as found:
        found.sync(BOOKING)
    assert said(folder) == ["start z BK-7 ada"]


@pytest.mark.parametrize("weak", ["start/1", "start", "."])
def test_what_others_may_change_is_not_run(folder: Path, weak: str) -> None:
    a_program(folder, "start/1")
    (folder / weak).chmod(0o777)
    with hooks(folder) as found:
        found.sync(BOOKING)
    assert said(folder) == []


def test_programs_see_the_booking_and_nothing_of_the_agents_own_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_AGENT_TOKEN", "secret")
    a_program(folder, "start/1", "env > said\n")
    with hooks(folder) as found:
        found.sync({"x": {"GPU_BOOKING": "BK-7; touch pwned $(touch pwned)"}})
    text = (folder / "said").read_text()
    assert "GPU_BOOKING=BK-7; touch pwned $(touch pwned)\n" in text
    assert "secret" not in text
    assert not (folder / "pwned").exists()


# Pauses.

PAUSED = {
    "biology.BK-7": {
        **BOOKING["biology.BK-7"],
        "GPU_BOOKING_PAUSE_ID": "p1",
        "GPU_BOOKING_PAUSE_AT": "2027-01-15T08:02:00+00:00",
        "GPU_BOOKING_PAUSE_METHOD": "stop",
    }
}
LATER = {
    "biology.BK-7": {
        **PAUSED["biology.BK-7"],
        "GPU_BOOKING_PAUSE_AT": "2027-01-15T08:30:00+00:00",
    }
}
RESUMED = {"biology.BK-7": {**BOOKING["biology.BK-7"], "GPU_BOOKING_RESUMES": "1"}}
NOTICED = 'echo "$GPU_HOOK $GPU_BOOKING_PAUSE_METHOD $GPU_BOOKING_PAUSE_AT" >> said\n'


@pytest.fixture
def every(folder: Path) -> Path:
    for event in ("notice", "pause", "resume"):
        (folder / event).mkdir()
    for event in ("start", "notice", "pause", "resume", "end"):
        a_program(folder, f"{event}/1", 'echo "$GPU_HOOK" >> said\n')
    return folder


def test_a_pause_is_announced_then_carried_out_then_over(every: Path) -> None:
    with hooks(every) as found:
        found.sync(BOOKING)
        wait_until(lambda: said(every) == ["start"], seconds=10)
        found.sync(PAUSED)
        wait_until(lambda: said(every) == ["start", "notice"], seconds=10)
        found.sync({})
        wait_until(lambda: len(said(every)) == 4, seconds=10)
        found.sync(RESUMED)
    assert said(every) == ["start", "notice", "pause", "end", "start", "resume"]


def test_a_notice_runs_once_however_often_the_agent_starts_and_again_for_another_time(
    folder: Path,
) -> None:
    (folder / "notice").mkdir()
    a_program(folder, "notice/1", NOTICED)
    for wanted in (PAUSED, PAUSED, LATER):
        with hooks(folder) as found:
            found.sync(wanted)
    assert said(folder) == [
        "notice stop 2027-01-15T08:02:00+00:00",
        "notice stop 2027-01-15T08:30:00+00:00",
    ]


def test_a_notice_that_is_withdrawn_is_no_pause_when_the_booking_ends(every: Path) -> None:
    with hooks(every) as found:
        found.sync(PAUSED)
        wait_until(lambda: sorted(said(every)) == ["notice", "start"], seconds=10)
        found.sync(BOOKING)
        found.sync({})
    assert sorted(said(every)) == ["end", "notice", "start"]


@pytest.mark.turn
def test_a_notice_does_not_wait_for_a_program_that_hangs(folder: Path) -> None:
    (folder / "notice").mkdir()
    a_program(folder, "start/1", "sleep 300\n")
    a_program(folder, "notice/1", NOTICED)
    with hooks(folder, limit_s=3) as found:
        found.sync(BOOKING)
        found.sync(PAUSED)
        wait_until(lambda: len(said(folder)) == 1, seconds=2)


def test_what_ran_before_a_kill_is_not_run_again_and_what_did_not_is() -> None:
    """The steps that are left, whatever is known."""

    def events(
        steps: Callable[[Environments, Environments], Iterator[Step]],
        known: Environments,
        active: Environments,
    ) -> list[str]:
        return [event for event, *_ in steps(known, active) if event is not None]

    assert events(notice_steps, {}, PAUSED) == ["notice"]
    assert events(notice_steps, PAUSED, PAUSED) == []
    assert events(lifecycle_steps, PAUSED, {}) == ["pause", "end"]
    paused = {name: {"GPU_BOOKING": "BK-7"} for name in PAUSED}
    assert events(lifecycle_steps, paused, {}) == ["end"]
