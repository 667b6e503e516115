"""Two web processes of one address: the second serves when the first was killed."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from devtools.launch.embedded import free_port, http_answers
from devtools.launch.processes import start, stop
from tests.servers.live import web_program
from tests.servers.servers import Servers
from tests.servers.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.turn]


def waits(pid: int) -> bool:
    """Whether the kernel has the process waiting for a file that another one holds."""
    lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return any("->" in line and str(pid) in line.split() for line in lines)


def test_a_spare_web_serves_as_soon_as_the_other_was_killed(
    real_db: Servers, valkey_url: str, tmp_path: Path
) -> None:
    port = free_port()
    plain = web_program(real_db, port)
    program = replace(plain, command=(*plain.command, "--lock", str(tmp_path / "web.lock")))
    spare = replace(program, name="spare", is_ready=None)
    answers: Callable[[], bool] = lambda: http_answers(port, "/healthz")  # noqa: E731
    with ExitStack() as running:
        processes = []
        for each in (program, spare):
            processes.append(start(each))
            running.callback(stop, processes[-1], each)
        first, second = processes
        wait_until(lambda: waits(second.pid), seconds=60)
        assert answers()
        first.kill()
        first.wait()
        wait_until(answers, seconds=20)
        assert second.poll() is None
        # Who comes back waits in turn, and takes nothing from the one that serves.
        again = start(spare)
        running.callback(stop, again, spare)
        wait_until(lambda: waits(again.pid), seconds=60)
        assert answers()
