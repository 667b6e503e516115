"""Data sets are fetched by the site's program before a device is handed over, whole or not at all."""

import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import wire
from agent.data.folder import DataFolder
from agent.data.staging import MOST_AT_ONCE, Stager
from agent.ports.clock import Clock
from agent.process import Agent
from tests.agent.builders import Rig, a_document, a_slice, a_whole
from tests.servers.waiting import wait_until

GOOD = 'echo "$GPU_DATA $GPU_HOOK" >"$GPU_DATA_FOLDER/train"'


@dataclasses.dataclass
class Cache:
    """A cache folder, and the site's program that fills it."""

    root: Path
    program: Path
    stager: Stager
    folder: DataFolder

    def script(self, text: str) -> None:
        self.program.write_text(f"#!/bin/sh\n{text}\n")
        self.program.chmod(0o755)

    def file(self, name: str) -> str:
        return (self.root / name / "train").read_text()


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    root, program = tmp_path / "cache", tmp_path / "hooks" / "stage"
    root.mkdir()
    program.parent.mkdir()
    folder = DataFolder(root)
    found = Cache(root, program, Stager(folder, program, 30.0, Clock()), folder)
    found.script(GOOD)
    yield found
    found.stager.stop()


def until(check: Callable[[], bool]) -> None:
    wait_until(check, seconds=20, every=0.05)


def fetched(cache: Cache, wanted: dict[str, tuple[str, ...]]) -> set[str]:
    """Follows until nothing is fetched any more; returns the allocations that have their data."""
    done: set[str] = set()

    def over() -> bool:
        done.update(cache.stager.follow(wanted))
        return not cache.stager.fetching

    until(over)
    return done


def test_what_is_missing_is_fetched_once_and_listed_whole(cache: Cache) -> None:
    (cache.root / "coco").mkdir()
    wanted = {"a": ("coco", "imagenet"), "b": ("imagenet",), "c": ("coco",)}

    assert fetched(cache, wanted) == {"a", "b"}
    assert cache.file("imagenet") == "imagenet stage\n"
    cache.folder.look()
    assert [each.name for each in cache.folder.listing or ()] == ["coco", "imagenet"]
    assert not any(each.is_dir() for each in (cache.root / ".staging").iterdir())
    assert cache.stager.follow(wanted) == {}


def test_a_failure_is_said_to_all_that_wait_and_tried_again_for_others(cache: Cache) -> None:
    cache.script("echo part >$GPU_DATA_FOLDER/part; echo; echo 'no such data set' >&2; exit 7")

    assert fetched(cache, {"a": ("imagenet",)}) == set()
    assert cache.stager.failed == {
        "a": "the data set imagenet was not fetched: exit status 7 (no such data set)"
    }
    assert not cache.folder.has("imagenet")
    # What was fetched is there for the next one.
    cache.script("cat $GPU_DATA_FOLDER/part >$GPU_DATA_FOLDER/train")
    assert fetched(cache, {"b": ("imagenet",)}) == {"b"}
    assert cache.file("imagenet") == "part\n"
    assert cache.stager.failed == {}


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("true", "has fetched nothing"),
        ("sleep 60 & sleep 60", "more than 1 s"),
        ("kill -9 $$", "exit status -9"),
    ],
)
def test_other_ends_are_failures_too(cache: Cache, script: str, error: str) -> None:
    cache.stager._limit_s = 1.0
    cache.script(script)

    fetched(cache, {"a": ("imagenet",)})

    assert error in cache.stager.failed["a"]


def test_a_program_that_others_may_change_is_not_run(cache: Cache) -> None:
    cache.program.chmod(0o777)
    fetched(cache, {"a": ("imagenet",)})
    assert "others than root may change" in cache.stager.failed["a"]


def test_what_nobody_needs_any_more_is_ended_and_is_no_failure(cache: Cache) -> None:
    cache.script("echo $$ >$GPU_DATA_FOLDER/pid; exec sleep 60")
    pid = cache.root / ".staging" / "imagenet" / "pid"
    cache.stager.follow({"a": ("imagenet",)})
    until(lambda: pid.exists() and pid.read_text().strip().isdecimal())

    cache.stager.follow({})

    until(lambda: not _lives(int(pid.read_text())))
    cache.script("true")
    assert fetched(cache, {"b": ("imagenet",)}) == {"b"}


def test_only_so_many_are_fetched_at_once(cache: Cache) -> None:
    cache.script("touch $GPU_DATA_FOLDER/here; while ! [ -e $GPU_DATA_CACHE/go ]; do sleep 0.05; done")
    names = tuple(f"set-{number}" for number in range(MOST_AT_ONCE + 2))

    cache.stager.follow({"a": names})
    until(lambda: len(list((cache.root / ".staging").glob("*/here"))) == MOST_AT_ONCE)
    assert cache.stager.fetching == {"a": names}
    (cache.root / "go").touch()

    assert fetched(cache, {"a": names}) == {"a"}


