"""Notebooks on a node: real programs, a real UNIX socket, and a proxy that takes tunnels."""

import asyncio
import base64
import hashlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import wire
from agent.owner.booking_files import BookingFiles
from agent.owner.notebooks import Notebooks, NotebookSettings, settings_read
from agent.owner.shares import ActiveBooking
from agent.ports.notebook_programs import (
    AccountStarter,
    NotebookStart,
    notebook_pids,
    notebook_signal,
)
from devtools.simulated.programs import SimulatedStarter
from tests.agent.builders import cases
from tests.agent.ports.test_hand_over import GANG
from tests.servers.waiting import wait_until

NAME = "biology.BK-7"
ID = "ab" * 16
ORDER = wire.DesiredNotebook(id=ID, booking="BK-7", tenant="biology", program="small", address="t.label")
PART = ActiveBooking(
    name=NAME,
    booking="BK-7",
    tenant="biology",
    owner="ada",
    account="ada",
    sliced=False,
    starts=0,
    ends=4_000_000_000,
    devices=("GPU-1",),
    members=GANG.members,
    rank=1,
)
ACTIVE = {NAME: PART}
# Answers each connection with what it got, and has a child in a session of its own.
PROGRAM = """
import os, socket, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
while True:
    taken, _ = listening.accept()
    data = taken.recv(1000)
    if data:
        taken.sendall(data.upper() + os.environ["GPU_BOOKING"].encode())
    taken.close()
"""


