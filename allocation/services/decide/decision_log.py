"""The record of decisions: whole documents now and then, and between them what changed.

A keyframe has the whole snapshot and plan. Each later decision has what differs from the decision
before it. All are compressed; a delta with a dictionary that is made of its keyframe.
"""

import json
import platform
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from heapq import nsmallest

import numpy as np
from django.conf import settings
from django.db.models import Q

from allocation.models import Decision, PolicyVersion
from solver import Plan, Snapshot, decode, digest, encode
from solver.model.codec import plain_of
from solver.model.rows import (
    Rows,
    RowsDigest,
    advance,
    delta_decode,
    delta_encode,
    difference,
    document_of,
    is_in_order,
    rows_of,
    sort_key,
)
from tenants.platform.database.compiled import Compiled

SOFTWARE = f"commit {settings.CODE_COMMIT}, numpy {np.__version__}, Python {platform.python_version()}"
KEYFRAME_EVERY = timedelta(days=1)
# zlib looks back this far.
_WINDOW = 32_768
# Sections whose ids and names come back in deltas, and how many rows of each: the most useful last.
_SNAPSHOT_SAMPLE = {"used": 40, "held": 8, "running": 4, "requests": 8, "limits": 60}
_PLAN_SAMPLE = {"claims": 2, "borrows": 4, "refusals": 2, "assigns": 4, "waits": 8}


_newest = Compiled(
    lambda _now, _keys: (
        Decision.objects.order_by("-id")
        .filter(archived_in="")
        .values_list("id", "snapshot_sha256", "plan_sha256")[:1]
    )
)


@dataclass(frozen=True, slots=True)
class Stored:
    """What a decision was made of, and the bytes of its plan as they were stored."""

    snapshot: Snapshot
    plan_bytes: bytes
    has_digests: bool


@dataclass(frozen=True, slots=True)
class _State:
    """Both documents of a decision as rows, with their digests."""

    snapshot: Rows
    plan: Rows
    snapshot_digest: RowsDigest
    plan_digest: RowsDigest

    @classmethod
    def of(cls, snapshot: Rows, plan: Rows) -> "_State":
        return cls(snapshot, plan, RowsDigest.of(snapshot), RowsDigest.of(plan))


@dataclass(frozen=True, slots=True)
class _Base:
    """The decision that the next delta is relative to, and the bytes since its keyframe."""

    decision: int
    keyframe: int
    keyframe_at: datetime
    keyframe_bytes: int
    delta_bytes: int
    dictionary: bytes
    state: _State


class DecisionLog:
    """Makes the records of the decisions of one process.

    The base of a delta is the newest decision in the database; a process that has not written it,
    because it has just started or another one has led since, writes a keyframe.
    """

    def __init__(self) -> None:
        """Begins without a base: the first decision is a keyframe."""
        self._base: _Base | None = None
        self._made: tuple[_State, _Base | None] | None = None

    def forget(self) -> None:
        """Makes the next decision a keyframe."""
        self._base = None

    def record(
        self,
        snapshot: Snapshot,
        plan: Plan,
        policy: PolicyVersion,
        now: datetime,
        rows_known: Rows | None = None,
    ) -> Decision:
        """Returns the record of a decision, not saved. `rows_known` are the snapshot's."""
        rows = rows_known or rows_of(snapshot), rows_of(plan)
        base = self._base if self._is_base(now) else None
        if base is not None:
            made = self._delta(base, rows, plan, policy, now)
            # A delta that is as long as a keyframe is of no use.
            if len(made.snapshot) + len(made.plan) < base.keyframe_bytes:
                return made
        state = _State.of(*rows)
        self._made = state, None
        return _decision(
            state,
            plan,
            policy,
            now,
            snapshot=zlib.compress(encode(snapshot), 6),
            plan_bytes=zlib.compress(encode(plan), 6),
        )

    def written(self, decision: Decision) -> None:
        """Makes the last record, which is in the database now, the base of the next one."""
        if self._made is None:
            return
        (state, base), self._made = self._made, None
        size = len(decision.snapshot) + len(decision.plan)
        if base is None:
            dictionary = dictionary_of(state.snapshot, state.plan)
            self._base = _Base(decision.id, decision.id, decision.at, size, 0, dictionary, state)
            return
        self._base = _Base(
            decision.id,
            base.keyframe,
            base.keyframe_at,
            base.keyframe_bytes,
            base.delta_bytes + size,
            base.dictionary,
            state,
        )

    def _is_base(self, now: datetime) -> bool:
        base = self._base
        if base is None or now - base.keyframe_at >= KEYFRAME_EVERY:
            return False
        if base.delta_bytes > base.keyframe_bytes:
            return False
        digests = base.state.snapshot_digest.hex(), base.state.plan_digest.hex()
        return _newest(now) == [(base.decision, *digests)]

    def _delta(
        self,
        base: _Base,
        rows: tuple[Rows, Rows],
        plan: Plan,
        policy: PolicyVersion,
        now: datetime,
    ) -> Decision:
        before = base.state
        changes = difference(before.snapshot, rows[0]), difference(before.plan, rows[1])
        state = _State(*rows, before.snapshot_digest.after(changes[0]), before.plan_digest.after(changes[1]))
        self._made = state, base
        plan_bytes = delta_encode(before.plan, changes[1]) if is_in_order(rows[1]) else encode(plan)
        made = _decision(
            state,
            plan,
            policy,
            now,
            snapshot=_packed(delta_encode(before.snapshot, changes[0]), base.dictionary),
            plan_bytes=_packed(plan_bytes, base.dictionary),
        )
        made.keyframe_id, made.base_id = base.keyframe, base.decision
        return made


