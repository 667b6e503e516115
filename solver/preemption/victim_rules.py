"""Which bookings may be victims of a start, and in which order: rules only, no look at room.

A claim inside its guarantee takes what others borrow and what is lower or later in its own tenant.
A borrowed claim takes spot, lower borrowed work of its own tenant, and the borrowed work of who
borrows more. Each rule raises the potential (`rises`), so no chain of pauses returns to its start.

The potential is of the work in place on one class, in lexicographic order: the units inside
guarantees, level by level, the own parts of projects first; then the tenants' shares of what is
borrowed, level by level, the smallest first; then the shares of spot. No set of work in place, up
to its potential, comes back before something happens from outside.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, total_ordering
from itertools import count
from operator import itemgetter
from typing import Literal

from solver.model.demand import Demand
from solver.model.inputs import MILLION, Snapshot
from solver.model.leaving import Cooling
from solver.model.policy import VICTIM_RULES
from solver.preemption.in_place import PARTS, Block, InPlace, Level, Part, Standing
from solver.preemption.leaving import Departures, Leaving
from solver.quota.use import Use
from solver.state.cycle_state import CycleState
from solver.state.running import RunningBooking


@total_ordering
@dataclass(frozen=True, slots=True)
class Share:
    """Borrowed units by weight, compared exactly. Without a weight it is above any other; those
    are ordered by their units."""

    units: int
    weight: int

    def __lt__(self, other: "Share") -> bool:
        """Whether this share is smaller."""
        if not self.units or not other.units:
            return self.units < other.units
        if not self.weight or not other.weight:
            return (not self.weight, self.units) < (not other.weight, other.units)
        return self.units * other.weight < other.units * self.weight

    def __eq__(self, other: object) -> bool:
        """Whether neither is smaller."""
        return isinstance(other, Share) and not (self < other or other < self)

    def __hash__(self) -> int:
        """Refuse to hash: equal shares have different fields."""
        raise TypeError


@dataclass(frozen=True, slots=True)
class Change:
    """A tenant's standing on the class before and after a pause, and the weight of its row (None:
    it has no row)."""

    before: Standing
    after: Standing
    weight: int | None


def rises(changes: Iterable[Change]) -> bool:
    """True when the potential is strictly greater afterwards. Other tenants stay as they are: what
    is equal on both sides decides no lexicographic comparison of sorted values."""
    rows = list(changes)
    levels = sorted(
        {block.level for row in rows for block in (*row.before.blocks, *row.after.blocks) if block.counts},
        reverse=True,
    )
    for level in levels:
        for part in PARTS:
            more = sum(_inside(r.after, level, part) for r in rows)
            more -= sum(_inside(r.before, level, part) for r in rows)
            if more:
                return more > 0
    weighed = [row for row in rows if row.weight is not None]
    for level in levels:
        before = sorted(Share(r.before.borrowed(level), r.weight or 0) for r in weighed)
        after = sorted(Share(r.after.borrowed(level), r.weight or 0) for r in weighed)
        if before != after:
            return before < after
    return sorted(Share(r.before.spot(), r.weight or 0) for r in weighed) < sorted(
        Share(r.after.spot(), r.weight or 0) for r in weighed
    )


def _inside(standing: Standing, level: Level, part: Part) -> int:
    return sum(
        standing.blocks[at].use.units
        for at, its in standing.inside.items()
        if its == part and standing.blocks[at].level == level
    )


Rule = Literal["taken_back", "own_part", "higher_tier", "fairer_share"]
Group = tuple[int, int, int]
"""Spot first, the own tenant last; then the tenant most above its part; then the lower tier."""
_SPOT, _OTHERS, _OWN = range(3)
_BY_WEIGHT = 1_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible victim and the rule that allows it; lower `group`s are paused first."""

    runner: RunningBooking
    rule: Rule
    group: Group


@dataclass(frozen=True, slots=True)
class Claim:
    """A start that asks for victims; without a `part` of a guarantee it is borrowed."""

    block: Block
    starts: int
    planned: bool
    before: Standing
    after: Standing
    part: Part | None

    @property
    def tenant(self) -> str:
        """Its tenant."""
        return self.block.use.owners[0]

    @property
    def gpu_class(self) -> str:
        """Its class."""
        return self.block.use.gpu_class

    @property
    def level(self) -> Level:
        """Its level."""
        return self.block.level


Ranked = tuple[tuple[Group, int, int, int, str], Candidate]
"""With its place in the order: group, least lost work, latest grant, id."""


_Afters = dict[tuple[int, Use], tuple[Standing, Standing, Part | None]]
"""By the identity of a standing, which is kept alive here, and use: the standing with a claim, and
its part, as of a version of what the tenant has in place."""


