"""Advice where people book: in quotes, on bookings and workloads, and how often it was shown and taken."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from statistics import median
from uuid import UUID

from django.db import connection
from django.db.models import Count, F

from allocation.features.workloads.advice import Site, Slice, advice_of
from allocation.features.workloads.diversion import mode_of
from allocation.features.workloads.models import AdviceShown, Diversion
from allocation.features.workloads.profiles import Profile, profiles_of
from allocation.features.workloads.runs import FinishedRun, runs_of
from allocation.models import BookingLabel, Gpu, GpuModel
from allocation.points import Advice, Quoted
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument
from allocation.rules.nodes.diagnosis import nvlink_peak_kb
from allocation.rules.workload_names import LABEL
from tenants.models import Project

ADVICE = "advice"
"""The label of a booking that took an advice: its code."""

MOST_NAMES = 50
STEP_S = 60
UNITS_PER_GPU = 56_000
_NAMES = """
SELECT workload FROM (
  SELECT b.workload, b.submitted FROM allocation_booking b
  WHERE b.project_id = %(project)s ORDER BY b.submitted DESC LIMIT 1000) f
WHERE workload <> '' GROUP BY workload ORDER BY max(submitted) DESC LIMIT %(most)s
"""


Sites = dict[str, Site]


@dataclass(frozen=True, slots=True)
class Effect:
    """An advice of a workload: how often quotes showed it, how many bookings took it, and what their
    runs cost, next to those that did not. None: no such run is over."""

    code: str
    shown: int
    taken: int
    runs: int
    per_run: Decimal | None
    per_run_without: Decimal | None
    per_unit: Decimal | None
    per_unit_without: Decimal | None

    @property
    def percent(self) -> int | None:
        """By how much a step, or else a run, became cheaper (negative) in percent."""
        pairs = ((self.per_unit, self.per_unit_without), (self.per_run, self.per_run_without))
        found = next(((now, old) for now, old in pairs if now is not None and old), None)
        return None if found is None else round(100 * (found[0] / found[1] - 1))


def quote_advice_read(quoted: Quoted, now: datetime) -> Iterable[Advice]:
    """The advice for a request of a workload, counted as shown."""
    project, name = quoted.project, quoted.workload
    if not name:
        return ()
    found = advice_for(project, name, profiles_of(runs_of(project.id, name)), quoted.ask)
    if found:
        _count(project, name, found, now)
    return found


def advice_for(
    project: Project,
    name: str,
    profiles: Sequence[Profile],
    ask: AskDocument,
    sites: Sites | None = None,
) -> list[Advice]:
    """The advice for a request, with what the site offers on its first class: `sites` has that of the
    classes that the same answer has read. No other class is suggested where the project has turned
    that off."""
    if not profiles or not ask.classes:
        return []
    sites = {} if sites is None else sites
    if ask.classes[0] not in sites:
        sites[ask.classes[0]] = site_of(ask)
    found = advice_of(profiles, ask, sites[ask.classes[0]])
    is_off = any(each.code == "class" for each in found) and mode_of(project, name)[0] == Diversion.Mode.OFF
    return [each for each in found if not (is_off and each.code == "class")]


def usual_ask(run: FinishedRun) -> AskDocument:
    """The request of a run, at any time. One that allowed several classes is for the class that it got,
    for as long as it was there."""
    ask = AskDocument.from_json(run.ask)
    if len(ask.classes) > 1:
        length = STEP_S * -(-run.booked_seconds // STEP_S)
        ask = replace(ask, classes=(run.gpu_class,), duration=length)
    return replace(ask, starts=None, not_before=None, deadline=None, workload=None)


def site_of(ask: AskDocument) -> Site:
    """What the first class of a request offers."""
    name = ask.classes[0]
    rows = (
        GpuModel.objects.filter(gpu_class=name)
        .order_by("memory_mb")
        .values_list(
            "memory_mb",
            "memory_slots",
            "compute_slices",
            "placements__profile",
            "placements__size",
            "placements__compute",
        )
    )
    slices: dict[str, Slice] = {}
    for memory, slots, compute_slices, profile, size, compute in rows:
        if profile and "+" not in profile and "-" not in profile:
            slices.setdefault(
                profile,
                Slice(
                    profile,
                    memory * size // slots,
                    Fraction(compute, compute_slices),
                    _price(profile, ask, name),
                ),
            )
    nodes = Gpu.objects.filter(gpu_class=name).values("node").annotate(gpus=Count("id"))
    sizes = [(each["gpus"], each["node__cores"]) for each in nodes.values("gpus", "node__cores")]
    return Site(
        tuple(slices.values()),
        cores_per_gpu=max((cores // gpus for gpus, cores in sizes), default=0),
        nvlink=max((gpus for gpus, _ in sizes), default=1) if nvlink_peak_kb(name) else 1,
    )


def workload_names(project_id: UUID) -> list[str]:
    """The workloads of the newest bookings of a project, the newest first."""
    with connection.cursor() as cursor:
        cursor.execute(_NAMES, {"project": project_id, "most": MOST_NAMES})
        return [name for (name,) in cursor.fetchall()]


def effects_of(project: Project, name: str, runs: Sequence[FinishedRun]) -> list[Effect]:
    """What came of advice for a workload, by code."""
    shown = dict(AdviceShown.objects.filter(project=project, workload=name).values_list("code", "shown"))
    taken = dict(
        BookingLabel.objects.filter(
            tenant_id=project.tenant_id,
            key=ADVICE,
            booking__project=project,
            booking__labels__contains={LABEL: name},
        )
        .values_list("value")
        .annotate(Count("id"))
    )
    return [_effect(code, shown.get(code, 0), taken.get(code, 0), runs) for code in sorted({*shown, *taken})]


def _effect(code: str, shown: int, taken: int, runs: Sequence[FinishedRun]) -> Effect:
    own = [run for run in runs if run.advice == code]
    others = [run for run in runs if not run.advice]

    def per_run(rows: Sequence[FinishedRun]) -> Decimal | None:
        return median(run.paid for run in rows) if rows else None

    def per_unit(rows: Sequence[FinishedRun]) -> Decimal | None:
        known = [run.cost_per_unit for run in rows if run.cost_per_unit is not None]
        return median(known) if known else None

    return Effect(
        code, shown, taken, len(own), per_run(own), per_run(others), per_unit(own), per_unit(others)
    )


def _price(profile: str, ask: AskDocument, name: str) -> Fraction:
    """The part of the price of a GPU: prices are by units."""
    units = ask_units(replace(ask, classes=(name,), profile=profile, share=None, count=1, groups=()))
    return Fraction(units.get(name, UNITS_PER_GPU), UNITS_PER_GPU)


def _count(project: Project, name: str, found: Sequence[Advice], now: datetime) -> None:
    rows = [
        AdviceShown(
            tenant_id=project.tenant_id,
            project=project,
            workload=name,
            code=each.code,
            shown=0,
            first_at=now,
            last_at=now,
        )
        for each in found
    ]
    AdviceShown.objects.bulk_create(rows, ignore_conflicts=True)
    codes = [each.code for each in found]
    AdviceShown.objects.filter(project=project, workload=name, code__in=codes).update(
        shown=F("shown") + 1, last_at=now
    )
