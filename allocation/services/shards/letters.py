"""What the leader sends for a shard and what a worker answers, as bytes with a digest.

Documents are the canonical bytes of the solver, compressed: what a message says is data, and is
checked like every input. An answer names the code that made it and the input that it is for.
"""

import json
import platform
import zlib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

import solver
from solver import Plan, Policy, Snapshot, decode, digest_of, encode

# A site with a million bookings is smaller. A longer answer is none.
MOST_PLAIN = 1 << 30
# Repeated names and times are most of a document, so the quickest level is enough.
_LEVEL = 1


class BadLetter(ValueError):
    """A message that this code did not make, or that is for another input."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """The policy and the snapshot of one shard, and the digest of their plain bytes."""

    data: bytes
    digest: str


def _code() -> str:
    """The digest of all sources that decide, and of the libraries that compute for them."""
    found = sha256(f"{platform.python_version()} {np.__version__}".encode())
    root = Path(solver.__path__[0])
    for path in sorted(root.rglob("*.py")):
        found.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:32]


# Read with the modules themselves, so that files which are replaced later do not change it.
CODE = _code()


def sealed(snapshot: Snapshot, policy: Policy) -> Sealed:
    """The input of a shard."""
    plain = encode(policy) + b"\n" + encode(snapshot)
    return Sealed(zlib.compress(plain, _LEVEL), digest_of(plain))


def opened(data: bytes, digest: str) -> tuple[Snapshot, Policy]:
    """Undo `sealed`. BadLetter: it is not the input with this digest."""
    plain = _plain(data)
    if digest_of(plain) != digest:
        raise BadLetter("not the input that was announced")
    policy, _, snapshot = plain.partition(b"\n")
    return decode(Snapshot, snapshot), decode(Policy, policy)


def answered(shard: int, digest: str, plan: Plan | None, code: str = CODE) -> bytes:
    """The answer to an input. Without a plan: this code may not decide it."""
    header = {"shard": shard, "input": digest, "code": code}
    body = b"" if plan is None else zlib.compress(encode(plan), _LEVEL)
    return json.dumps(header).encode() + b"\n" + body


def shard_of(answer: bytes) -> int:
    """The number of the shard that an answer is for. BadLetter: it names none."""
    return int(_header(answer)["shard"])


def plan_of(answer: bytes, digest: str) -> Plan:
    """The plan in an answer. BadLetter: other code made it, for another input, or it is damaged."""
    header = _header(answer)
    if header["code"] != CODE:
        raise BadLetter("made by another version of the code")
    if header["input"] != digest:
        raise BadLetter("an answer to another input")
    try:
        return decode(Plan, _plain(answer.partition(b"\n")[2]))
    except ValueError as error:
        raise BadLetter(f"not a plan: {error}") from error


def _header(answer: bytes) -> dict[str, int | str]:
    try:
        header = json.loads(answer.partition(b"\n")[0])
    except ValueError as error:
        raise BadLetter("no header") from error
    kinds = {"shard": int, "input": str, "code": str}
    if not isinstance(header, dict) or {n: type(each) for n, each in header.items()} != kinds:
        raise BadLetter("not the header of an answer")
    return header


def _plain(data: bytes) -> bytes:
    reader = zlib.decompressobj()
    try:
        plain = reader.decompress(data, MOST_PLAIN)
    except zlib.error as error:
        raise BadLetter("not compressed") from error
    if not reader.eof:
        raise BadLetter("cut off, or too long")
    return plain