@dataclass(slots=True)
class _Found:
    """Who may leave for a claim, and the `candidates` in order, as of that `serial`."""

    claim: Claim
    leaving: Leaving[Ranked]
    serial: int = -1
    candidates: tuple[Candidate, ...] = ()


class _Kept:
    """Bookings that stay although a limit was cut: nobody under that limit has them paused, because only
    new work is limited by it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._owners: dict[tuple[str, str], set[str]] = {}
        for each in snapshot.overrides:
            if each.keeps:
                self._owners.setdefault((each.booking, each.gpu_class), set()).add(each.owner)
        self._labs = {
            (project, lab.gpu_class): lab.owner for lab in snapshot.labs for project in lab.projects
        }

        self._safe = {
            (each.booking, each.gpu_class, each.owner)
            for each in snapshot.overrides
            if each.keeps and each.guarantee
        }
        self._inside = {row[:2] for row in self._safe}

    def stays_for_others(self, use: Use) -> bool:
        """Whether no other tenant has a use paused, because its tenant's guarantee was cut and it stays.
        A cut of a project's, which the tenant sets itself, changes nothing for others."""
        return bool(self._safe) and (use.owners[-1], use.gpu_class, use.owners[0]) in self._safe

    def stays(self, use: Use, claim: Use) -> bool:
        """Whether a use stays whatever this claim of its own tenant needs."""
        owners = self._owners.get((use.owners[-1], use.gpu_class)) if self._owners else None
        if not owners:
            return False
        if (use.owners[-1], use.gpu_class) in self._inside:
            return True
        lab = self._labs.get((claim.owners[1], claim.gpu_class), "")
        return not owners.isdisjoint((*claim.owners, lab))


