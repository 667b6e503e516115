"""Runs the commands of a tutorial, and compares what they print with what the page shows.

A block of `console` has commands after `$ `, continued after `> `, and the lines that they print. `…`
stands for any text in a line, and a line of it alone for any lines.
"""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import ROOT

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "@@ command"
LIMIT_S = 300


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the page, and what the page says that it prints."""

    command: str
    shown: str


def steps_read(text: str) -> list[Step]:
    """The commands of all blocks of a page, in order."""
    steps: list[Step] = []
    for block in _BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            more = 1
            while more < len(lines) and lines[more].startswith("> "):
                more += 1
            command = "\n".join([lines[0], *(line.removeprefix("> ") for line in lines[1:more])])
            steps.append(Step(command, "\n".join(lines[more:])))
    return steps


def steps_run(steps: list[Step], environment: Mapping[str, str], folder: Path) -> list[str]:
    """Runs all commands in one shell, from the checkout; returns what each printed.

    Raises:
        AssertionError: A command failed. The message has it with its output.
    """
    script = "".join(f"echo '{_MARK}'\n{step.command}\n" for step in steps)
    file = folder / "tutorial.sh"
    file.write_text(script, encoding="utf-8")
    done = subprocess.run(
        ["bash", "-eu", str(file)],
        cwd=ROOT,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    printed = [part.strip("\n") for part in done.stdout.split(f"{_MARK}\n")[1:]]
    assert done.returncode == 0, f"{steps[len(printed) - 1].command}\n{printed[-1]}"
    return printed


def is_shown(step: Step, printed: str) -> bool:
    """Whether the page shows what was printed; runs of spaces count as one."""
    shown = [" ".join(line.split()) for line in step.shown.splitlines()]
    pattern = "".join(
        r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in shown
    )
    text = "".join(" ".join(line.split()) + "\n" for line in printed.splitlines())
    return re.fullmatch(pattern, text) is not None
