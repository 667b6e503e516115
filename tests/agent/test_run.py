"""`run` and `saved` on a node, and launchers of distributed training and MPI under them."""

import os
import pwd
import subprocess
import sys
import time
from pathlib import Path

import pytest

import wire
from agent import run
from agent.owner.booking_files import BookingFiles
from agent.owner.shares import ActiveBooking, NodeContext, active_bookings
from tests.agent.builders import NODE, NOW, a_document, a_whole, cases
from tests.agent.ports.test_hand_over import GANG, NAME

pytestmark = pytest.mark.turn


def ran(state: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "agent", "run", "--state", str(state), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "MINE": "kept"},
    )


def booked(state: Path, **more: object) -> None:
    """A booking that is active by the real clock, on two whole GPUs."""
    owner = str(more.pop("owner", pwd.getpwuid(os.getuid()).pw_name))
    part = ActiveBooking(
        name=NAME,
        booking="BK-7",
        tenant="biology",
        owner=owner,
        account=str(more.pop("account", owner)),
        sliced=bool(more.pop("sliced", False)),
        starts=0,
        ends=int(str(more.pop("ends", 4_000_000_000))),
        devices=("GPU-1", "GPU-2"),
        members=GANG.members,
        rank=1,
        folder=str(state / "bookings" / NAME),
    )
    BookingFiles(state / "bookings").sync({NAME: part})