class VictimRules:
    """The rules of one cycle; decisions of the cycle count."""

    def __init__(self, state: CycleState, snapshot: Snapshot) -> None:
        self._state = state
        self._kept = _Kept(snapshot)
        self.in_place = InPlace(state, snapshot)
        self.departures = Departures(state, snapshot, self.in_place)
        self._known: dict[tuple[str, str, int, bool], tuple[int, list[Ranked]]] = {}
        self._cooling: dict[str, list[Cooling]] = {}
        for each in snapshot.cooling:
            self._cooling.setdefault(each.tenant, []).append(each)
        # By units, owners, tier, class and start, while the tenant has the same in place.
        self._claims: dict[tuple[Use, int], tuple[int, Claim | None]] = {}
        self._afters: dict[tuple[str, str], tuple[int, _Afters]] = {}
        # By claim, while everybody has the same in place.
        self._found: dict[int, _Found] = {}
        self._serials = count()
        self._may_leave: dict[tuple[str, str, int], Leaving[RunningBooking]] = {}

    def claim(self, demand: Demand, starts: int) -> Claim | None:
        """The claim of a start at that second; None: nobody is paused for it.

        Nobody is for a tier that does not count, nor for owners without a limit, nor for a person
        whose cancelled claim others had notice for.
        """
        return None if starts < self.claims_from(demand) else self._claim_of(demand, starts)

    def _claim_of(self, demand: Demand, starts: int) -> Claim | None:
        use = self._state.use(demand)
        version = self._state.running.version(use.owners[0], use.gpu_class)
        known = self._claims.get((use, starts))
        if known is None or known[0] != version:
            claim = self._claim(use, (starts, starts + demand.duration))
            before = self._found.pop(id(known[1]), None) if known is not None else None
            if claim is not None and before is not None:
                self._note_found(claim, before.leaving)
            known = self._claims[use, starts] = (version, claim)
        return known[1]

    def has_guarantee(self, demand: Demand, starts: int) -> bool:
        """True when the tenant is guaranteed as much as a demand needs, whatever its own work uses of it."""
        rows, at = map(self._state.use, demand.parts), self.in_place.guaranteed_at
        return all(use.units <= at(use.owners[0], use.gpu_class, starts) for use in rows)

    def may_claim(self, demand: Demand) -> bool:
        """False when nobody is ever paused for the demand."""
        return self._is_claimant(self._state.use(demand))

    def claims_from(self, demand: Demand) -> int:
        """The first second for which somebody may be paused for the person of a demand; 0: any."""
        rests = self._cooling.get(demand.owners[0], ())
        found = (each for each in rests if each.covers(demand.owner, demand.gpu_class))
        return max((each.until for each in found), default=0)

    def would_claim(self, demand: Demand, starts: int) -> bool:
        """True when somebody could be paused for a start then but for `claims_from`."""
        claim = self._claim_of(demand, starts)
        return claim is not None and bool(self.candidates(claim))

    def _is_claimant(self, use: Use) -> bool:
        quota = self._state.quota
        return quota.tier(use.tier).counts and quota.has_limit(use)

    def _claim(self, use: Use, window: tuple[int, int]) -> Claim | None:
        starts = window[0]
        if not self._is_claimant(use):
            return None
        tenant, name = use.owners[0], use.gpu_class
        planned = not self.departures.is_due(name, starts)
        before = self.in_place.at(tenant, name, starts, planned=planned)
        block = self.in_place.claim(use, window)
        # At most instants the tenant has the same in place.
        version, afters = self._afters.get((tenant, name), (-1, {}))
        now = self._state.running.version(tenant, name)
        if version != now:
            self._afters[tenant, name] = (now, afters := {})
        known = afters.get((id(before), use))
        if known is None:
            after = self.in_place.changed(before, (), block)
            known = afters[id(before), use] = (before, after, after.part(block))
        return Claim(block, starts, planned, *known)

    def candidates(self, claim: Claim) -> tuple[Candidate, ...]:
        """All that could be a victim of the claim, the first to be paused first."""
        found = self.leaving(claim)
        known = self._found[id(claim)]
        if known.serial != found.serial:
            known.serial = found.serial
            known.candidates = tuple(each for _, each in sorted(found.rows(), key=itemgetter(0)))
        return known.candidates

    def leaving(self, claim: Claim) -> Leaving[Ranked]:
        """All that could be a victim of the claim, in no order."""
        known = self._found.get(id(claim))
        if known is None or known.claim is not claim:
            known = self._note_found(claim, None)
        known.leaving.refresh(self._state.running, claim.gpu_class)
        return known.leaving

    def _note_found(self, claim: Claim, before: Leaving[Ranked] | None) -> _Found:
        read = partial(self._rows, claim)
        found = self._found[id(claim)] = _Found(claim, Leaving(read, self._serials, before))
        return found

    def may_leave(self, gpu_class: str, tenant: str, starts: int) -> Leaving[RunningBooking]:
        """Everybody who can be a candidate for some claim of the tenant at that second."""
        key = (gpu_class, tenant, starts)
        if key not in self._may_leave:
            planned = not self.departures.is_due(gpu_class, starts)
            read = partial(self._may_leave_of, key, planned=planned)
            self._may_leave[key] = Leaving(read, self._serials)
        found = self._may_leave[key]
        found.refresh(self._state.running, gpu_class)
        return found

    def _may_leave_of(self, key: tuple[str, str, int], other: str, *, planned: bool) -> list[RunningBooking]:
        gpu_class, tenant, starts = key
        if other == tenant:
            return list(self.departures.able(gpu_class, tenant, starts))
        return self.departures.borrowers(gpu_class, other, starts, planned=planned)

    def _rows(self, claim: Claim, tenant: str) -> Sequence[Ranked]:
        """What one tenant may lose to the claim."""
        own = tenant == claim.tenant
        rows = list(self._own(claim)) if own else self._of_others(claim, tenant)
        rules = self._state.policy.of(claim.gpu_class, tenant).victim_rules
        return rows if len(rules) == len(VICTIM_RULES) else [row for row in rows if row[1].rule in rules]

    def within_shares(self, claim: Claim, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The first candidates that may leave all together: of those paused for a fairer share only
        as many as leave their tenant no poorer than the claimant, and no larger than the claim."""
        left, taken = claim.block.use.units, dict[str, int]()
        found = []
        for each in candidates:
            units, tenant = each.runner.use.units, each.runner.tenant
            if each.rule == "fairer_share":
                gone = taken.get(tenant, 0) + self._at_level(claim, each.runner)
                if units > left or not self._is_poorer(claim, tenant, gone):
                    continue
                left -= units
                taken[tenant] = gone
            found.append(each)
        return found

    def allow(self, claim: Claim, chosen: Sequence[Candidate]) -> bool:
        """True when the rules for the whole set of victims hold."""
        return len(self.within_shares(claim, chosen)) == len(chosen)

    def raise_potential(self, claim: Claim, chosen: Iterable[Candidate]) -> bool:
        """True when the potential of the class rises if these leave and the claim starts."""
        gone: dict[str, set[str]] = {claim.tenant: set()}
        for each in chosen:
            gone.setdefault(each.runner.tenant, set()).add(each.runner.booking)
        return rises(self._change(claim, tenant, names) for tenant, names in gone.items())

    def _change(self, claim: Claim, tenant: str, gone: set[str]) -> Change:
        own = tenant == claim.tenant
        before = claim.before if own else self._standing(claim, tenant)
        block = claim.block if own else None
        after = self.in_place.changed(before, gone, block)
        return Change(before, after, self.in_place.weights.get((tenant, claim.gpu_class)))

    def _own(self, claim: Claim) -> Iterator[Ranked]:
        """Bookings of the claim's own tenant that may leave for it."""
        parts = claim.before.parts
        for runner in self.departures.able(claim.gpu_class, claim.tenant, claim.starts):
            rule = self._own_rule(claim, runner, parts.get(runner.booking))
            if rule is not None and not self._kept.stays(runner.use, claim.block.use):
                spot = not runner.tier.counts
                yield _ranked(runner, rule, (_SPOT if spot else _OWN, 0, runner.tier.priority))

    def _own_rule(self, claim: Claim, runner: RunningBooking, part: Part | None) -> Rule | None:
        level, is_borrowed = _level(runner), part is None
        is_lower = level < claim.level and (claim.part is not None or is_borrowed)
        if is_lower or not runner.tier.counts:
            return "higher_tier"
        is_others = level == claim.level and claim.part == "project" and part != "project"
        return "own_part" if is_others or (is_borrowed and self._is_for_its_tier(claim, runner)) else None

    def _is_for_its_tier(self, claim: Claim, runner: RunningBooking) -> bool:
        """True for a claim inside a guarantee of which a part is for its tier, and not for that of a
        runner that borrows."""
        of_others = self.in_place.is_of_others
        return claim.part is not None and of_others(runner.use) and not of_others(claim.block.use)

    def _of_others(self, claim: Claim, tenant: str) -> list[Ranked]:
        """What another tenant borrows and may lose to the claim. What is fair later than the first
        possible notices is not known yet."""
        lent = self._lent_by(claim, tenant)
        if claim.part is not None or not lent:
            return lent
        spot = [row for row in lent if not row[1].runner.tier.counts]
        last_out = self.departures.first_outs(claim.gpu_class)[-1]
        is_richer = claim.starts <= last_out and self._is_poorer(claim, tenant, 0)
        return [*spot, *self._fairer(claim, tenant, lent)] if is_richer else spot

    def _fairer(self, claim: Claim, tenant: str, lent: Iterable[Ranked]) -> Iterator[Ranked]:
        """Those that count and after whose pause the claim's tenant borrows no more than theirs,
        both counted after it."""
        is_fair: dict[int, bool] = {}
        for key, each in lent:
            runner = each.runner
            units = runner.use.units
            if not runner.tier.counts or units > claim.block.use.units or _level(runner) > claim.level:
                continue
            gone = self._at_level(claim, runner)
            if gone not in is_fair:
                is_fair[gone] = self._is_poorer(claim, tenant, gone)
            if is_fair[gone]:
                yield key, Candidate(runner, "fairer_share", each.group)

    def _is_poorer(self, claim: Claim, tenant: str, gone: int) -> bool:
        weights, name = self.in_place.weights, claim.gpu_class
        mine = Share(claim.after.borrowed(claim.level), weights.get((claim.tenant, name), 1))
        theirs = self._standing(claim, tenant).borrowed(claim.level) - gone
        return mine <= Share(theirs, weights.get((tenant, name), 1))

    def _at_level(self, claim: Claim, runner: RunningBooking) -> int:
        """Units by which its pause lowers its tenant's share at the claim's level."""
        return runner.use.units if _level(runner) >= claim.level else 0

    def _lent_by(self, claim: Claim, tenant: str) -> list[Ranked]:
        """What one tenant borrows; cached, because many ask for the same instant."""
        name, starts, planned = claim.gpu_class, claim.starts, claim.planned
        version = self._state.running.version(tenant, name)
        known, found = self._known.get((tenant, name, starts, planned), (-1, []))
        if known != version:
            over = self._over(tenant, name, self._standing(claim, tenant))
            found = [
                _ranked(runner, "taken_back", (_group(runner), -over, runner.tier.priority))
                for runner in self.departures.borrowers(name, tenant, starts, planned=planned)
                if not self._kept.stays_for_others(runner.use)
            ]
            self._known[tenant, name, starts, planned] = (version, found)
        return found

    def _standing(self, claim: Claim, tenant: str) -> Standing:
        return self.in_place.at(tenant, claim.gpu_class, claim.starts, planned=claim.planned)

    def _over(self, tenant: str, gpu_class: str, standing: Standing) -> int:
        """Steps of the policy's `share_step` that the tenant has above its part, by its weight."""
        weight = self.in_place.weights.get((tenant, gpu_class), 1)
        parts = MILLION * _BY_WEIGHT // (weight * _BY_WEIGHT or 1)
        above = standing.borrowed() + standing.spot()
        share = above * parts // max(1, self._state.capacity[gpu_class])
        return share // self._state.policy.of(gpu_class, tenant).share_step


def _level(runner: RunningBooking) -> Level:
    return (runner.tier.priority, not runner.tier.pausable)


def _group(runner: RunningBooking) -> int:
    return _OTHERS if runner.tier.counts else _SPOT


def _ranked(runner: RunningBooking, rule: Rule, group: Group) -> Ranked:
    cycle, position = runner.granted
    key = (group, runner.lost, -cycle, -position, runner.booking)
    return (key, Candidate(runner, rule, group))
