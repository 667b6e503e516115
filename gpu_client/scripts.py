"""Scripts that come with bookings: what follows `--` in `gpu book`, and `gpu script`."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from gpu_client.api import Document
from gpu_client.output import error_print, json_print, line_print
from gpu_client.problems import USAGE
from gpu_client.session import Json, Zone, clock_of, portal
from gpu_client.watching import Reference

_COMMAND = "gpu.script"


class BookCommand(TyperCommand):
    """A command whose words end at `--`; what follows is a program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 (typer has no name for it)
        """Keeps the program apart from the words."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def script_of(ctx: typer.Context) -> str | None:
    """Returns the script that came after `--`: the text of one file, or a command line."""
    words: Sequence[str] | None = ctx.meta.get(_COMMAND)
    if words is None:
        return None
    if not words:
        error_print("Say after -- what runs: a file with a script, or a command.")
        raise SystemExit(USAGE)
    file = Path(words[0])
    if len(words) > 1 or not file.is_file():
        return f"{shlex.join(words)}\n"
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        error_print(f"{file} can't be read as text: {error}")
        raise SystemExit(USAGE) from None
    if not text.strip():
        error_print(f"{file} is empty.")
        raise SystemExit(USAGE)
    return text


def script_fact(booking: Document) -> str:
    """Says how the script of a booking is."""
    found = booking.get("script")
    if not found:
        return ""
    if not found["ended_at"]:
        return f"its output is in {found['log_file']}" if found["log_file"] else "runs when it starts"
    if found["exit_code"] is None:
        return f"never ran: {found['ended']}"
    return f"ended with exit code {found['exit_code']}"


def script(
    reference: Reference,
    is_text: Annotated[
        bool, typer.Option("--text", help="Print the script itself, and nothing else.")
    ] = False,
    is_json: Json = False,
    zone: Zone = "",
) -> None:
    """Show how the script of a booking ended, and the end of its output."""
    with portal(is_json=is_json) as client:
        found = client.script(reference)
        if is_json:
            json_print(found)
            return
        if is_text:
            sys.stdout.write(found["text"])
            return
        at = f" at {clock_of(client, zone).moment(found['ended_at'])}" if found["ended_at"] else ""
    line_print(f"Script: {script_fact({'script': found})}{at}")
    if found["ended_at"] and found["log_file"]:
        line_print(f"The end of {found['log_file']}:")
    sys.stdout.write(found["log"])
