"""A launcher of small programs, run as a process of its own by the tests of the supervisor.

Arguments: a folder, then one Python program for each child.
"""

import sys
from pathlib import Path

from devtools.launch.processes import Program
from devtools.launch.supervisor import ProgramOutput, StopRequested, Supervisor


def main(folder: Path, codes: list[str]) -> None:
    lines = ProgramOutput(folder / "logs", is_quiet=False)
    supervisor = Supervisor(folder / "pids", lines)
    supervisor.listen()
    try:
        for number, code in enumerate(codes):
            supervisor.start([_program(folder, f"child{number}", code)])
        lines.say("launcher", "all started")
        supervisor.run()
    except StopRequested:
        lines.say("launcher", "stopped while starting")
    finally:
        supervisor.stop()
        lines.say("launcher", "all stopped")


def _program(folder: Path, name: str, code: str) -> Program:
    return Program(
        name=name,
        command=(sys.executable, "-u", "-c", code),
        environment={"FOLDER": str(folder)},
        folder=folder,
        stop_seconds=2,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
