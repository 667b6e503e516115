"""The lease of a node, which protects work that the portal may restart elsewhere.

A lease starts when the heartbeat that it answers was made, on the steady clock. The portal counts
from the receipt of that heartbeat, which is later, and waits longer. So work has ended here before
it starts elsewhere.
"""

import dataclasses
import json
import logging
from collections.abc import Iterable, Mapping

import wire
from agent.act.apply import Outcome
from agent.plan.reconcile import State
from agent.plan.targets import GpuTarget, Record
from agent.state.documents import Keys
from agent.state.store import Store

log = logging.getLogger(__name__)

MARGIN_S = 3.0
_REMEMBERED = 16


class Leases:
    """The node's lease. It is on disk, so that a restarted agent ends work without a valid lease.
    It counts for one boot only, because programs do not survive a reboot."""

    def __init__(self, keys: Keys, store: Store, *, boot: str) -> None:
        self._keys = keys
        self._store = store
        self._boot = boot
        self._path = store.folder / "lease.json"
        self._sent: dict[int, float] = {}
        self._until = self._load()

    def sent(self, seq: int, steady_now: float) -> None:
        """Records the time of a heartbeat."""
        latest = sorted({**self._sent, seq: steady_now}.items())[-_REMEMBERED:]
        self._sent = dict(latest)

    def read(self, raw: bytes, steady_now: float) -> bool:
        """Reads a lease; ignores one without proof. Returns whether the lease became valid by
        it."""
        before = self.is_valid(steady_now)
        self._take(raw)
        return self.is_valid(steady_now) and not before

    def _take(self, raw: bytes) -> None:
        try:
            envelope = wire.Envelope.from_json(raw)
            lease = wire.open_lease(envelope, self._keys.identity.keys)
        except wire.WireError as error:
            log.warning("a lease was refused: %s", error)
            return
        sent = self._sent.get(lease.seq)
        ours = (self._keys.identity.node, self._store.epoch)
        if sent is None or (lease.node, lease.epoch) != ours or sent + lease.ttl <= self._until:
            return
        self._until = sent + lease.ttl
        self._save()

    def is_valid(self, steady_now: float) -> bool:
        """Returns whether leased work may run now."""
        return steady_now < self._until - MARGIN_S

    def remaining(self, steady_now: float) -> int:
        """Returns the remaining seconds of the lease; 0 without one."""
        return max(0, int(self._until - steady_now))

    def expires_at(self, held: Mapping[str, Record]) -> float | None:
        """Returns when leased work has to end without a renewal, on the steady clock."""
        return self._until - MARGIN_S if any(map(_runs_on_lease, held.values())) else None

    def fence(self, held: Mapping[str, Record], steady_now: float) -> dict[str, Record]:
        """Returns the records, with work that outlived its lease marked as fenced."""
        if self.is_valid(steady_now):
            return dict(held)
        return {
            name: dataclasses.replace(record, fenced=True) if _runs_on_lease(record) else record
            for name, record in held.items()
        }

    def without_leased(self, targets: list[GpuTarget], steady_now: float) -> list[GpuTarget]:
        """Returns the targets without leased work, unless the lease is valid."""
        if self.is_valid(steady_now):
            return targets
        return [
            dataclasses.replace(
                target,
                tasks=tuple(t for t in target.tasks if t.ending or not t.allocation.lease),
            )
            for target in targets
        ]

    def _load(self) -> float:
        try:
            data = json.loads(self._path.read_bytes())
            return float(data["until"]) if data["boot"] == self._boot else 0.0
        except FileNotFoundError:
            return 0.0
        except (OSError, ValueError, LookupError, TypeError) as error:
            log.warning("%s can't be used: %s", self._path, error)
            return 0.0

    def _save(self) -> None:
        # Not synced: after a crash of the machine no program is left.
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps({"boot": self._boot, "until": self._until}))
            fresh.replace(self._path)
        except OSError as error:
            log.warning("%s can't be written: %s", self._path, error)


def lapsed_mark_failed(outcomes: Iterable[Outcome], lapsed: set[str]) -> None:
    """Marks work that ended with its lease, and that the document still wants, as failed: the
    portal must know that it ended here."""
    for outcome in outcomes:
        for name in lapsed & outcome.states.keys():
            if outcome.states[name].state == "empty":
                outcome.states[name] = State("failed", error=wire.LEASE_EXPIRED)


def lapsed_of(desired: wire.Desired | None, held: Mapping[str, Record], now: float) -> set[str]:
    """Returns the fenced allocations that the document wants to run at `now` (Unix seconds)."""
    if desired is None:
        return set()
    wanted = (a for g in desired.gpus for a in g.allocations if a.state == "run" and now < a.ends)
    return {a.id for a in wanted if a.id in held and held[a.id].fenced}


def _runs_on_lease(record: Record) -> bool:
    return record.allocation.lease and record.given and not (record.emptied or record.fenced)