decision_log = DecisionLog()


def decision_chain(decision: Decision) -> list[Decision]:
    """Returns the rows that a decision is rebuilt from, in order; the last is itself."""
    if decision.keyframe_id is None:
        return [decision]
    group = Q(id=decision.keyframe_id) | Q(keyframe=decision.keyframe_id)
    rows = Decision.objects.filter(group, id__lte=decision.id).order_by("id")
    return list(rows)


def decision_rebuild(chain: Sequence[Decision]) -> Stored:
    """Returns the documents of the last decision of a chain.

    Raises:
        ValueError, LookupError, zlib.error: the stored bytes are not what was written.
    """
    first, decision = chain[0], chain[-1]
    snapshot = decode(Snapshot, zlib.decompress(first.snapshot))
    plan_bytes = zlib.decompress(first.plan)
    if decision.format < Decision.ROWS:
        return Stored(snapshot, plan_bytes, has_digests=digest(snapshot) == decision.snapshot_sha256)
    plan = decode(Plan, plan_bytes)
    rows = rows_of(snapshot), rows_of(plan)
    dictionary = dictionary_of(*rows)
    for each in chain[1:]:
        rows, plan_bytes = _advanced(rows, each, dictionary)
    state = _State.of(*rows)
    found = state.snapshot_digest.hex(), state.plan_digest.hex()
    return Stored(
        document_of(Snapshot, rows[0]),
        plan_bytes or encode(document_of(Plan, rows[1])),
        has_digests=found == (decision.snapshot_sha256, decision.plan_sha256),
    )


def digest_of_rows(document: Snapshot | Plan) -> str:
    """Returns the digest of a document by rows, as a decision stores it."""
    return RowsDigest.of(rows_of(document)).hex()


def plan_counts(plan: Plan) -> dict[str, int]:
    """Returns how many rows each part of a plan has; parts without rows are left out."""
    parts = {each.name: getattr(plan, each.name) for each in fields(plan)}
    return {name: len(rows) for name, rows in parts.items() if isinstance(rows, tuple) and rows}


def decision_counts(decision: Decision) -> dict[str, int]:
    """Returns `plan_counts` of a decision's plan. ValueError, zlib.error: its bytes are unknown."""
    if decision.format == Decision.ROWS:
        found: dict[str, int] = decision.counts
        return found
    return plan_counts(decode(Plan, zlib.decompress(decision.plan)))


def dictionary_of(snapshot: Rows, plan: Rows) -> bytes:
    """Returns the dictionary of a keyframe's deltas: ids and words that are likely to come back."""
    samples = [
        [plain_of(table[key]) for key in nsmallest(most, table, key=sort_key)]
        for rows, sample in ((plan, _PLAN_SAMPLE), (snapshot, _SNAPSHOT_SAMPLE))
        for name, most in sample.items()
        for table in [rows.tables[name]]
    ]
    return json.dumps(samples, sort_keys=True, separators=(",", ":")).encode()[-_WINDOW:]


def _advanced(
    rows: tuple[Rows, Rows], decision: Decision, dictionary: bytes
) -> tuple[tuple[Rows, Rows], bytes]:
    """The rows after a delta, and the plan's bytes if they were stored whole."""
    before, plan_before = rows
    data = _unpacked(decision.snapshot, dictionary)
    after = advance(before, delta_decode(Snapshot, before, data))
    data = _unpacked(decision.plan, dictionary)
    if "head" not in json.loads(data):
        return (after, rows_of(decode(Plan, data))), data
    return (after, advance(plan_before, delta_decode(Plan, plan_before, data))), b""


def _decision(
    state: _State,
    plan: Plan,
    policy: PolicyVersion,
    now: datetime,
    *,
    snapshot: bytes,
    plan_bytes: bytes,
) -> Decision:
    return Decision(
        at=now,
        policy=policy,
        format=Decision.ROWS,
        snapshot=snapshot,
        snapshot_sha256=state.snapshot_digest.hex(),
        plan=plan_bytes,
        plan_sha256=state.plan_digest.hex(),
        counts=plan_counts(plan),
        software=SOFTWARE,
        solve_ms=0,
        leader_term=0,
    )


def _packed(data: bytes, dictionary: bytes) -> bytes:
    packer = zlib.compressobj(9, zdict=dictionary)
    return packer.compress(data) + packer.flush()


def _unpacked(data: bytes | memoryview, dictionary: bytes) -> bytes:
    return zlib.decompressobj(zdict=dictionary).decompress(data)
