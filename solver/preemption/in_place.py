"""Who is in place: what runs or is written to start, by tenant and class, and what is inside.

A planned start is not in place: the next cycle may plan it anew. An allocation or a notice that was
written, in an earlier cycle or so far in this one, is in place even if its second is still to come.
"""

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Literal, NamedTuple

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.model.demand import Fit, demand_on
from solver.model.inputs import Snapshot
from solver.model.limits import DatedGuarantee
from solver.quota.tier_parts import TierParts
from solver.quota.use import Use
from solver.state.cycle_state import CycleState
from solver.state.held_work import NUMBERED, Grant

Level = tuple[int, bool]
"""The tier's priority; at equal priority what is never paused comes first."""

Part = Literal["project", "tenant"]
"""Inside on the own project's part of the guarantee, or on what is left of the tenant's."""

PARTS: tuple[Part, ...] = ("project", "tenant")
_AWAITED, _THIS_CYCLE, _CLAIM = range(NUMBERED + 1, NUMBERED + 4)
"""After held rows, in the order of equals: awaited claims, this cycle's grants, claims."""


class Block(NamedTuple):
    """Units of a class that one decision gave a booking."""

    booking: str
    use: Use
    level: Level
    counts: bool
    order: tuple[int, bool, Grant]
    starts: int
    ends: int


_ORDER = attrgetter("order")
Of = tuple[str, str, int]
"""A tenant, a class and an instant."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The blocks of a tenant that are in place on a class, and which of them are inside.

    `inside` has the positions of those within the tenant's guarantee, and on which part of it.
    """

    blocks: tuple[Block, ...]
    inside: dict[int, Part]
    parts: dict[str, Part]
    """Bookings that are inside with at least one block, and on which part."""
    of: Of
    """Whose standing on which class it is, and when."""
    _borrowed: tuple[tuple[Level, int], ...] = ()
    _spot: int = 0

    def borrowed(self, level: Level | None = None) -> int:
        """Units above the guarantee, at this level and above (None: at all levels)."""
        return sum(units for each, units in self._borrowed if level is None or each >= level)

    def spot(self) -> int:
        """Units that do not count."""
        return self._spot

    def part(self, claim: Block) -> Part | None:
        """The part on which the claim is inside; None: it is borrowed."""
        return next((part for at, part in self.inside.items() if self.blocks[at] is claim), None)


@dataclass(frozen=True, slots=True)
class _Written:
    """What is written of a tenant on a class, in the order of grants, and when each begins and
    leaves. At most instants the same blocks are in place, so each set of them is judged once."""

    blocks: tuple[Block, ...]
    starts: Ints
    ends: Ints
    standings: dict[tuple[bytes, int], Standing]

    @classmethod
    def of(cls, rows: Iterable[tuple[Block, int]]) -> "_Written":
        """The blocks with the seconds at which they leave."""
        order = sorted(rows, key=_order_of)
        starts = np.array([block.starts for block, _ in order], dtype=np.int64)
        ends = np.array([ends for _, ends in order], dtype=np.int64)
        return cls(tuple(block for block, _ in order), starts, ends, {})


