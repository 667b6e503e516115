"""The agent examines its node at its start, in a process of its own, and reports the results."""

import json
import queue
from pathlib import Path
from typing import Any

import pytest

import wire
from agent.hardware import REAL
from agent.options import options_parse
from agent.ports.link import Connected
from agent.report.examination import (
    ExaminationDone,
    Examiner,
    checks_read,
    doctor_command,
)
from devtools.simulated.platform import simulated_platform
from tests.agent.builders import KEY, KEYS, NOW, Rig

FINE = wire.CheckResult(name="driver", state="ok", seen="580.1", do="")


def examined(*command: str, limit_s: float = 5) -> tuple[wire.CheckResult, ...]:
    found: queue.SimpleQueue[ExaminationDone] = queue.SimpleQueue()
    examiner = Examiner(command, {"GPU_AGENT_TOKEN": "secret", "KEPT": "1"}, found.put, limit_s)
    examiner.start()
    return found.get(timeout=10).checks


@pytest.mark.parametrize(
    ("command", "seen"),
    [
        (("/bin/sleep", "60"), "no answer within 0 s"),
        (("/bin/echo", "no JSON"), "the result can't be read: JSONDecodeError"),
        (("/bin/echo", "[]"), "the result can't be read: TypeError"),
        (("/no/such/program",), "the result can't be read: FileNotFoundError"),
    ],
)
def test_an_examination_that_fails_says_so_and_nothing_waits_for_it(
    command: tuple[str, ...], seen: str
) -> None:
    (check,) = examined(*command, limit_s=0.1 if "sleep" in command[0] else 5)
    assert (check.name, check.state) == ("doctor", "unknown")
    assert check.seen.startswith(seen)


def test_the_token_is_not_handed_on() -> None:
    row = '{"checks": [{"name": "\'$GPU_AGENT_TOKEN$KEPT\'", "state": "ok", "seen": "", "do": ""}]}'
    (check,) = examined("/bin/sh", "-c", f"echo '{row}'")
    assert check.name == "1"


def test_what_the_portal_would_refuse_is_made_plain_before_it_is_said() -> None:
    row: dict[str, Any] = {
        "name": "open device files",
        "state": "warn",
        "seen": "a\x00b\n\u202ec" + "x" * 400,
        "do": "end\tthem",
        "seconds": 0.1,
    }
    checks = checks_read(json.loads(json.dumps({"checks": [row] * 99})))
    assert len(checks) == wire.CHECKS_MAX
    assert (checks[0].seen[:7], len(checks[0].seen)) == ("a?b ?cx", wire.LINE_MAX_LENGTH)
    assert checks[0].do == "end them"
    said = wire.Examination(at=NOW, checks=checks, seq=1)
    assert wire.open_report(wire.seal(said, key=KEY, key_version=1), KEYS) == said


def test_it_is_told_when_it_is_there_and_again_when_the_portal_may_have_lost_it(rig: Rig) -> None:
    rig.agent.handle(Connected(), rig.sent)
    assert rig.sent.messages("examination") == []
    rig.agent.handle(ExaminationDone((FINE,)), rig.sent)
    rig.wall.now += 60
    rig.agent.handle(Connected(), rig.sent)
    first, again = rig.sent.messages("examination")
    assert isinstance(first, wire.Examination)
    assert isinstance(again, wire.Examination)
    assert (first.at, first.checks) == (again.at, again.checks) == (NOW, (FINE,))
    assert again.seq > first.seq


def test_doctor_is_called_with_the_options_of_the_agent(tmp_path: Path) -> None:
    options = options_parse(["--state", str(tmp_path), "--interface", "ib0", "--token", "t"], {})
    doctor = simulated_platform("h100:2", "580").doctor
    command = doctor_command(doctor, options)
    assert command[1:] == [
        *("-m", "devtools.simulated", "doctor", "--simulate", "h100:2", "--simulate-driver", "580"),
        *("--json", "--state", str(tmp_path), "--interface", "ib0"),
    ]
    assert doctor_command(REAL.doctor, options)[1:5] == ["-m", "agent", "doctor", "--json"]
