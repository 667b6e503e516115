"""Notices of pauses, what owners answer, and how devices come back at the deadline."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

import wire
from agent.act.endings import KILL_AFTER_NOTICE_S
from agent.owners import LISTEN_EVERY_S
from agent.state import store
from tests.agent.builders import (
    HOUR,
    NOW,
    Rig,
    a_document,
    a_rig,
    a_slice,
    a_whole,
    cases,
    noticed,
)

FOLDER = "bookings/biology.BK-7"


def found(rig: Rig, name: str = "w1") -> wire.ReportedAllocation:
    (one,) = [each for each in rig.sent.report().allocations if each.id == name]
    return one


def notified(
    rig: Rig, *, stubborn: bool = False, method: wire.PauseMethod = "stop", at: int = NOW + 120
) -> int:
    """A booking with a program, under a notice. Returns the program's id."""
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    pid = rig.hardware.process_start(rig.gpu, label="w1", stubborn=stubborn)
    rig.later(1)
    rig.desire(a_document({rig.gpu: [noticed(a_whole(), method=method, at=at)]}, generation=2))
    return pid


def says_saved(state: Path, at: float, folder: str = FOLDER) -> None:
    os.utime(state / folder / "saved", (at, at))


# The notice.


def test_a_notice_is_in_the_bookings_files_at_once_and_in_the_report(rig: Rig, tmp_path: Path) -> None:
    notified(rig)
    notice = {"id": "p1", "told": NOW, "at": NOW + 120, "method": "stop"}
    assert json.loads((tmp_path / FOLDER / "notice.json").read_text()) == notice
    booking = json.loads((tmp_path / FOLDER / "booking.json").read_text())
    assert (booking["notice"], booking["ends"]) == (notice, NOW + 120)
    assert booking["environment"]["GPU_BOOKING_PAUSE_METHOD"] == "stop"
    assert (found(rig).state, found(rig).noticed, found(rig).saved) == ("ready", NOW + 1, None)


def test_without_a_notice_nothing_is_said_of_one(rig: Rig, tmp_path: Path) -> None:
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    assert not (tmp_path / FOLDER / "notice.json").exists()
    assert found(rig).noticed is None
    assert b"noticed" not in rig.sent.outgoing[-1].envelope.body


def test_programs_on_the_devices_get_the_signal_once_and_others_do_not(rig: Rig) -> None:
    one, two = rig.hardware.gpus
    mine, other = [a_whole("w1"), a_whole("w2")], a_whole("w3", booking="BK-8")
    rig.desire(a_document({one.uuid: [mine[0]], two.uuid: [other]}))
    pid = rig.hardware.process_start(one.uuid, label="w1")
    rig.hardware.process_start(two.uuid, label="w3")
    for generation in (2, 3):
        wanted = {one.uuid: [noticed(mine[0])], two.uuid: [other]}
        rig.desire(a_document(wanted, generation=generation))
        rig.later(5)
    assert rig.programs.warned == [(pid, signal.SIGUSR1)]


def test_the_signal_reaches_the_programs_of_a_slice_and_not_its_neighbours(rig: Rig) -> None:
    neighbour = a_slice("a2", slot=2, booking="BK-9")
    rig.desire(a_document({rig.gpu: [a_slice(), neighbour]}))
    devices = [each.devices[0] for each in rig.sent.report().allocations]
    pids = [rig.hardware.process_start(device, label="x") for device in devices]
    rig.desire(a_document({rig.gpu: [noticed(a_slice()), neighbour]}, generation=2))
    assert rig.programs.warned == [(pids[0], signal.SIGUSR1)]


def test_more_time_moves_the_files_and_the_end_but_sends_no_second_signal(rig: Rig, tmp_path: Path) -> None:
    notified(rig)
    later = noticed(a_whole(), at=NOW + 300)
    rig.desire(a_document({rig.gpu: [later]}, generation=3))
    assert json.loads((tmp_path / FOLDER / "notice.json").read_text())["at"] == NOW + 300
    rig.later(200)
    assert found(rig).state == "ready"
    assert len(rig.programs.warned) == 1
    assert found(rig).noticed == NOW + 1


