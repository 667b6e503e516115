"""The same demand under the rules of other schedulers, as their documentation describes them.

Slurm: multifactor priority, backfill behind one reservation, and a partition that is preempted for what
fits into a guarantee. Kueue: a cohort with reclaim, and best effort FIFO without reservations. Both see
amounts of one class and no places, so nothing is lost to fragmentation, and neither knows windows that are
booked ahead: such a booking comes when it begins. Work is saved at a pause, as it is with us.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from devtools.simulation.metrics import Rates, Result, SimulationMetrics, profiles
from solver.fleet.mig_geometry import units_of
from solver.model.inputs import UNITS_PER_GPU, Request, Snapshot, Tier

HOUR = 3_600
# A scheduler looks again after so many seconds without an event.
_AGAIN = 60


@dataclass(slots=True)
class Work:
    """A job: what it asks for and really takes, what is left of it, and since when it runs."""

    name: str
    tenant: str
    tier: Tier
    units: int
    at: int
    asked: int
    really: int
    since: int | None = None
    is_own: bool = False
    leaves_at: int | None = None

    @property
    def ends(self) -> int:
        """Returns when it ends, as its scheduler expects."""
        return (self.since or 0) + self.asked


@dataclass(slots=True)
class Pool:
    """The GPUs of a class under another scheduler, with the guarantees of tenants in the same units."""

    now: int
    units: int
    guarantees: Mapping[str, int]
    highest: int = 1
    """The highest priority of a tier."""
    exempt: int = 0
    """Seconds after a start without a pause, as Slurm has them for all."""
    waiting: list[Work] = field(default_factory=list)
    running: list[Work] = field(default_factory=list)

    @property
    def free(self) -> int:
        """Returns what nobody has."""
        return self.units - sum(work.units for work in self.running)

    @property
    def coming(self) -> int:
        """Returns what work with a notice has."""
        return sum(work.units for work in self.running if work.leaves_at is not None)

    def sure(self, tenant: str) -> int:
        """Returns the guarantee of a tenant."""
        return self.guarantees.get(tenant, 0)

    def use(self, tenant: str, *, own_only: bool) -> int:
        """Returns what a tenant has, of all its work or of that in its own partition."""
        return sum(
            work.units
            for work in self.running
            if work.tenant == tenant and work.leaves_at is None and (work.is_own or not own_only)
        )

    def start(self, work: Work, *, is_own: bool) -> None:
        """Starts waiting work."""
        self.waiting.remove(work)
        work.since, work.is_own = self.now, is_own
        self.running.append(work)

    def preempt(self, needed: int, is_victim: Callable[[Work], bool]) -> None:
        """Gives notice to the youngest victims, if that frees what is needed."""
        chosen: list[Work] = []
        for work in sorted(filter(is_victim, self.running), key=lambda each: -(each.since or 0)):
            if needed > 0 and work.leaves_at is None:
                chosen.append(work)
                needed -= work.units
        for work in chosen if needed <= 0 else ():
            work.leaves_at = self.now + work.tier.grace


Rule = Callable[[Pool], None]
Listener = Callable[[str, Work, int, int], None]
"""Is called with `started` or `left`, the work, and the time since which and at which."""


def pool_run(pool: Pool, works: Iterable[Work], rule: Rule, note: Listener, until: int) -> None:
    """Plays work that comes, starts and leaves as the rule says, to an instant."""
    arriving = sorted(works, key=lambda each: (each.at, each.name))
    while pool.now < until and (arriving or pool.waiting or pool.running):
        for work in [each for each in pool.running if _is_over(each, pool.now)]:
            _leave(pool, work, note)
        while arriving and arriving[0].at <= pool.now:
            pool.waiting.append(arriving.pop(0))
        rule(pool)
        for work in pool.running:
            if work.since == pool.now:
                note("started", work, pool.now, pool.now)
        times = [pool.now + _AGAIN] if pool.waiting else []
        times += [work.since + work.really for work in pool.running if work.since is not None]
        times += [work.leaves_at for work in pool.running if work.leaves_at is not None]
        times += [arriving[0].at] if arriving else []
        pool.now = max(pool.now + 1, min(times, default=until))
    for work in pool.running:
        note("left", work, work.since or 0, until)


def _is_over(work: Work, now: int) -> bool:
    ends = (work.since or 0) + work.really
    return ends <= now or (work.leaves_at is not None and work.leaves_at <= now)


def _leave(pool: Pool, work: Work, note: Listener) -> None:
    since = work.since or 0
    pool.running.remove(work)
    had = pool.now - since
    work.asked, work.really = work.asked - had, work.really - had
    work.since, work.leaves_at = None, None
    if work.really > 0:
        pool.waiting.append(work)
    note("left", work, since, pool.now)


def slurm(pool: Pool) -> None:
    """Priority by QOS, fair share and age; an own partition up to the guarantee, which preempts
    the other; backfill by requested times behind one reservation."""
    share = {work.tenant: pool.use(work.tenant, own_only=False) for work in pool.waiting}

    def priority(work: Work) -> tuple[float, int, str]:
        weight = max(UNITS_PER_GPU, pool.sure(work.tenant))
        fair = 2 ** (-share[work.tenant] / (2 * weight))
        age = min(1.0, (pool.now - work.at) / (7 * 24 * HOUR))
        return -(1_000 * work.tier.priority / pool.highest + 1_000 * fair + 500 * age), work.at, work.name

    reserved: int | None = None
    for work in sorted(pool.waiting, key=priority):
        used = pool.use(work.tenant, own_only=True) + work.units
        is_own = work.tier.counts and used <= pool.sure(work.tenant)
        if is_own or work.tier.pausable:
            _slurm_place(pool, work, reserved, is_own=is_own)
            if work.since is None and reserved is None:
                reserved = _reservation(pool, work.units)


def _slurm_place(pool: Pool, work: Work, reserved: int | None, *, is_own: bool) -> None:
    if work.units <= pool.free and (reserved is None or pool.now + work.asked <= reserved):
        pool.start(work, is_own=is_own)
    elif is_own and work.units > pool.free + pool.coming:
        pool.preempt(
            work.units - pool.free - pool.coming,
            lambda other: (
                other.tier.pausable and not other.is_own and pool.now - (other.since or 0) >= pool.exempt
            ),
        )


def _reservation(pool: Pool, units: int) -> int:
    """When so much is free by requested times: nothing behind may run longer."""
    free = pool.free
    for work in sorted(pool.running, key=lambda each: each.leaves_at or each.ends):
        free += work.units
        if free >= units:
            return max(pool.now, work.leaves_at or work.ends)
    return pool.now


def kueue(pool: Pool) -> None:
    """Cluster queues in a cohort: what fits nominal quota first, then priority and time; reclaim
    within the cohort, lower priority within a queue; no reservations, best effort FIFO."""

    def borrows(work: Work) -> bool:
        return pool.use(work.tenant, own_only=False) + work.units > pool.sure(work.tenant)

    def order(work: Work) -> tuple[bool, int, int, str]:
        return borrows(work), -work.tier.priority, work.at, work.name

    for work in sorted(pool.waiting, key=order):
        is_borrowing = borrows(work)
        if work.units <= pool.free:
            pool.start(work, is_own=not is_borrowing)
        elif work.units > pool.free + pool.coming:
            pool.preempt(
                work.units - pool.free - pool.coming,
                partial(_kueue_victim, pool, work, may_reclaim=not is_borrowing),
            )


def _kueue_victim(pool: Pool, claimant: Work, work: Work, *, may_reclaim: bool) -> bool:
    if work.tenant == claimant.tenant:
        return work.tier.priority < claimant.tier.priority
    return may_reclaim and pool.use(work.tenant, own_only=False) > pool.sure(work.tenant)


PEERS: Mapping[str, Rule] = {"slurm-like": slurm, "kueue-like": kueue}


def simulate_peer(
    site: Snapshot, rule: Rule, arrivals: Iterable[Request], seconds: int, rates: Rates | None = None
) -> Result:
    """The metrics of so many seconds of the site under another scheduler. What is there already stays until
    its end; each request takes the first of its classes that has enough GPUs at all."""
    return _Peer(site, rates or {}).result(rule, (*site.requests, *arrivals), site.now + seconds)


class _Peer:
    """A site whose classes are pools of another scheduler."""

    def __init__(self, site: Snapshot, rates: Rates) -> None:
        self._site, self.metrics = site, SimulationMetrics(site, rates)
        models = {model.slug: model for model in site.models}
        self._model_of = {gpu.gpu_class: models[gpu.model] for gpu in site.gpus}
        self._tiers = {tier.slug: tier for tier in site.tiers}
        self._works: dict[str, list[Work]] = {name: [] for name in sorted(self._model_of)}
        self._facts: dict[str, tuple[str, str, str, str]] = {}
        usable = [gpu.gpu_class for gpu in site.gpus if gpu.usable]
        self._units = {name: UNITS_PER_GPU * usable.count(name) for name in self._works}
        self._until = 0

    def result(self, rule: Rule, requests: Iterable[Request], until: int) -> Result:
        """Plays all pools, one after the other."""
        self._until = until
        for request in requests:
            self._arrive(request)
        there, tiers = self._there(), self._site.tiers
        highest = max((tier.priority for tier in tiers), default=0) or 1
        exempt = max((tier.protected for tier in tiers if tier.pausable), default=0)
        for name, works in self._works.items():
            limits = [row for row in self._site.limits if row.parent is None and row.gpu_class == name]
            sure = {row.owner: row.guaranteed for row in limits}
            pool = Pool(self._site.now, self._units[name], sure, highest, exempt)
            pool.running = [work for work in there.get(name, []) if work.at <= pool.now]
            later = [work for work in there.get(name, []) if work.at > pool.now]
            pool_run(pool, (*works, *later), rule, self._note, until)
        return self.metrics.result(until)

    def _arrive(self, request: Request) -> None:
        self.metrics.record_arrival(request)
        found = None if request.ask.groups else next(self._fitting(request), None)
        if found is None:
            self.metrics.record_refusal(request.booking, "not_in_one_class")
            return
        name, units = found
        self._facts[request.booking] = request.tenant, request.project, name, request.tier
        at, length = max(self._site.now, request.submitted, request.earliest), request.length_on(name)
        tier = self._tier(request.tier)
        self._works[name].append(Work(request.booking, request.tenant, tier, units, at, length, length))

    def _fitting(self, request: Request) -> Iterator[tuple[str, int]]:
        """The classes that have enough GPUs for a request, with the units that it needs there."""
        for name in request.ask.classes:
            model, shape = self._model_of.get(name), request.ask.shape
            if model is None or (isinstance(shape, str) and shape not in profiles(model)):
                continue
            units = request.ask.count * units_of(model, shape)
            if units <= self._units[name]:
                yield name, units

    def _there(self) -> dict[str, list[Work]]:
        """What runs or is placed already, by class, as work of its own partition."""
        class_of = {gpu.id: gpu.gpu_class for gpu in self._site.gpus}
        found: dict[tuple[str, str], Work] = {}
        for row in self._site.held:
            name = class_of.get(row.place.gpu)
            if name is None:
                continue
            at = max(row.starts, self._site.now)
            length = max(1, row.ends - at)
            new = Work(row.booking, row.tenant, self._tier(row.tier), 0, at, length, length, at, is_own=True)
            work = found.setdefault((row.booking, name), new)
            work.units += self.metrics.units(row.place)
            self._facts[row.booking] = row.tenant, row.project, name, row.tier
        by_class: dict[str, list[Work]] = {}
        for (_, name), work in sorted(found.items()):
            by_class.setdefault(name, []).append(work)
        return by_class

    def _tier(self, slug: str) -> Tier:
        return self._tiers.get(slug) or Tier(slug, pausable=False, counts=True)

    def _note(self, what: str, work: Work, since: int, at: int) -> None:
        if what == "started":
            self.metrics.record_start(work.name, at)
            return
        self.metrics.record_span(self._facts[work.name], work.units, since, at)
        if work.really <= 0:
            self.metrics.finished += 1
        elif at < self._until:
            self.metrics.record_pause(work.name)
