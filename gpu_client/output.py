"""What the command prints: tables for people, the API's JSON for programs, and errors."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpu_client.config import NotSignedIn
from gpu_client.problems import NOT_ALLOWED, SERVER, PortalUnreachable, Problem

WIDTH_MOST = 100
# Columns of times, which are hard to read in two lines.
TIMES = frozenset({"Starts", "Ends"})
Row = Mapping[str, Any]
Columns = Mapping[str, Callable[[Any], str]]

_STYLES = {
    "active": "green",
    "scheduled": "cyan",
    "refused": "red",
    "failed": "red",
    "paused": "yellow",
}


def console(*, is_error: bool = False) -> Console:
    """Returns a console without colour unless it is a terminal and NO_COLOR is not set.

    `is_error` chooses standard error.
    """
    plain = Console(highlight=False, soft_wrap=False, stderr=is_error)
    width = min(plain.width, WIDTH_MOST) if plain.is_terminal else WIDTH_MOST
    return Console(highlight=False, width=width, stderr=is_error)


def json_print(document: object) -> None:
    """Prints JSON as the API sent it."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")


def line_print(text: str) -> None:
    """Prints a sentence, wrapped at the width."""
    console().print(Text(text))


def table_print(columns: Columns, rows: Sequence[Row], empty: str) -> None:
    """Prints rows as a table, or the sentence `empty`."""
    if not rows:
        line_print(empty)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name in TIMES)
    for row in rows:
        table.add_row(*(Text(value(row)) for value in columns.values()))
    console().print(table)


def facts_print(title: str, state: str, facts: Mapping[str, str]) -> None:
    """Prints a heading with a state, then names and values."""
    out = console()
    out.print(Text(title, style="bold"), Text(state, style=_STYLES.get(state, "")))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts.items():
        if value:
            grid.add_row(name, Text(value))
    out.print(grid)


def error_print(sentence: str) -> None:
    """Prints a sentence to standard error."""
    sys.stderr.write(f"{sentence}\n")


@contextmanager
def errors_shown(*, is_json: bool) -> Iterator[None]:
    """Turns errors into the API's sentences and exit statuses: SystemExit."""
    try:
        yield
    except Problem as problem:
        if is_json:
            json_print(problem.document)
        error_print(_sentences(problem))
        raise SystemExit(problem.exit_status) from None
    except NotSignedIn as error:
        error_print(str(error))
        raise SystemExit(NOT_ALLOWED) from None
    except PortalUnreachable as error:
        error_print(str(error))
        raise SystemExit(SERVER) from None


def _would_work(offer: dict[str, Any]) -> str:
    """A whole request, or what of the request would have to be different: `count 6, duration 8h`."""
    if offer.get("request"):
        return str(offer["request"])
    parts = {name: value for name, value in offer.items() if isinstance(value, str | int) and name != "name"}
    if isinstance(seconds := parts.get("duration"), int):
        minutes = seconds // 60
        parts["duration"] = f"{minutes}m" if minutes % 60 else f"{minutes // 60}h"
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in parts.items())


def _sentences(problem: Problem) -> str:
    others = problem.document.get("alternatives") or ()
    works = filter(None, (_would_work(each) for each in others if isinstance(each, dict)))
    lines = [str(problem), *(f"  Would work: {words}" for words in works)]
    if problem.document.get("status") == 401:
        lines.append("  Sign in again: gpu login")
    if problem.document.get("decision_id"):
        lines.append(f"  Decision {problem.document['decision_id']}")
    return "\n".join(lines)