def test_a_notice_that_is_withdrawn_leaves_nothing_and_the_next_one_is_told_anew(
    rig: Rig, tmp_path: Path
) -> None:
    notified(rig)
    rig.desire(a_document({rig.gpu: [a_whole()]}, generation=3))
    assert not (tmp_path / FOLDER / "notice.json").exists()
    assert found(rig).noticed is None
    rig.later(500)
    assert found(rig).state == "ready"
    again = noticed(a_whole(), name="p2", at=NOW + 900)
    rig.desire(a_document({rig.gpu: [again]}, generation=4))
    assert len(rig.programs.warned) == 2
    assert found(rig).noticed == NOW + 501


def test_after_a_restart_nobody_is_warned_twice_and_the_files_are_still_there(
    tmp_path: Path,
) -> None:
    with a_rig(tmp_path) as rig:
        notified(rig)
    with a_rig(tmp_path, at=NOW + 30) as rig:
        rig.agent.turn(rig.sent)
        assert rig.programs.warned == []
        assert found(rig).noticed == NOW + 1
        assert (tmp_path / FOLDER / "notice.json").exists()


def test_killed_between_the_record_and_the_telling_the_next_life_writes_the_files_and_ends_on_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal is lost with the life that should have sent it: it is sent at most once."""

    class Killed(BaseException):
        pass

    def dies(self: object, now: float) -> None:
        raise Killed

    with a_rig(tmp_path) as rig:
        rig.desire(a_document({rig.gpu: [a_whole()]}))
        rig.hardware.process_start(rig.gpu, label="w1")
        monkeypatch.setattr(rig.agent._owners, "files_sync", dies.__get__(rig.agent._owners))
        with pytest.raises(Killed):
            rig.desire(a_document({rig.gpu: [noticed(a_whole())]}, generation=2))
        assert not (tmp_path / FOLDER / "notice.json").exists()
    with a_rig(tmp_path, at=NOW + 1) as rig:
        rig.agent.turn(rig.sent)
        assert (tmp_path / FOLDER / "notice.json").exists()
        assert found(rig).noticed == NOW
        assert rig.programs.warned == []
        rig.later(119)
        assert found(rig).state == "empty"


def test_a_notice_that_can_not_be_recorded_is_in_the_files_and_its_deadline_holds(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    rig.hardware.process_start(rig.gpu, label="w1")

    def full(path: Path, raw: bytes) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(store, "write_synced", full)
    rig.desire(a_document({rig.gpu: [noticed(a_whole())]}, generation=2))
    assert (tmp_path / FOLDER / "notice.json").exists()
    assert rig.programs.warned == []
    rig.later(120)
    assert rig.hardware.gpus[0].processes == {}


# Saying that all is saved.


def test_saved_is_heard_within_a_quarter_of_a_second_and_told_at_once(rig: Rig, tmp_path: Path) -> None:
    notified(rig)
    assert LISTEN_EVERY_S <= 0.25
    assert rig.agent.wait_s() == pytest.approx(LISTEN_EVERY_S)
    says_saved(tmp_path, NOW + 1.1)
    before = len(rig.sent.messages("report"))
    rig.later(rig.agent.wait_s())
    assert len(rig.sent.messages("report")) == before + 1
    assert found(rig).saved == NOW + 1


def test_nobody_listens_fast_without_a_notice(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    assert rig.agent.wait_s() == 5


def test_checkpoints_without_a_notice_are_told_at_most_every_ten_seconds(rig: Rig, tmp_path: Path) -> None:
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    before = len(rig.sent.messages("report"))
    for second in range(1, 31):
        says_saved(tmp_path, NOW + second)
        rig.later(1)
    reported = [
        each.allocations[0].saved
        for each in rig.sent.messages("report")[before:]
        if isinstance(each, wire.Report)
    ]
    assert len(reported) <= 3
    rig.later(10)
    assert found(rig).saved == NOW + 30


@pytest.mark.parametrize(
    ("said", "heard"),
    cases(
        {
            "in the future is now": (NOW + 9999.0, NOW + 1),
            "before the booking is nothing": (NOW - 10.0, None),
            "never is nothing": (0.0, None),
        }
    ),
)
def test_a_time_that_an_owner_made_up_is_not_believed(
    rig: Rig, tmp_path: Path, said: float, heard: int | None
) -> None:
    notified(rig)
    says_saved(tmp_path, said)
    rig.later(0)
    rig.agent._due["listen"] = 0.0
    rig.agent.turn(rig.sent)
    assert found(rig).saved == heard


@pytest.mark.parametrize("skew", [-30, 0, 30])
def test_what_was_saved_before_and_after_the_notice_is_so_for_the_portal_whatever_its_clock_says(
    rig: Rig, tmp_path: Path, skew: int
) -> None:
    """The portal's clock differs from the node's by `skew`."""
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    rig.later(60)
    says_saved(tmp_path, NOW + 50)
    reported = NOW + 60 + skew
    wanted = noticed(a_whole(), at=NOW + 600)
    notice = wire.Notice(id="p1", told=reported, at=NOW + 600, method="stop")
    rig.desire(a_document({rig.gpu: [replace(wanted, notice=notice)]}, generation=2))
    before = found(rig).saved
    assert before is not None
    assert before < reported
    says_saved(tmp_path, NOW + 61)
    rig.later(1)
    after = found(rig).saved
    assert after is not None
    assert after >= reported


def test_the_last_word_before_the_end_is_still_told(rig: Rig, tmp_path: Path) -> None:
    notified(rig)
    says_saved(tmp_path, NOW + 119)
    rig.later(119)
    assert (found(rig).state, found(rig).saved) == ("empty", NOW + 119)


def test_the_saved_file_is_its_owners_alone_and_says_nothing_yet(rig: Rig, tmp_path: Path) -> None:
    rig.desire(a_document({rig.gpu: [a_whole()]}))
    there = (tmp_path / FOLDER / "saved").stat()
    assert (there.st_mode & 0o777, there.st_mtime) == (0o600, 0)
    assert found(rig).saved is None


# The deadline.


def test_at_the_deadline_the_device_is_emptied_by_the_agents_own_clock(rig: Rig, tmp_path: Path) -> None:
    notified(rig)
    rig.later(118)
    assert found(rig).state == "ready"
    assert rig.agent.wait_s() <= 1
    rig.later(1)
    assert found(rig).state == "empty"
    assert not (tmp_path / FOLDER).exists()


def test_stop_asks_and_kills_soon_after(rig: Rig) -> None:
    notified(rig, stubborn=True)
    rig.later(119)
    assert found(rig).state == "ending"
    rig.later(KILL_AFTER_NOTICE_S - 0.5)
    assert found(rig).state == "ending"
    rig.later(0.5)
    assert found(rig).state == "empty"


def test_signal_leaves_the_program_alone_until_the_deadline_and_kills_it_then(rig: Rig) -> None:
    notified(rig, stubborn=True, method="signal")
    rig.later(118)
    assert len(rig.hardware.gpus[0].processes) == 1
    rig.later(1)
    assert found(rig).state == "empty"


def test_a_release_before_the_deadline_ends_the_grace(rig: Rig) -> None:
    notified(rig, stubborn=True, method="signal")
    released = noticed(a_whole(state="release"), method="signal")
    rig.desire(a_document({rig.gpu: [released]}, generation=3))
    assert found(rig).state == "empty"


def test_an_end_without_a_notice_keeps_its_longer_patience(rig: Rig) -> None:
    rig.desire(a_document({rig.gpu: [a_whole(ends=NOW + 10)]}))
    rig.hardware.process_start(rig.gpu, label="w1", stubborn=True)
    rig.later(10)
    rig.later(KILL_AFTER_NOTICE_S + 1)
    assert found(rig).state == "ending"


def test_nobody_is_stopped_before_the_deadline_whatever_is_said_in_between(rig: Rig, tmp_path: Path) -> None:
    """Not even by saying that all is saved: the portal ends the grace, or the clock does."""
    pid = notified(rig, method="signal")
    for second in range(118):
        says_saved(tmp_path, NOW + second)
        rig.later(1)
        assert pid in rig.hardware.gpus[0].processes


def test_a_paused_booking_comes_back_under_another_name_on_the_same_gpu(rig: Rig) -> None:
    notified(rig)
    rig.later(120)
    back = a_whole("w2", starts=NOW + 121, ends=NOW + HOUR)
    rig.desire(a_document({rig.gpu: [back]}, generation=3))
    assert rig.sent.states()["w2"] == "ready"
    assert found(rig, "w2").saved is None
