"""Replay: a stored decision is solved again, which proves that it follows from its input alone."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from allocation.models import Decision
from allocation.services.decide.decision_log import (
    SOFTWARE,
    decision_chain,
    decision_rebuild,
    digest_of_rows,
)
from allocation.services.gc_paused import gc_paused
from allocation.services.policy.policies import policy_of
from solver import digest, digest_of, encode, solve
from solver.model.format_1 import is_format_1, is_same_meaning


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


def decision_replay(decision: Decision, chain: Sequence[Decision] = ()) -> Replay:
    """Solves the stored snapshot again, and compares snapshot and plan.

    `chain`: the rows that the decision is rebuilt from, if they are not in the database.
    """
    stored = decision_rebuild(chain or decision_chain(decision))
    with gc_paused():
        plan = solve(stored.snapshot, policy_of(decision.policy))
    again, older = encode(plan), json.loads(stored.plan_bytes)
    is_older = is_format_1(older)
    is_same = is_same_meaning(older, json.loads(again)) if is_older else again == stored.plan_bytes
    is_whole = decision.format < Decision.ROWS
    return Replay(
        snapshot_sha256=digest(stored.snapshot) if is_whole else decision.snapshot_sha256,
        plan_sha256=digest_of(again) if is_whole else digest_of_rows(plan),
        is_equal=stored.has_digests and is_same,
        software=SOFTWARE,
        comparison="meaning" if is_older else "bytes",
    )
