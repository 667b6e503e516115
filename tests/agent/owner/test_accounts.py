"""Which local account a member has: what the site's program says, and what follows if it fails."""

import dataclasses
import json
import logging
import os
import time
from pathlib import Path

import pytest

from agent.owner import accounts
from agent.owner.accounts import FOUND_FOR_S, MISSING_FOR_S, LoginProgram
from agent.owner.booking_files import BookingFiles
from agent.owner.device_acls import DeviceAcls
from agent.owner.shares import SAVED, ActiveBooking, NodeContext, active_bookings
from agent.run import NotNow, booking_find
from devtools.simulated.device_nodes import SimulatedAccess, SimulatedDeviceNodes
from tests.agent.builders import NODE, NOW, FakeTime, Rig, a_document, a_slice, cases
from tests.servers.waiting import wait_until

UIDS = {"u1001": 1001, "u1002": 1002, "root": 0}


def a_hook(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "hooks"
    folder.mkdir(exist_ok=True)
    program = folder / "login"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


def asked(program: Path, steady: FakeTime, limit_s: float = 5) -> LoginProgram:
    return LoginProgram(program, steady=steady, uid_of=UIDS.get, limit_s=limit_s)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy must not make a quick program late."""
    monkeypatch.setattr(accounts, "LOOKUP_WAIT_S", 5.0)


def test_it_says_which_account_and_is_asked_seldom(tmp_path: Path) -> None:
    count = tmp_path / "count"
    program = a_hook(tmp_path, f'echo "$1" >> {count}; echo u1001')
    steady = FakeTime(0)
    found = asked(program, steady)
    assert [found.account_of("ada"), found.account_of("ada")] == ["u1001", "u1001"]
    assert count.read_text() == "ada\n"
    a_hook(tmp_path, "echo u1002")
    steady.now += FOUND_FOR_S + 1
    assert found.account_of("ada") == "u1002"


@pytest.mark.parametrize(
    ("text", "said"),
    cases(
        {
            "it fails": ("echo u1001; exit 3", "ended with 3"),
            "it says nothing": ("true", "said ''"),
            "it says more than a name": ("echo u1001; echo u1002", "said"),
            "it says an option": ("echo -- -rf", "said"),
            "it names nobody of this node": ("echo u9", "there is no account u9 here"),
            "it never ends": ("sleep 60", "took longer than"),
        }
    ),
)
def test_where_it_can_not_be_said_there_is_no_account(
    text: str, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steady = FakeTime(0)
    with caplog.at_level(logging.ERROR):
        found = asked(a_hook(tmp_path, text), steady, limit_s=0.3)
        assert found.account_of("ada") is None
    assert said in caplog.text
    a_hook(tmp_path, "echo u1001")
    assert found.account_of("ada") is None
    steady.now += MISSING_FOR_S + 1
    assert found.account_of("ada") == "u1001"


def test_what_others_may_change_is_not_run(tmp_path: Path) -> None:
    program = a_hook(tmp_path, f"touch {tmp_path}/ran; echo u1001")
    program.chmod(0o777)
    assert asked(program, FakeTime(0)).account_of("ada") is None
    assert not (tmp_path / "ran").exists()


def test_a_slow_one_keeps_nobody_waiting_and_counts_when_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "LOOKUP_WAIT_S", 0.05)
    go = tmp_path / "go"
    os.mkfifo(go)
    found = asked(a_hook(tmp_path, f"read line < {go}; echo u1001"), FakeTime(0), limit_s=20)
    began = time.monotonic()
    assert found.account_of("ada") is None
    assert time.monotonic() - began < 2
    go.write_text("go\n")
    wait_until(lambda: found.account_of("ada") == "u1001", seconds=10)


# What follows.


def parts(rig: Rig, state: Path, account: str | None) -> dict[str, ActiveBooking]:
    place = NodeContext(NODE, state / "bookings", account_of=lambda _: account)
    return active_bookings(rig.node.store.desired, rig.node.handover.devices(), NOW, place)


def test_doors_open_to_the_account_that_was_named(rig: Rig, tmp_path: Path) -> None:
    access = SimulatedAccess()
    device_acls = DeviceAcls(SimulatedDeviceNodes(rig.hardware), access, tmp_path / "d.json", UIDS.get)
    rig.desire(a_document({rig.gpu: [a_slice()]}))
    assert device_acls.sync(parts(rig, tmp_path, "u1001")) == []
    assert {uid for _, uid in access.rights} == {1001}
    (problem,) = device_acls.sync(parts(rig, tmp_path, None))
    assert "there is no account for ada here" in problem
    assert access.rights == set()


def test_the_launcher_knows_the_owner_by_the_account(rig: Rig, tmp_path: Path) -> None:
    rig.desire(a_document({rig.gpu: [a_slice()]}))
    root, bookings = tmp_path / "bookings", BookingFiles(tmp_path / "bookings")
    bookings.sync(parts(rig, tmp_path, "u1001"))
    found = booking_find(root, "BK-2041", "u1001", NOW)
    assert (found["owner"], found["account"]) == ("ada", "u1001")
    with pytest.raises(NotNow, match="of ada, and you are ada"):
        booking_find(root, "BK-2041", "ada", NOW)

    said = bookings.sync(parts(rig, tmp_path, None))
    assert said is not None
    assert "no local account is known for ada" in said
    with pytest.raises(NotNow, match="No account of this node is known for ada"):
        booking_find(root, "biology.BK-2041", "u1001", NOW)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_file_that_says_saved_follows_the_account(rig: Rig, tmp_path: Path) -> None:
    rig.desire(a_document({rig.gpu: [a_slice()]}))
    bookings = BookingFiles(tmp_path / "bookings")
    file = tmp_path / "bookings" / "biology.BK-2041" / SAVED
    for account, owner in ((None, "root"), ("daemon", "daemon"), ("root", "root")):
        bookings.sync(parts(rig, tmp_path, account))
        assert file.owner() == owner
    text = (file.parent / "booking.json").read_text()
    assert json.loads(text)["account"] == "root"


def test_who_has_no_account_is_no_other_than_who_has(rig: Rig, tmp_path: Path) -> None:
    """The part changes with the account, so that its files are written anew."""
    rig.desire(a_document({rig.gpu: [a_slice()]}))
    one, two = (parts(rig, tmp_path, name)["biology.BK-2041"] for name in ("u1001", "u1002"))
    assert one != two
    assert dataclasses.replace(one, account="u1002") == two
