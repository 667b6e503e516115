"""Metrics of a simulation: utilisation, waiting times, shares and cost."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from solver.fleet.mig_geometry import units_of
from solver.model.inputs import (
    MILLION,
    UNITS_PER_GPU,
    Ask,
    Held,
    Model,
    Place,
    Request,
    Snapshot,
)
from solver.model.limits import Used
from solver.model.plan import Plan

HOUR = 3_600
DAY = 86_400

Rates = Mapping[tuple[str, str], int]
"""Money per GPU-hour by class and tier, in any whole unit; a missing entry is free of charge."""


@dataclass(frozen=True, slots=True)
class TierResult:
    """Bookings of a tier. Waits are seconds from submission (or the requested start) to the first
    start, without fixed windows; `waiting` ones have not started by the end."""

    tier: str
    asked: int
    started: int
    waiting: int
    refused: int
    pauses: int
    wait_p50: int | None
    wait_p95: int | None
    wait_max: int | None


@dataclass(frozen=True, slots=True)
class TenantResult:
    """Results of a tenant. `share_ppm` is of all use, `served_ppm` of what it requested.

    `spend` is in the unit of the rates, rounded down.
    """

    tenant: str
    gpu_hours: int
    asked_gpu_hours: int
    share_ppm: int
    served_ppm: int
    spend: int


@dataclass(frozen=True, slots=True)
class ClassResult:
    """Utilisation of a class, in millionths of its GPU time."""

    gpu_class: str
    gpus: int
    utilisation_ppm: int


@dataclass(frozen=True, slots=True)
class Result:
    """The metrics of a simulation; integers only, so the same run has the same bytes.

    `jain_ppm` and `max_min_ppm` (0: a tenant got nothing) compare what each tenant was served.
    """

    begins: int
    ends: int
    cycles: int
    utilisation_ppm: int
    pauses: int
    lost_gpu_seconds: int
    finished: int
    jain_ppm: int
    max_min_ppm: int
    spend: int
    refused_because: tuple[tuple[str, int], ...]
    classes: tuple[ClassResult, ...]
    tiers: tuple[TierResult, ...]
    tenants: tuple[TenantResult, ...]


class SimulationMetrics:
    """Counters while a simulation runs."""

    def __init__(self, site: Snapshot, rates: Rates) -> None:
        self._begins, self._rates = site.now, rates
        self._models = {model.slug: model for model in site.models}
        self._gpus = {gpu.id: gpu for gpu in site.gpus}
        self._model_of = {gpu.gpu_class: gpu.model for gpu in site.gpus}
        self._used: Counter[tuple[str, str, str, int]] = Counter()
        self._had: Counter[tuple[str, str, str]] = Counter()
        self._asks: dict[str, Request] = {}
        self._started: dict[str, int] = {}
        self._refused: dict[str, str] = {}
        self._pauses: Counter[str] = Counter()
        self._lost = 0
        self.finished = 0
        self.cycles = 0

    def record_arrival(self, request: Request) -> None:
        self._asks[request.booking] = request

    def record_plan(self, plan: Plan) -> None:
        self.cycles += 1
        for given in plan.assigns:
            self._started.setdefault(given.booking, given.starts)
        for refusal in plan.refusals:
            self._refused[refusal.booking] = refusal.reasons[0].code
        for pause in plan.pauses:
            self._pauses[pause.booking] += 1
            self._lost += pause.lost

    def record_start(self, booking: str, at: int) -> None:
        """Note the first start."""
        self._started.setdefault(booking, at)

    def record_pause(self, booking: str) -> None:
        """Count a pause without lost work."""
        self._pauses[booking] += 1

    def record_refusal(self, booking: str, code: str) -> None:
        self._refused[booking] = code

    def record_use(self, held: Iterable[Held], since: int, until: int) -> None:
        """Count the use of rows that have begun, in [since, until)."""
        for row in held:
            starts, ends = max(row.starts, since), min(row.ends, until)
            gpu = self._gpus.get(row.place.gpu)
            if gpu is not None:
                whose = (row.tenant, row.project, gpu.gpu_class, row.tier)
                self.record_span(whose, self.units(row.place), starts, ends)

    def record_span(self, whose: tuple[str, str, str, str], units: int, since: int, until: int) -> None:
        """Count units of a tenant, project, class and tier in [since, until), by days."""
        tenant, project, gpu_class, tier = whose
        while since < until:
            day = since // DAY * DAY
            stop = min(until, day + DAY)
            self._used[tenant, project, gpu_class, day] += units * (stop - since)
            self._had[tenant, gpu_class, tier] += units * (stop - since)
            since = stop

    def used(self, since: int) -> tuple[Used, ...]:
        """Use for the fair share, of days from `since` on."""
        return tuple(Used(*key, amount) for key, amount in self._used.items() if key[3] >= since)

    def units(self, place: Place) -> int:
        return units_of(self._models[self._gpus[place.gpu].model], place.shape)

    def result(self, ends: int) -> Result:
        """The metrics of [begin, ends)."""
        span = max(1, ends - self._begins)
        tenants = self._tenants()
        served = [each.served_ppm for each in tenants if each.asked_gpu_hours]
        return Result(
            begins=self._begins,
            ends=ends,
            cycles=self.cycles,
            utilisation_ppm=_ppm(self._had.total(), len(self._gpus) * UNITS_PER_GPU * span),
            pauses=self._pauses.total(),
            lost_gpu_seconds=self._lost,
            finished=self.finished,
            jain_ppm=_jain(served),
            max_min_ppm=_ppm(max(served), min(served)) if served else 0,
            spend=sum(each.spend for each in tenants),
            refused_because=tuple(sorted(Counter(self._refused.values()).items())),
            classes=self._classes(span),
            tiers=self._tiers(ends),
            tenants=tenants,
        )

    def _classes(self, span: int) -> tuple[ClassResult, ...]:
        counts = Counter(gpu.gpu_class for gpu in self._gpus.values())
        had: Counter[str] = Counter()
        for (_, name, _tier), amount in self._had.items():
            had[name] += amount
        return tuple(
            ClassResult(name, count, _ppm(had[name], count * UNITS_PER_GPU * span))
            for name, count in sorted(counts.items())
        )

    def _tenants(self) -> tuple[TenantResult, ...]:
        asked: Counter[str] = Counter()
        for request in self._asks.values():
            asked[request.tenant] += self._wanted(request.ask) * request.duration
        had: Counter[str] = Counter()
        money: Counter[str] = Counter()
        for (tenant, gpu_class, tier), amount in self._had.items():
            had[tenant] += amount
            money[tenant] += amount * self._rates.get((gpu_class, tier), 0)
        whole = UNITS_PER_GPU * HOUR
        return tuple(
            TenantResult(
                tenant=tenant,
                gpu_hours=had[tenant] // whole,
                asked_gpu_hours=asked[tenant] // whole,
                share_ppm=_ppm(had[tenant], had.total()),
                served_ppm=_ppm(had[tenant], asked[tenant]),
                spend=money[tenant] // whole,
            )
            for tenant in sorted(asked.keys() | had.keys())
        )

    def _tiers(self, ends: int) -> tuple[TierResult, ...]:
        of: dict[str, list[Request]] = {}
        for request in self._asks.values():
            of.setdefault(request.tier, []).append(request)
        return tuple(self._tier(tier, rows, ends) for tier, rows in sorted(of.items()))

    def _tier(self, tier: str, rows: list[Request], ends: int) -> TierResult:
        begun = [row for row in rows if self._started.get(row.booking, ends) < ends]
        refused = sum(row.booking in self._refused for row in rows)
        waits = sorted(
            self._started[row.booking] - max(row.submitted, row.earliest) for row in begun if not row.fixed
        )
        return TierResult(
            tier=tier,
            asked=len(rows),
            started=len(begun),
            waiting=len(rows) - len(begun) - refused,
            refused=refused,
            pauses=sum(self._pauses[row.booking] for row in rows),
            wait_p50=_rank(waits, 50),
            wait_p95=_rank(waits, 95),
            wait_max=_rank(waits, 100),
        )

    def _wanted(self, ask: Ask) -> int:
        for name in ask.classes:
            model = self._models.get(self._model_of.get(name, ""))
            if model is None:
                continue
            if not isinstance(ask.shape, str) or ask.shape in profiles(model):
                return ask.count * units_of(model, ask.shape)
        return 0


def profiles(model: Model) -> set[str]:
    """The names of the slices that a model has."""
    return {each.profile for each in model.placements}


def _rank(ordered: list[int], percent: int) -> int | None:
    """Nearest rank, so that the value has occurred; None for no values."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else None


def _ppm(part: int, whole: int) -> int:
    return part * MILLION // whole if whole else 0


def _jain(values: list[int]) -> int:
    """Jain's index in millionths: equal values give a million, all to one of n a million / n."""
    squares = sum(value * value for value in values)
    return _ppm(sum(values) ** 2, len(values) * squares) if squares else 0
