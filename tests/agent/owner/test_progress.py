"""What programs write of their progress, and what the agent sends of it."""

import os
import pwd
import time
from pathlib import Path

import pytest

import wire
from agent.owner.booking_files import BookingFiles
from agent.owner.shares import PROGRESS, ActiveBooking, environment
from tests.agent.builders import NOW, Rig, a_document, a_whole, cases
from tests.agent.ports.test_hand_over import GANG, NAME

LONG = wire.PROGRESS_LENGTH


def part_of(folder: Path, account: str | None = None) -> ActiveBooking:
    owner = account or pwd.getpwuid(os.getuid()).pw_name
    return ActiveBooking(
        name=NAME,
        booking="BK-7",
        tenant="biology",
        owner=owner,
        account=owner,
        sliced=False,
        starts=0,
        ends=4_000_000_000,
        devices=("GPU-1",),
        members=GANG.members,
        rank=1,
        folder=str(folder / NAME),
    )


@pytest.fixture
def bookings(tmp_path: Path) -> BookingFiles:
    files = BookingFiles(tmp_path)
    assert files.sync({NAME: part_of(tmp_path)}) is None
    return files


def written(folder: Path, data: bytes, *, at: float | None = None) -> None:
    path = folder / NAME / PROGRESS
    path.write_bytes(data)
    moment = time.time() if at is None else at
    os.utime(path, (moment, moment))


def test_the_environment_names_the_file_and_it_is_the_owners_alone(
    tmp_path: Path, bookings: BookingFiles
) -> None:
    path = tmp_path / NAME / PROGRESS
    assert environment(part_of(tmp_path))["GPU_BOOKING_PROGRESS"] == str(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert bookings.progress_lines() == {}


@pytest.mark.parametrize(
    ("data", "line"),
    cases(
        {
            "one line": (b'{"step": 1}\n', '{"step": 1}'),
            "one without an end": (b'{"step": 1}', '{"step": 1}'),
            "the last of many": (b'{"step": 1}\n{"step": 2}\n', '{"step": 2}'),
            "not one that is being written": (b'{"step": 1}\n{"ste', '{"step": 1}'),
            "after a gigabyte of others": (b"\0" * 3_000_000 + b'\n{"step": 9}\n', '{"step": 9}'),
            "the longest": (b"x" * LONG + b"\n", "x" * LONG),
            "too long": (b"x" * (LONG + 1) + b"\n", ""),
            "endless": (b"x" * 1_000_000, ""),
            "not UTF-8": (b"\xff\xfe\n", ""),
            "control characters": (b'{"step": 1}\x1b[2J\n', ""),
            "right to left": ("{\u202e}\n".encode(), ""),
            "umlauts": ('{"unit": "Schritt ä"}\n'.encode(), '{"unit": "Schritt ä"}'),
            "an empty line": (b"\n", ""),
        }
    ),
)
def test_the_last_complete_line_is_sent_if_it_is_plain_and_short(
    tmp_path: Path, bookings: BookingFiles, data: bytes, line: str
) -> None:
    written(tmp_path, data)
    assert bookings.progress_lines() == {NAME: line}
    wire.ProgressLine(allocation="a", line=line)
    assert bookings.progress_lines() == {}, "only once"


def test_a_line_is_sent_again_when_the_file_is_written_again(tmp_path: Path, bookings: BookingFiles) -> None:
    written(tmp_path, b'{"step": 1}\n', at=1_000.5)
    assert bookings.progress_lines() == {NAME: '{"step": 1}'}
    written(tmp_path, b'{"step": 1}\n', at=1_001.5)
    assert bookings.progress_lines() == {NAME: '{"step": 1}'}
    written(tmp_path, b"", at=1_002.5)
    assert bookings.progress_lines() == {}


def test_what_stands_in_the_place_of_the_file_is_not_read(tmp_path: Path, bookings: BookingFiles) -> None:
    path = tmp_path / NAME / PROGRESS
    path.unlink()
    secret = tmp_path / "secret"
    secret.write_text('{"step": 1}\n')
    path.symlink_to(secret)
    assert bookings.progress_lines() == {}
    path.unlink()
    os.mkfifo(path)
    assert bookings.progress_lines() == {}


def test_a_booking_that_ends_takes_its_progress_along(tmp_path: Path, bookings: BookingFiles) -> None:
    written(tmp_path, b'{"step": 7}\n', at=1_000.5)
    assert bookings.progress_lines() == {NAME: '{"step": 7}'}
    bookings.sync({})
    assert bookings.progress_lines() == {}
    assert not (tmp_path / NAME).exists()
    bookings.sync({NAME: part_of(tmp_path)})
    written(tmp_path, b'{"step": 1}\n', at=1_000.5)
    assert bookings.progress_lines() == {NAME: '{"step": 1}'}, "the same time in another file"


def test_the_agent_sends_it_with_its_readings_by_an_allocation_of_the_booking(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_whole("a1")]}))
    rig.later(2)
    (path,) = rig.node.handover.root.glob(f"*/{PROGRESS}")
    path.write_text('{"step": 12}\n')
    os.utime(path, (NOW, NOW))
    rig.later(10)
    lines = [each.progress for each in rig.sent.messages("telemetry") if isinstance(each, wire.Telemetry)]
    said = [each for each in lines if each]
    assert said == [(wire.ProgressLine(allocation="a1", line='{"step": 12}'),)]
