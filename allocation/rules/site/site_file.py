"""`site.toml`: a new site in one file. It is read strictly, and every fault names its line and
key."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, ValidationError

Key = tuple[str | int, ...]
"""The path of a value: table names, and indexes into lists from 0."""

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?")
_PAIR = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\")(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"))*)\s*=")
_SYNTAX = re.compile(r"(.*) \(at line (\d+), column \d+\)")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and its position. `line` is None for keys that are missing from the file."""

    key: str
    sentence: str
    line: int | None = None

    def text(self, name: str) -> str:
        """The fault with its position: `site.toml:14: tier[1].name: …`."""
        where = name if self.line is None else f"{name}:{self.line}"
        return f"{where}: {self.key}: {self.sentence}" if self.key else f"{where}: {self.sentence}"


class SiteFaults(Exception):
    """The file has faults."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(fault.sentence for fault in faults))
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class SiteFile:
    """A valid file: its values, and the line of each key."""

    values: Mapping[str, Any]
    lines: Mapping[Key, int]

    def fault(self, key: Key, sentence: str) -> Fault:
        """A fault at `key`, or at its nearest parent in the file."""
        return Fault(key_text(key), sentence, visible_booking(self.lines, key))


def site_read(text: str) -> SiteFile:
    """Reads the file. Raises SiteFaults with all faults."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SiteFaults([_syntax(str(error))]) from None
    lines = lines_read(text)
    found = sorted(
        _validator().iter_errors(_plain(values)),
        key=lambda error: list(map(str, error.absolute_path)),
    )
    if found:
        raise SiteFaults([_fault(error, lines) for error in found])
    return SiteFile(_plain(values), lines)


def example_read() -> str:
    """The shipped example with comments."""
    return _package_file("site.example.toml")


def key_text(key: Key) -> str:
    """The key as text: `tenant[0].admin`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def visible_booking(lines: Mapping[Key, int], key: Key) -> int | None:
    """The line of a key, or of its nearest parent."""
    for length in range(len(key), 0, -1):
        if key[:length] in lines:
            return lines[key[:length]]
    return None


def lines_read(text: str) -> dict[Key, int]:
    """The line of each table and key. Keys of inline tables have the line of the table."""
    found: dict[Key, int] = {}
    counts: dict[Key, int] = {}
    table: Key = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.fullmatch(line):
            names = _names(header[2])
            table = _entered(names[:-1], counts)
            if header[1] == "[[":
                counts[(*table, names[-1])] = counts.get((*table, names[-1]), -1) + 1
            table = _entered(names, counts)
            found[table] = number
        elif pair := _PAIR.match(line):
            found[(*table, *_names(pair[1]))] = number
    return found


def _entered(names: Sequence[str], counts: Mapping[Key, int]) -> Key:
    """The names, with the index of the latest entry after each list."""
    key: Key = ()
    for name in names:
        key = (*key, name)
        if key in counts:
            key = (*key, counts[key])
    return key


def _names(dotted: str) -> list[str]:
    return [part.strip().strip('"') for part in dotted.split(".")]


def _syntax(message: str) -> Fault:
    placed = _SYNTAX.fullmatch(message)
    return Fault("", placed[1] + ".", int(placed[2])) if placed else Fault("", message + ".")


def _fault(error: ValidationError, lines: Mapping[Key, int]) -> Fault:
    key: Key = tuple(error.absolute_path)
    sentence = f"{error.message}."
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = set(error.schema.get("properties", {}))
        strange = sorted(set(error.instance) - known)
        key = (*key, strange[0])
        sentence = f"There is no such key. Allowed keys: {', '.join(sorted(known))}."
    elif error.validator == "required":
        sentence = f"{error.message.partition(' ')[0]} is required."
    return Fault(key_text(key), sentence, visible_booking(lines, key))


def _plain(value: Any) -> Any:  # noqa: ANN401 (TOML holds values of many shapes)
    """The value with TOML dates as text, as in JSON."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool) else value.isoformat()


@lru_cache(maxsize=1)
def _validator() -> Draft202012Validator:
    return Draft202012Validator(
        json.loads(_package_file("site.schema.json")),
        format_checker=Draft202012Validator.FORMAT_CHECKER,
    )


def _package_file(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")
