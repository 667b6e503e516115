"""`gpu-agent unit`: prints the systemd unit of the agent, or another file that comes with it.

Exit status: 0 when it was printed, 2 for a wrong call.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

AGENT = "gpu-agent.service"
SLICES = ("gpu-booking-.slice.conf", "gpu-booking-session", "user-.slice.conf")
"""What a node with --device-permissions slice needs: defaults of slices, and the step of logins."""
_INSTALLED = "/opt/gpu-agent"
# ProtectHome and PrivateTmp of the units.
_HIDDEN = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))  # noqa: S108


def main(arguments: Sequence[str]) -> int:
    """Prints to standard output."""
    parser = argparse.ArgumentParser(
        prog="gpu-agent unit", description="Print a systemd unit, to be saved under its name."
    )
    parser.add_argument("name", nargs="?", default=AGENT, choices=(*units(), *SLICES), help="which one")
    parser.add_argument(
        "--environment",
        type=Path,
        default=Path(sys.prefix),
        metavar="DIR",
        help="the virtual environment with the agent (default: this one)",
    )
    options = parser.parse_args(arguments)
    sys.stdout.write(unit_text(options.name, options.environment))
    for path in hidden((options.environment, Path(sys.executable).resolve())):
        sys.stderr.write(
            f"warning: the unit can't see {path}. Make the environment with a Python of the"
            f" system, as /usr/bin/python3 -m venv {_INSTALLED}\n"
        )
    return 0


def hidden(paths: Iterable[Path]) -> list[Path]:
    """Returns those that systemd hides from the unit."""
    return [path for path in paths if any(path.is_relative_to(each) for each in _HIDDEN)]


def units() -> list[str]:
    """Returns the names of the files."""
    return sorted(path.name for path in _folder().iterdir() if path.name.endswith(".service"))


def unit_text(name: str, environment: Path) -> str:
    """Returns the unit for an agent that is installed in this virtual environment."""
    text = (_folder() / name).read_text(encoding="utf-8")
    return text.replace(f"{_INSTALLED}/bin/", f"{environment}/bin/")


def _folder() -> resources.abc.Traversable:
    return resources.files("agent") / "units"
