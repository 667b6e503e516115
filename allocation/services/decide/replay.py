"""Replay: a stored decision is solved again, which proves that it follows from its input alone."""

import json
import zlib
from dataclasses import dataclass

from allocation.models import Decision
from allocation.services.decide.cycle import SOFTWARE
from allocation.services.gc_paused import gc_paused
from allocation.services.policy.policies import policy_of
from allocation.solver import Snapshot, decode, digest, digest_of, encode, solve
from allocation.solver.model.format_1 import is_format_1, is_same_meaning


@dataclass(frozen=True, slots=True)
class Replay:
    """The digests of the stored snapshot and of the plan that was made from it.

    `comparison` is "bytes", or "meaning" for a plan of format 1: the sentences in it can't be made
    again, so codes, rules, facts, times and places are compared.
    """

    snapshot_sha256: str
    plan_sha256: str
    is_equal: bool
    software: str
    comparison: str


def decision_replay(decision: Decision) -> Replay:
    """Solves the stored snapshot again, and compares snapshot and plan."""
    snapshot = decode(Snapshot, zlib.decompress(decision.snapshot))
    with gc_paused():
        again = encode(solve(snapshot, policy_of(decision.policy)))
    stored = zlib.decompress(decision.plan)
    older = json.loads(stored)
    is_same = is_same_meaning(older, json.loads(again)) if is_format_1(older) else again == stored
    return Replay(
        snapshot_sha256=digest(snapshot),
        plan_sha256=digest_of(again),
        is_equal=digest(snapshot) == decision.snapshot_sha256 and is_same,
        software=SOFTWARE,
        comparison="meaning" if is_format_1(older) else "bytes",
    )