def test_a_run_that_has_outlived_its_agent_is_ended_and_its_part_is_kept(cache: Cache) -> None:
    cache.script("echo first >>$GPU_DATA_FOLDER/train; echo $$ >$GPU_DATA_FOLDER/pid; exec sleep 60")
    # As an agent leaves it that was killed: the program continues, and holds the lock.
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os.close(reader)
        Stager(cache.folder, cache.program, 30.0, Clock()).follow({"a": ("imagenet",)})
        time.sleep(60)
        os._exit(0)
    os.close(writer)
    pid = cache.root / ".staging" / "imagenet" / "pid"
    until(lambda: pid.exists() and pid.read_text().strip().isdecimal())
    program = int(pid.read_text())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)
    assert _lives(program)
    cache.script("echo second >>$GPU_DATA_FOLDER/train")

    assert (fetched(cache, {"b": ("imagenet",)}), cache.stager.failed) == ({"b"}, {})
    assert not _lives(program)
    assert cache.file("imagenet") == "first\nsecond\n"


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


# In the agent.


@pytest.fixture
def staging(rig: Rig, cache: Cache) -> Rig:
    """The agent of the rig, with the cache."""
    rig.node = dataclasses.replace(rig.node, data=cache.folder, stager=cache.stager)
    rig.agent = Agent(rig.node, Clock(wall=rig.wall, steady=rig.steady))
    return rig


def desired(rig: Rig, *data: str, generation: int = 1, profile: bool = False) -> wire.Desired:
    row = a_slice() if profile else a_whole()
    return a_document({rig.gpu: [dataclasses.replace(row, data=data)]}, generation=generation)


def allocation(rig: Rig) -> wire.ReportedAllocation:
    (found,) = rig.sent.report().allocations
    return found


def turned(rig: Rig, state: str) -> wire.ReportedAllocation:
    def is_so() -> bool:
        rig.later(5)
        return allocation(rig).state == state

    until(is_so)
    return allocation(rig)


@pytest.mark.parametrize("slices", [0, 1])
def test_nothing_is_handed_over_before_the_data_is_there(staging: Rig, cache: Cache, slices: int) -> None:
    cache.script(f"while ! [ -e $GPU_DATA_CACHE/go ]; do sleep 0.05; done; {GOOD}")
    staging.desire(desired(staging, "imagenet", profile=bool(slices)))
    staging.later(5)

    found = allocation(staging)
    assert (found.state, found.staging, found.devices) == ("preparing", ("imagenet",), ())
    assert staging.node.handover.devices() == {}
    # A slice is made meanwhile.
    assert len(staging.instances()) == slices
    (cache.root / "go").touch()

    ready = turned(staging, "ready")
    assert ready.staging == ()
    assert {"stage", "hand_over"} <= {step.name for step in ready.steps}


def test_data_that_is_there_delays_nothing(staging: Rig, cache: Cache) -> None:
    (cache.root / "imagenet").mkdir()
    staging.desire(desired(staging, "imagenet"))
    ready = allocation(staging)
    assert (ready.state, [step.name for step in ready.steps]) == ("ready", ["hand_over"])


def test_a_failed_fetch_fails_the_start(staging: Rig, cache: Cache) -> None:
    cache.script("echo 'disk full'; exit 1")
    staging.desire(desired(staging, "imagenet"))

    failed = turned(staging, "failed")

    assert failed.error == "the data set imagenet was not fetched: exit status 1 (disk full)"
    assert staging.node.handover.devices() == {}
    # The portal takes it back, and nothing was there.
    gone = dataclasses.replace(a_whole(state="release"), data=("imagenet",))
    staging.desire(a_document({staging.gpu: [gone]}, generation=2))
    assert allocation(staging).state == "empty"


def test_without_a_program_the_booking_starts_without_its_data(rig: Rig) -> None:
    rig.desire(desired(rig, "imagenet"))
    assert allocation(rig).state == "ready"


def test_a_running_booking_loses_nothing_when_its_data_is_deleted(staging: Rig, cache: Cache) -> None:
    (cache.root / "imagenet").mkdir()
    staging.desire(desired(staging, "imagenet"))
    (cache.root / "imagenet").rmdir()
    staging.later(5)
    assert allocation(staging).state == "ready"
    assert cache.stager.fetching == {}


def test_programs_are_given_the_names_and_the_folder(staging: Rig, cache: Cache) -> None:
    place = dataclasses.replace(staging.agent._owners._place, data=cache.root)
    staging.node = dataclasses.replace(staging.node, place=place)
    staging.agent = Agent(staging.node, Clock(wall=staging.wall, steady=staging.steady))
    (cache.root / "imagenet").mkdir()
    staging.desire(desired(staging, "imagenet"))

    (env,) = staging.node.handover.root.glob("*.BK-7/env")
    text = env.read_text()

    assert "export GPU_BOOKING_DATA=imagenet\n" in text
    assert f"export GPU_BOOKING_DATA_FOLDER={cache.root}\n" in text
