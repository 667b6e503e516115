"""A golden: what the solver was given and what it answered, as files that a diff can show.

`NAME.snapshot.gz` has the canonical bytes of the snapshot. `NAME.json` has the policy, the question
of a quote, and the answer, one statement a line. Nothing in them names a module of the solver.
"""

import dataclasses
import difflib
import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from solver import (
    Ask,
    Availability,
    Plan,
    Policy,
    QuoteRequest,
    Snapshot,
    decode,
    encode,
    solve,
)
from solver.cycle.compaction import propose

FOLDER = Path(__file__).parent / "data"
WIDTH = 100
Kind = Literal["plan", "quote", "proposals"]


@dataclass(frozen=True)
class Golden:
    """One stored input with its answer. Only a quote has a `question`."""

    name: str
    kind: Kind
    about: str
    snapshot: bytes
    policy: Policy
    answer: Any
    question: QuoteRequest | None = None

    @cached_property
    def site(self) -> Snapshot:
        """The snapshot, decoded."""
        return decode(Snapshot, self.snapshot)

    @cached_property
    def plan(self) -> Plan | None:
        """The stored plan, decoded; None for a quote or for proposals."""
        return decode(Plan, canonical(self.answer)) if self.kind == "plan" else None

    def solved(self) -> Any:  # noqa: ANN401  JSON
        """The answer that the solver gives now, as JSON values."""
        if self.kind == "plan":
            return json.loads(encode(solve(self.site, self.policy)))
        if self.kind == "quote":
            question = cast(QuoteRequest, self.question)
            return plain(Availability(self.site, self.policy).quote(question))
        return plain(propose(self.site, solve(self.site, self.policy), self.policy))

    def text(self) -> str:
        """The readable file."""
        document = {
            "about": self.about,
            "kind": self.kind,
            "policy": plain(self.policy),
            "question": _question_plain(self.question),
            "snapshot_sha256": hashlib.sha256(self.snapshot).hexdigest(),
            "answer_sha256": digest(self.answer),
            "answer": self.answer,
        }
        return "\n".join(_lines(document)) + "\n"

    def write(self, folder: Path = FOLDER) -> None:
        """Store both files. The same golden always has the same bytes."""
        folder.mkdir(exist_ok=True)
        packed = gzip.compress(self.snapshot, 9, mtime=0)
        (folder / f"{self.name}.snapshot.gz").write_bytes(packed)
        (folder / f"{self.name}.json").write_text(self.text(), encoding="utf-8")


def golden_read(name: str, folder: Path = FOLDER) -> Golden:
    """A stored golden. ValueError: a file was changed by hand, and its digest was not."""
    document = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    snapshot = gzip.decompress((folder / f"{name}.snapshot.gz").read_bytes())
    if hashlib.sha256(snapshot).hexdigest() != document["snapshot_sha256"]:
        raise ValueError(f"{name}: the snapshot is not the one that its digest names")
    if digest(document["answer"]) != document["answer_sha256"]:
        raise ValueError(f"{name}: the answer is not the one that its digest names")
    return Golden(
        name=name,
        kind=document["kind"],
        about=document["about"],
        snapshot=snapshot,
        policy=decode(Policy, canonical(document["policy"])),
        answer=document["answer"],
        question=_question_read(document["question"]),
    )


def names(folder: Path = FOLDER) -> list[str]:
    """All stored goldens, sorted."""
    return sorted(path.name.removesuffix(".json") for path in folder.glob("*.json"))


def canonical(value: Any) -> bytes:  # noqa: ANN401  JSON
    """The bytes of the solver's own codec: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(value: Any) -> str:  # noqa: ANN401  JSON
    """sha256 of the canonical bytes, hexadecimal. Of a plan it is the digest of its decision."""
    return hashlib.sha256(canonical(value)).hexdigest()


def difference(before: Any, after: Any, most: int = 60) -> str:  # noqa: ANN401  JSON
    """The lines that differ between two answers, as a unified diff; empty when they are equal."""
    found = list(
        difflib.unified_diff(list(_lines(before)), list(_lines(after)), "golden", "now", n=2, lineterm="")
    )
    more = [f"... and {len(found) - most} more lines"] if len(found) > most else []
    return "\n".join(found[:most] + more)


def plain(value: object) -> Any:  # noqa: ANN401  JSON
    """A record of the solver as JSON values; groups only where there are any, as in the codec."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        rows = ((row, getattr(value, row.name)) for row in dataclasses.fields(value))
        return {row.name: plain(its) for row, its in rows if row.name != "groups" or its}
    if isinstance(value, Mapping):
        return [[plain(key), plain(value[key])] for key in sorted(value)]
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if value is None or isinstance(value, int | str):
        return value
    raise TypeError(f"{type(value)} has no place in a golden")


def _question_plain(question: QuoteRequest | None) -> Any:  # noqa: ANN401  JSON
    if question is None:
        return None
    ask = json.loads(encode(cast(Any, question.ask)))
    return plain(question) | {"ask": ask}


def _question_read(document: Any) -> QuoteRequest | None:  # noqa: ANN401  JSON
    if document is None:
        return None
    mappings = {
        "rates": dict(document["rates"]),
        "lengths": dict(document["lengths"]),
        "risks": {tuple(key): risk for key, risk in document["risks"]},
    }
    ask = decode(cast(Any, Ask), canonical(document["ask"]))
    return QuoteRequest(**(document | mappings | {"ask": ask}))


def _lines(value: Any, indent: str = "", key: str = "", end: str = "") -> Iterator[str]:  # noqa: ANN401  JSON
    """JSON in short lines: what fits on one line stands on one line."""
    short = json.dumps(value, sort_keys=True)
    is_list = isinstance(value, list)
    is_short = len(indent) + len(key) + len(short) < WIDTH
    if is_short or not (is_list or isinstance(value, dict)):
        yield f"{indent}{key}{short}{end}"
        return
    parts = (
        [("", each) for each in value]
        if is_list
        else [(f"{json.dumps(name)}: ", value[name]) for name in sorted(value)]
    )
    yield f"{indent}{key}{'[' if is_list else '{'}"
    for number, (name, each) in enumerate(parts, 1):
        yield from _lines(each, indent + " ", name, "," if number < len(parts) else "")
    yield f"{indent}{']' if is_list else '}'}{end}"