class InPlace:
    """All that is in place during a cycle, and who is inside a guarantee at an instant."""

    def __init__(self, state: CycleState, snapshot: Snapshot) -> None:
        self._state = state
        self.guaranteed = {(row.owner, row.gpu_class): row.guaranteed for row in snapshot.limits}
        self._dated: dict[tuple[str, str], list[DatedGuarantee]] = {}
        self._dates: dict[str, list[int]] = {}
        """By class, the seconds at which a guarantee of somebody changes."""
        for each in snapshot.guarantees:
            self._dated.setdefault((each.owner, each.gpu_class), []).append(each)
            self._dates.setdefault(each.gpu_class, []).extend((each.starts, each.ends))
        for dates in self._dates.values():
            dates.sort()
        self.weights = {
            (row.owner, row.gpu_class): row.weight for row in snapshot.limits if row.parent is None
        }
        self._tier_parts = TierParts(snapshot) if snapshot.tier_parts else None
        self._part_units = {(row.owner, row.gpu_class): row.units for row in snapshot.tier_parts}
        self._blocks: dict[tuple[str, str], list[Block]] = {}
        self._held_by: dict[str, list[tuple[str, str]]] = {}
        self._written: set[str] = set()
        self._grants: dict[tuple[str, str], list[Block]] = {}
        self._known: dict[tuple[str, str, bool], tuple[int, _Written]] = {}
        self._soon: dict[str, int] = {}
        if state.running.classes:
            for block in [*_held(state, snapshot), *_awaited(state, snapshot)]:
                key = (block.use.owners[0], block.use.gpu_class)
                self._blocks.setdefault(key, []).append(block)
                self._held_by.setdefault(block.booking, []).append(key)
            for blocks in self._blocks.values():
                blocks.sort(key=_ORDER)

    def grant(self, booking: str, found: Fit) -> None:
        """Count an allocation that is written in this cycle; one with victims counts by itself."""
        number = 0 if found.victims else self._state.running.number()
        for use in () if found.victims else self._state.uses(found.demand):
            granted = (_THIS_CYCLE, number, 0, booking)
            block = self._block(booking, use, granted, found.window)
            self._written.add(booking)
            self._grants.setdefault((use.owners[0], use.gpu_class), []).append(block)
            self._touch(booking, use)

    def has_grants(self, tenant: str, gpu_class: str) -> bool:
        """True when this cycle has written something for the tenant on the class."""
        return (tenant, gpu_class) in self._grants

    def forget_grants(self) -> None:
        """Undo all `grant`s."""
        blocks = [block for each in self._grants.values() for block in each]
        self._written.clear()
        self._grants.clear()
        for block in blocks:
            self._touch(block.booking, block.use)

    def _touch(self, booking: str, use: Use) -> None:
        """Note a change of what is written of a booking, of which held rows may count elsewhere."""
        for tenant, name in {(use.owners[0], use.gpu_class), *self._held_by.get(booking, ())}:
            self._state.running.touch(tenant, name)

    def at(self, tenant: str, gpu_class: str, instant: int, *, planned: bool) -> Standing:
        """The tenant's standing at an instant. With `planned`, planned pauses count too, not
        only those that are written.

        In place are bookings that have not left by then and are written to start by then, or
        within a notice from now. Claims of one cycle start some seconds apart: one that is judged
        at the earlier second without the later ones would look smaller than it is.
        """
        key = (tenant, gpu_class, planned)
        version = self._state.running.version(tenant, gpu_class)
        known = self._known.get(key)
        if known is None or known[0] != version:
            written = _Written.of(self._blocks_of((tenant, gpu_class), planned=planned))
            known = self._known[key] = (version, written)
        rows = known[1]
        until = max(instant, self._soon_on(gpu_class))
        there = (rows.starts <= until) & (rows.ends > instant)
        name = (there.tobytes(), bisect_right(self._dates.get(gpu_class, ()), instant))
        if name not in rows.standings:
            blocks = [rows.blocks[at] for at in np.flatnonzero(there).tolist()]
            rows.standings[name] = self._standing((tenant, gpu_class, instant), blocks)
        return rows.standings[name]

    def _guaranteed_at(self, owner: str, gpu_class: str, instant: int) -> int:
        dated = self._dated.get((owner, gpu_class), ()) if self._dated else ()
        now = (each.guaranteed for each in dated if each.starts <= instant < each.ends)
        usual = self.guaranteed.get((owner, gpu_class))
        return 0 if usual is None else next(now, usual)

    def _standing(self, of: Of, blocks: Iterable[Block]) -> Standing:
        """Who of one tenant is inside its guarantee at an instant: level by level, first what fits
        the own project's part, then what fits the tenant's guarantee; in the order of their grants,
        whole blocks only."""
        order = tuple(sorted(blocks, key=_ORDER))
        inside = self._inside(order, of)
        borrowed: dict[Level, int] = {}
        spot = 0
        for at, block in enumerate(order):
            if not block.counts:
                spot += block.use.units
            elif at not in inside:
                borrowed[block.level] = borrowed.get(block.level, 0) + block.use.units
        parts = {order[at].booking: part for at, part in inside.items()}
        return Standing(order, inside, parts, of, tuple(borrowed.items()), spot)

    def _inside(self, order: tuple[Block, ...], of: Of) -> dict[int, Part]:
        inside: dict[int, Part] = {}
        room = self._guaranteed_at(*of)
        tenant, gpu_class, instant = of
        # What work of the other tiers may have of it.
        rest = room - self._part_units.get((tenant, gpu_class), 0)
        parts = {
            project: self._guaranteed_at(project, gpu_class, instant)
            for project in {block.use.owners[1] for block in order if room}
        }
        counted = ((at, block) for at, block in enumerate(order) if block.counts)
        for _, level in groupby(counted, key=_level_of):
            rows = list(level) if room else []
            for at, block in rows if any(parts.values()) else ():
                project, units = block.use.owners[1], block.use.units
                is_other = self.is_of_others(block.use)
                if units <= min(room, parts[project], rest if is_other else room):
                    inside[at] = "project"
                    room, rest = room - units, rest - units * is_other
                    parts[project] -= units
            for at, block in rows if room else ():
                units, is_other = block.use.units, self.is_of_others(block.use)
                if units <= min(room, rest if is_other else room) and at not in inside:
                    inside[at] = "tenant"
                    room, rest = room - units, rest - units * is_other
        return inside

    def is_of_others(self, use: Use) -> bool:
        """True for work of a tier that may not use all of its tenant's guarantee."""
        parts = self._tier_parts
        return parts is not None and parts.key(use.owners[0], use.gpu_class, use.tier) is not None

    def changed(self, before: Standing, gone: Container[str], claim: Block | None) -> Standing:
        """The standing once some have left and a claim is there."""
        rest = [block for block in before.blocks if block.booking not in gone]
        return self._standing(before.of, [*rest, *([claim] if claim else [])])

    def claim(self, use: Use, window: tuple[int, int]) -> Block:
        """A claimant: it has the highest grant number."""
        return self._block("", use, (_CLAIM, 0, 0, ""), window)

    def _block(self, booking: str, use: Use, granted: Grant, window: tuple[int, int]) -> Block:
        tier = self._state.quota.tier(use.tier)
        level = (tier.priority, not tier.pausable)
        return Block(booking, use, level, tier.counts, _order(level, granted), *window)

    def _blocks_of(self, key: tuple[str, str], *, planned: bool) -> Iterator[tuple[Block, int]]:
        """What is written of a tenant on a class, and when it leaves."""
        running = self._state.running
        for block in self._blocks.get(key, ()):
            if block.booking in running:
                runner = running[block.booking]
                left = running.ends(runner)
                yield block, running.leaves(runner) if planned else min(block.ends, left)
            elif block.booking not in self._written:
                yield block, block.ends
        for block in self._grants.get(key, ()):
            yield block, block.ends
        for block in self._preemptors(*key, planned=planned):
            yield block, block.ends

    def _preemptors(self, tenant: str, gpu_class: str, *, planned: bool) -> Iterator[Block]:
        """Claims of this cycle whose victims have notice, or with `planned` will have."""
        running = self._state.running
        for number, fit in running.preemptors(tenant, gpu_class):
            if planned or all(each in running.notified for each in fit.victims):
                granted = (_THIS_CYCLE, number, 0, "")
                yield self._block("", self._state.use(fit.demand), granted, fit.window)

    def _soon_on(self, gpu_class: str) -> int:
        if gpu_class not in self._soon:
            state = self._state
            grace = max(state.running.graces(gpu_class), default=0)
            notice = grace + state.policy.notice_margin
            self._soon[gpu_class] = state.frozen_until(gpu_class) + notice
        return self._soon[gpu_class]


