"""How long the portal vouches for work that it may begin anew elsewhere.

A lease is counted from the moment at which the heartbeat that it answers was made, on the clock
that never jumps. The portal counts from when it heard that heartbeat, which is later, and waits
longer: so what runs here has ended before it begins anywhere else.
"""

import dataclasses
import json
import logging
from collections.abc import Iterable, Mapping

from allocation import wire
from allocation.agent.act.apply import Outcome
from allocation.agent.plan.reconcile import GpuTarget, Record, State
from allocation.agent.state.documents import Keys
from allocation.agent.state.store import Store

log = logging.getLogger(__name__)

MARGIN_S = 3.0
_REMEMBERED = 16


class Leases:
    """The node's lease. It is written down, so that an agent that was killed and started again
    ends what it may no longer run; only for this boot, as no program outlives another one."""

    def __init__(self, keys: Keys, store: Store, *, boot: str) -> None:
        self._keys = keys
        self._store = store
        self._boot = boot
        self._path = store.folder / "lease.json"
        self._sent: dict[int, float] = {}
        self._until = self._load()

    def sent(self, seq: int, steady_now: float) -> None:
        """The heartbeat of this number is being sent."""
        latest = sorted({**self._sent, seq: steady_now}.items())[-_REMEMBERED:]
        self._sent = dict(latest)

    def read(self, raw: bytes, steady_now: float) -> bool:
        """Takes what the portal answered; what proves nothing is left alone. Returns whether there
        is a lease now, and was none before."""
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
        """Whether what has a lease may run now."""
        return steady_now < self._until - MARGIN_S

    def remaining(self, steady_now: float) -> int:
        """For how many seconds the portal still vouches; 0 without a lease."""
        return max(0, int(self._until - steady_now))

    def expires_at(self, held: Mapping[str, Record]) -> float | None:
        """When, on the steady clock, something has to be ended unless the lease is renewed."""
        return self._until - MARGIN_S if any(map(_runs_on_lease, held.values())) else None

    def fence(self, held: Mapping[str, Record], steady_now: float) -> dict[str, Record]:
        """The records, with what has outlived its lease marked as never to run again."""
        if self.is_valid(steady_now):
            return dict(held)
        return {
            name: dataclasses.replace(record, fenced=True) if _runs_on_lease(record) else record
            for name, record in held.items()
        }

    def without_leased(self, targets: list[GpuTarget], steady_now: float) -> list[GpuTarget]:
        """Without a lease nothing that needs one begins."""
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
        # Not synced to disk: after a crash of the machine nothing runs that it could be about.
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps({"boot": self._boot, "until": self._until}))
            fresh.replace(self._path)
        except OSError as error:
            log.warning("%s can't be written: %s", self._path, error)


def lapsed_mark_failed(outcomes: Iterable[Outcome], lapsed: set[str]) -> None:
    """What is gone because its lease ran out, though the document wants it, is said to have failed:
    the portal must know that it is over here."""
    for outcome in outcomes:
        for name in lapsed & outcome.states.keys():
            if outcome.states[name].state == "empty":
                outcome.states[name] = State("failed", error=wire.LEASE_EXPIRED)


def lapsed_of(desired: wire.Desired | None, held: Mapping[str, Record], now: float) -> set[str]:
    """What the document wants to run now (Unix seconds), and never will here."""
    if desired is None:
        return set()
    wanted = (a for g in desired.gpus for a in g.allocations if a.state == "run" and now < a.ends)
    return {a.id for a in wanted if a.id in held and held[a.id].fenced}


def _runs_on_lease(record: Record) -> bool:
    return record.allocation.lease and record.given and not (record.emptied or record.fenced)
