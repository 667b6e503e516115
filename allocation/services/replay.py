"""A decision made again from what it stored: the proof that it follows from its input alone."""

import zlib
from dataclasses import dataclass

from allocation.models import Decision
from allocation.services.cycle import SOFTWARE
from allocation.services.policies import policy_of
from allocation.solver import Snapshot, decode, digest, encode, solve


@dataclass(frozen=True, slots=True)
class Replay:
    """Digests of what was read back and of the plan that was made from it."""

    snapshot_sha256: str
    plan_sha256: str
    is_equal: bool
    software: str


def decision_replay(decision: Decision) -> Replay:
    """Solves the stored snapshot again. Equal means: same snapshot, same plan, byte for byte."""
    snapshot = decode(Snapshot, zlib.decompress(decision.snapshot))
    plan = solve(snapshot, policy_of(decision.policy))
    return Replay(
        snapshot_sha256=digest(snapshot),
        plan_sha256=digest(plan),
        is_equal=digest(snapshot) == decision.snapshot_sha256
        and encode(plan) == zlib.decompress(decision.plan),
        software=SOFTWARE,
    )