def test_run_starts_the_command_with_the_bookings_environment_and_its_status(
    tmp_path: Path,
) -> None:
    booked(tmp_path)
    program = 'echo "$MINE $GPU_BOOKING $CUDA_VISIBLE_DEVICES $MASTER_ADDR $1"; exit 7'
    done = ran(tmp_path, "BK-7", "--", "sh", "-c", program, "sh", "--part")
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout == "kept BK-7 GPU-1,GPU-2 node-0 --part\n"
    one = ran(tmp_path, "--part", "1", NAME, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert one.stdout == "GPU-2\n"


@pytest.mark.parametrize(
    ("more", "arguments", "code", "words"),
    cases(
        {
            "a booking that is not here": (
                {},
                ("BK-8", "--", "true"),
                4,
                "no devices on this node",
            ),
            "one that is over": ({"ends": 1000}, ("BK-7", "--", "true"), 4, "ended at 01 Jan"),
            "somebody else's, by its number": (
                {"owner": "somebody"},
                ("BK-7", "--", "true"),
                4,
                "of somebody, and you are",
            ),
            "several slices, none said": ({"sliced": True}, ("BK-7", "--", "true"), 4, "--part 0"),
            "a device that it has not": ({}, ("--part", "2", "BK-7", "--", "true"), 4, "2 devices"),
            "no command": ({}, ("BK-7",), 2, "say what to run"),
            "a command that is not there": ({}, ("BK-7", "--", "no-such-thing"), 127, "No such"),
            "a command that is no program": ({}, ("BK-7", "--", "/etc"), 126, "denied"),
        }
    ),
)
def test_run_says_why_it_does_not_start(
    tmp_path: Path, more: dict[str, object], arguments: tuple[str, ...], code: int, words: str
) -> None:
    booked(tmp_path, **more)
    done = ran(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr


def test_somebody_elses_booking_runs_for_who_says_its_full_name(tmp_path: Path) -> None:
    booked(tmp_path, owner="somebody")
    assert ran(tmp_path, NAME, "--", "true").returncode == 0


def test_a_number_that_is_two_bookings_here_is_asked_back(tmp_path: Path) -> None:
    booked(tmp_path)
    other = tmp_path / "bookings" / "rival.BK-7"
    other.mkdir()
    (other / "booking.json").write_text("{}")
    with pytest.raises(run.NotNow, match=r"biology.BK-7 or rival.BK-7"):
        run.booking_find(tmp_path / "bookings", "BK-7", "ada", NOW)


# Distributed training and MPI.

TORCHRUN = """#!/bin/sh
# As torchrun takes the defaults of its options from PET_*, one program for each device here.
rank=0
while [ $rank -lt $PET_NPROC_PER_NODE ]; do
    global=$((PET_NODE_RANK * PET_NPROC_PER_NODE + rank))
    env LOCAL_RANK=$rank RANK=$global WORLD_SIZE=$((PET_NNODES * PET_NPROC_PER_NODE)) \\
        MASTER_ADDR=$PET_MASTER_ADDR MASTER_PORT=$PET_MASTER_PORT "$@"
    rank=$((rank + 1))
done
"""
MPIRUN = """#!/bin/sh
echo "hosts $(tr '\\n' ' ' < "$OMPI_MCA_orte_default_hostfile")"
[ "$OMPI_MCA_orte_default_hostfile" = "$PRTE_MCA_prte_default_hostfile" ]
echo "machines $(tr '\\n' ' ' < "$HYDRA_HOST_FILE")"
[ "$HYDRA_HOST_FILE" = "$I_MPI_HYDRA_HOST_FILE" ] && exec "$@"
"""


def a_launcher(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_the_same_line_on_every_node_starts_a_gang_with_all_its_ranks(tmp_path: Path) -> None:
    """The environment from the launcher in a gang of two nodes with two GPUs each."""
    torchrun = a_launcher(tmp_path, "torchrun", TORCHRUN)
    nodes = ("node-0", NODE)
    gang = wire.Gang(
        tenant="biology",
        booking="BK-7",
        members=tuple(wire.Member(node=node, devices=2) for node in nodes),
    )
    said: list[str] = []
    for node in nodes:
        state = tmp_path / node
        mine = [a_whole(f"{node}-{n}", starts=0, ends=4_000_000_000) for n in (1, 2)]
        document = a_document({f"GPU-{n}": [mine[n - 1]] for n in (1, 2)}, gangs=(gang,), node=node)
        given = {each.id: f"GPU-{node}-{n}" for n, each in enumerate(mine)}
        parts = active_bookings(document, given, NOW, NodeContext(node, state / "bookings"))
        BookingFiles(state / "bookings").sync(parts)
        program = "echo $RANK of $WORLD_SIZE at $MASTER_ADDR $MASTER_PORT on $CUDA_VISIBLE_DEVICES"
        done = ran(state, NAME, "--", torchrun, "sh", "-c", program)
        assert done.stderr == ""
        said += done.stdout.splitlines()
    port = ActiveBooking(NAME, "", "", "", False, 0, 1, (), (), 0).port  # noqa: FBT003
    assert said == [
        f"{rank} of 4 at node-0 {port} on GPU-{node}-0,GPU-{node}-1"
        for rank, node in enumerate(["node-0", "node-0", NODE, NODE])
    ]


def test_an_mpi_launcher_finds_the_hosts_of_the_gang(tmp_path: Path) -> None:
    booked(tmp_path)
    mpirun = a_launcher(tmp_path, "mpirun", MPIRUN)
    done = ran(tmp_path, NAME, "--", mpirun, "sh", "-c", "echo rank 0 on $CUDA_VISIBLE_DEVICES")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"hosts node-0 slots=8 {NODE} slots=2 ",
        f"machines node-0:8 {NODE}:2 ",
        "rank 0 on GPU-1,GPU-2",
    ]


# `saved`.


def said_saved(state: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "agent", "saved", "--state", str(state), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )


@pytest.mark.parametrize("name", ["BK-7", NAME])
def test_its_owner_says_that_everything_is_saved(tmp_path: Path, name: str) -> None:
    booked(tmp_path)
    bookings = BookingFiles(tmp_path / "bookings")
    assert bookings.saved_times() == {}
    before = int(time.time())
    done = said_saved(tmp_path, name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert before <= bookings.saved_times()[NAME] <= time.time()


def test_a_program_says_it_by_touching_the_file_that_its_environment_names(tmp_path: Path) -> None:
    booked(tmp_path)
    assert ran(tmp_path, NAME, "--", "sh", "-c", 'touch "$GPU_BOOKING_SAVED"').returncode == 0
    assert list(BookingFiles(tmp_path / "bookings").saved_times()) == [NAME]


@pytest.mark.parametrize(
    ("more", "arguments", "code", "words"),
    cases(
        {
            "a booking that is not here": ({}, ("BK-8",), 4, "no devices on this node"),
            "one that is over": ({"ends": 1000}, ("BK-7",), 4, "ended at 01 Jan"),
            "somebody else's": ({"owner": "somebody"}, ("BK-7",), 4, "of somebody, and you are"),
            "no booking": ({}, (), 2, "required: booking"),
        }
    ),
)
def test_who_may_not_speak_for_a_booking_is_told_so(
    tmp_path: Path, more: dict[str, object], arguments: tuple[str, ...], code: int, words: str
) -> None:
    booked(tmp_path, **more)
    done = said_saved(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert BookingFiles(tmp_path / "bookings").saved_times() == {}


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a file away")
def test_the_file_is_its_owners_and_nobody_elses(tmp_path: Path) -> None:
    booked(tmp_path, owner="daemon")
    there = (tmp_path / "bookings" / NAME / "saved").stat()
    assert there.st_uid == pwd.getpwnam("daemon").pw_uid
    assert there.st_mode & 0o777 == 0o600
    assert (tmp_path / "bookings" / NAME).stat().st_uid == os.getuid()