def _held(state: CycleState, snapshot: Snapshot) -> Iterator[Block]:
    """What earlier cycles wrote. Who has notice leaves, unless nobody needs its room any more."""
    unneeded = {each.booking: each.until for each in snapshot.unneeded}
    units: dict[tuple[Use, Grant, int, int], int] = {}
    for row in state.work.pieces:
        ends = state.free_from(unneeded.get(row.booking, row.ends))
        owners = state.quota.owners(row.quota_owners, row.owner)
        key = (Use(owners, row.tier, row.gpu_class, 0), row.granted, row.starts, ends)
        units[key] = units.get(key, 0) + row.units
    for (use, granted, starts, ends), amount in units.items():
        tier = state.quota.tier(use.tier)
        level = (tier.priority, not tier.pausable)
        whole = use._replace(units=amount)
        yield Block(granted[-1], whole, level, tier.counts, _order(level, granted), starts, ends)


def _awaited(state: CycleState, snapshot: Snapshot) -> Iterator[Block]:
    """Bookings that wait for the room of others who have notice."""
    leaving = {(row.place.gpu, row.ends) for row in snapshot.held if row.pausing}
    for request in snapshot.requests if leaving else ():
        start = request.planned
        if start is None or not any((p.gpu, start.starts) in leaving for p in start.places):
            continue
        name = state.class_of(start.places[0].gpu)
        if request.ask.groups:
            name = request.ask.classes[0]
        if name is None or name not in request.ask.classes:
            continue
        for use in state.uses(demand_on(request, name)):
            tier = state.quota.tier(use.tier)
            level = (tier.priority, not tier.pausable)
            order = _order(level, (_AWAITED, start.starts, request.submitted, request.booking))
            yield Block(request.booking, use, level, tier.counts, order, start.starts, start.ends)


def _order_of(row: tuple[Block, int]) -> tuple[int, bool, Grant]:
    return row[0].order


def _level_of(row: tuple[int, Block]) -> Level:
    return row[1].level


def _order(level: Level, granted: Grant) -> tuple[int, bool, Grant]:
    """Higher levels first, then older grants."""
    priority, never_paused = level
    return (-priority, not never_paused, granted)