class Node:
    """A node whose agent starts again as often as a test asks."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "notebooks"
        self.own = self.root / ID[:12]
        self._folder = folder
        self._starter = SimulatedStarter(folder / "homes")
        part = replace(PART, folder=str(folder / "bookings" / NAME))
        BookingFiles(folder / "bookings").sync({NAME: part})

    def agent(self, *command: str, portal: str = "http://127.0.0.1:1") -> Notebooks:
        programs = {"small": command or (sys.executable, "-c", PROGRAM, "{socket}")}
        return Notebooks(NotebookSettings(portal, programs), self._starter, self._folder)

    def stop(self) -> None:
        notebook_signal(ID, os.geteuid(), signal.SIGKILL)
        wait_until(lambda: not pids() and not self._starter.reap(), seconds=30)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    found = Node(tmp_path)
    yield found
    found.stop()


def state_of(found: Notebooks) -> str:
    found.sync([ORDER], ACTIVE)
    return next((each.state for each in found.reported()), "")


def pids() -> list[int]:
    return notebook_pids(ID, os.geteuid())


@pytest.mark.turn
def test_a_notebook_starts_for_its_booking_and_ends_with_all_that_it_started(node: Node) -> None:
    found = node.agent()
    found.sync([ORDER], {})
    assert (found.reported(), pids()) == ((), []), "its booking is not active here"
    wait_until(lambda: state_of(found) == "ready", seconds=30)
    # `notebook`, the program, and its child.
    assert len(pids()) == 3
    secret = (node.own / "secret").read_text()
    assert found.reported()[0].key == hashlib.sha256(secret.encode()).hexdigest()
    assert node.own.stat().st_mode & 0o777 == 0o700

    def is_over() -> bool:
        found.sync([ORDER], {})
        return not pids() and found.reported()[0].state == "ended"

    wait_until(is_over, seconds=30)
    found.sync([], {})
    assert list(node.root.iterdir()) == []


@pytest.mark.turn
def test_another_agent_continues_and_starts_nothing_twice(node: Node) -> None:
    first = node.agent()
    wait_until(lambda: state_of(first) == "ready", seconds=30)
    before, key = pids(), first.reported()[0].key
    again = node.agent()
    assert state_of(again) == "ready"
    assert (pids(), again.reported()[0].key) == (before, key)

    def is_forgotten() -> bool:
        again.sync([], ACTIVE)
        return not pids() and list(node.root.iterdir()) == []

    wait_until(is_forgotten, seconds=30)


@pytest.mark.parametrize(
    ("command", "words"),
    cases(
        {
            "it ends": (("/bin/sh", "-c", "echo no licence; exit 3", "{socket}"), "status 3: no licence"),
            "there is none": (("/nowhere/jupyter", "{socket}"), "/nowhere/jupyter: No such file"),
        }
    ),
)
def test_a_program_that_does_not_run_says_why_once(node: Node, command: tuple[str, ...], words: str) -> None:
    found = node.agent(*command)
    wait_until(lambda: state_of(found) == "failed", seconds=30)
    assert words in found.reported()[0].error
    found.sync([ORDER], ACTIVE)
    assert found.reported()[0].state == "failed"


def test_a_program_that_is_killed_has_ended_though_its_children_run_on(node: Node) -> None:
    found = node.agent()
    wait_until(lambda: state_of(found) == "ready", seconds=30)
    (server,) = [
        pid
        for pid in pids()
        if b"listening" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and b"agent" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(server, signal.SIGKILL)
    wait_until(lambda: state_of(found) == "ended", seconds=30)
    assert "status -9" in found.reported()[0].error
    assert pids() != []


def test_a_name_that_the_site_does_not_have_is_no_command(node: Node) -> None:
    found = node.agent()
    found.sync([replace(ORDER, program="sh")], ACTIVE)
    assert found.reported()[0].error == "sh is not offered here"
    assert pids() == []


def test_what_the_owner_writes_into_the_status_is_not_believed_blindly(node: Node) -> None:
    found = node.agent()
    wait_until(lambda: state_of(found) == "ready", seconds=30)
    status = node.own / "status.json"
    coloured = json.dumps({"state": "ready", "error": "\x1b[2J"})
    for text in ("[]", "{", '{"state": "root", "error": ""}', coloured):
        status.write_text(text)
        found.sync([ORDER], ACTIVE)
        assert found.reported()[0].state in ("starting", "ready")
        wire.seal(wire.Notebooks(seq=1, notebooks=found.reported()), key=b"k" * 32, key_version=1)
        assert "\x1b" not in found.reported()[0].error
    status.unlink()
    status.symlink_to("/etc/hostname")
    found.sync([ORDER], ACTIVE)
    assert found.reported()[0].error == ""


async def _tunnelled(node: Node) -> tuple[str, bytes]:
    """What a tunnel says of itself, and what comes back through it."""
    taken: asyncio.Future[tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]]
    taken = asyncio.get_running_loop().create_future()
    writers: list[asyncio.StreamWriter] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        if taken.done():
            writer.close()
        else:
            taken.set_result((head, reader, writer))

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    found = node.agent(portal=f"http://127.0.0.1:{port}")
    await asyncio.to_thread(wait_until, lambda: state_of(found) == "ready", seconds=30)
    head, reader, writer = await taken
    writer.write(b"hello ")
    answer = await reader.read()
    server.close()
    for each in writers:
        each.close()
        with suppress(ConnectionError):
            await each.wait_closed()
    words = head.decode().split("Authorization: Basic ")[1].split("\r\n")[0]
    return base64.b64decode(words).decode(), answer


def test_a_tunnel_says_its_secret_and_becomes_a_pipe_to_the_program(node: Node) -> None:
    who, answer = asyncio.run(_tunnelled(node))
    secret = (node.own / "secret").read_text()
    assert (who, answer) == (f"t.label:{secret}", b"HELLO BK-7")


@pytest.mark.parametrize(
    ("text", "why"),
    cases(
        {
            "no portal": ("[programs.a]\ncommand = ['a', '{socket}']", "needs `portal`"),
            "no address": ("portal = 'x'\n[programs.a]\ncommand = ['a', '{socket}']", "no address"),
            "open to readers": ("portal = 'http://a.org'\n[programs.a]\ncommand = ['{socket}']", "https"),
            "a shell line": (
                "portal = 'https://a.org'\n[programs.a]\ncommand = 'a {socket}'",
                "of words",
            ),
            "no socket": ("portal = 'https://a.org'\n[programs.a]\ncommand = ['a']", "{socket}"),
            "a bad name": ("portal = 'https://a.org'\n[programs.'a/b']\ncommand = ['{socket}']", "no name"),
            "nothing": ("portal = 'https://a.org'\n[programs]", "1 to 16"),
        }
    ),
)
def test_a_list_that_can_t_be_right_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "notebooks.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=why.replace("{", "\\{")):
        settings_read(file)


def test_a_list_that_others_may_change_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notebooks.toml"
    file.write_text("portal = 'https://a.org'\n[programs.a]\ncommand = ['a', '{socket}']")
    assert settings_read(file).programs == {"a": ("a", "{socket}")}
    file.chmod(0o666)
    with pytest.raises(ValueError, match="others than root"):
        settings_read(file)


def test_under_systemd_it_is_a_service_of_the_account_in_the_slice_of_the_booking() -> None:
    ran: list[list[str]] = []

    def run(words: Sequence[str], limit_s: float) -> str:
        ran.append([*words])
        return ""

    starter = AccountStarter(lambda _: 1001, has_systemd=True, run=run)
    unit = "gpu-booking-1001.x.slice"
    wanted = NotebookStart(ID, "ada", "ada", 1001, unit, ("python", "-m", "agent"), Path("/opt"))
    starter.start(wanted)
    (words,) = ran
    assert words[0] == "systemd-run"
    assert {"--uid=ada", f"--slice={unit}", f"--setenv=GPU_NOTEBOOK={ID}"} <= set(words)
    assert words[words.index("--") :] == ["--", "python", "-m", "agent"]


def test_others_programs_are_never_named(node: Node) -> None:
    found = node.agent()
    wait_until(lambda: state_of(found) == "ready", seconds=30)
    assert pids() != []
    assert notebook_pids(ID, os.geteuid() + 1) == []
    assert notebook_pids(ID[:-1], os.geteuid()) == []
