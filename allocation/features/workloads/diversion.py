"""Diversion: a project lets the portal order the classes of its requests by learnt cost per step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from statistics import median
from uuid import UUID

from django.db import transaction

from allocation.features.workloads.models import Diversion
from allocation.features.workloads.profiles import rated_runs
from allocation.features.workloads.rates import rates_of
from allocation.features.workloads.runs import FinishedRun, runs_of, runs_of_projects
from allocation.models import Booking, BookingEvent
from allocation.points import Diverted, Prices, WorkRate
from allocation.rules.ask import AskDocument
from allocation.rules.workload_names import LABEL, MOST, workload_slug
from allocation.words.amounts import class_name
from allocation.words.refusals import refusal_text
from billing.rules import money_text
from tenants.access import Actor, access_project
from tenants.audit import audited
from tenants.models import Project
from tenants.platform.errors import Refused, denied, text_within
from tenants.platform.terms import term, terms

EVENT = "diverted"
# It stops by itself when so many finished runs cost more than the first class would have.
LEAST_RUNS = 3
MOST_NAMED = 8


@terms
class DiversionTerms:
    """What the portal does with the classes that a request allows."""

    mode: Diversion.Mode = term(
        "Classes by cost",
        says="`off`, `suggest` (a cheaper class in advice) or `automatic` (the cheapest class first).",
        choices=Diversion.Mode.choices,
    )
    workload: str = term(
        "Workload",
        says="Of one workload, whose runs count from now on. Empty: of all.",
        default="",
        max_length=63,
    )


@dataclass(frozen=True, slots=True)
class DiversionState:
    """What is set for a workload of a project, and what came of it: medians of a step's cost as it was
    predicted, as it was, and on the class that comes first in the requests. `is_stopped`: it made the
    workload worse."""

    mode: str
    since: datetime | None
    runs: int = 0
    predicted: Decimal | None = None
    measured: Decimal | None = None
    otherwise: Decimal | None = None
    is_stopped: bool = False

    @property
    def percent(self) -> int | None:
        """By how much a step cost less (negative) or more than on the first class."""
        if self.measured is None or not self.otherwise:
            return None
        return round(100 * (self.measured / self.otherwise - 1))

    @property
    def is_shown(self) -> bool:
        """Whether lists have something to say of it."""
        return self.is_stopped or self.percent is not None or self.mode == Diversion.Mode.AUTOMATIC


def diversion_set(*, actor: Actor, project: str, terms: DiversionTerms, now: datetime) -> Diversion:
    """Sets it for a project or for one of its workloads: leads only. Runs before do not count any more.

    Raises:
        Refused: `not_found`, also for a workload that the project never had, `not_allowed` or `too_long`.
    """
    found = access_project(actor, project)
    if not actor.may_lead(found.id):
        raise denied(refusal_text("diversion_leads"))
    name = workload_slug(text_within(terms.workload, MOST, "workload"))
    if terms.workload and not _is_known(found, name):
        raise _unknown(found, terms.workload)
    with transaction.atomic():
        row, _ = Diversion.objects.select_for_update().get_or_create(
            project=found,
            workload=name,
            defaults={
                "tenant_id": actor.tenant_id,
                "mode": terms.mode,
                "since": now,
                "changed_by_id": actor.user_id,
            },
        )
        row.mode, row.since, row.changed_by_id = terms.mode, now, actor.user_id
        row.save(update_fields=["mode", "since", "changed_by"])
        audited(actor, "diversion.set", row, now, "project", "workload", "mode")
    return row


def _is_known(project: Project, name: str) -> bool:
    """Whether a booking of the project belongs to the workload, or its mode was set before."""
    if not name:
        return False
    named = Booking.objects.filter(project=project, labels__contains={LABEL: name})
    set_before = Diversion.objects.filter(project=project, workload=name)
    return bool(runs_of(project.id, name, with_use=False)) or named.exists() or set_before.exists()


def _unknown(project: Project, name: str) -> Refused:
    """The refusal that names the workloads that there are."""
    known = sorted({run.workload for run in runs_of_projects([project.id], with_use=False)})
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    names = ", ".join(known[:MOST_NAMED]) + more if known else "none yet"
    sentence = refusal_text("diversion_unknown", project=project.name, name=name, names=names)
    return Refused("not_found", sentence, "missing", "workload")


def mode_of(project: Project, name: str) -> tuple[str, datetime | None]:
    """The mode for a workload, and since when: its own, else that of the project, else to suggest."""
    rows = {
        each.workload: each for each in Diversion.objects.filter(project=project, workload__in=("", name))
    }
    row = rows.get(name) or rows.get("")
    return (row.mode, row.since) if row else (Diversion.Mode.SUGGEST, None)


def diversion_state(project: Project, name: str, runs: Sequence[FinishedRun]) -> DiversionState:
    """What is set for a workload, and what came of the bookings that were diverted since then."""
    return diversion_states([project.id], {(project.id, name): runs})[project.id, name]


def diversion_states(
    projects: Sequence[UUID], workloads: Mapping[tuple[UUID, str], Sequence[FinishedRun]]
) -> dict[tuple[UUID, str], DiversionState]:
    """What is set for each workload, by its project and name, and what came of its diverted bookings."""
    chosen = {
        (each.project_id, each.workload): each for each in Diversion.objects.filter(project__in=projects)
    }
    of = {key: chosen.get(key) or chosen.get((key[0], "")) for key in workloads}
    ids = [run.id for key, runs in workloads.items() if of[key] is not None for run in runs]
    rows = BookingEvent.objects.filter(booking__in=ids, kind=EVENT).values_list("booking", "at", "detail")
    events = {booking: (at, detail) for booking, at, detail in rows}
    found = {}
    for key, runs in workloads.items():
        row = of[key]
        if row is None:
            found[key] = DiversionState(Diversion.Mode.SUGGEST, None)
            continue
        known = [(run, *events[run.id]) for run in runs if run.id in events]
        diverted = [(run, detail) for run, at, detail in known if at >= row.since]
        found[key] = _state(row.mode, row.since, diverted)
    return found


def _state(
    mode: str, since: datetime, runs: Sequence[tuple[FinishedRun, Mapping[str, object]]]
) -> DiversionState:
    known = []
    for run, detail in runs:
        costs = detail.get("costs")
        if (
            not isinstance(costs, Mapping)
            or run.gpu_class == detail.get("first")
            or run.cost_per_unit is None
        ):
            continue
        if run.gpu_class in costs:
            predicted, otherwise = Decimal(costs[run.gpu_class]), Decimal(costs[str(detail["first"])])
            known.append((predicted, run.cost_per_unit, otherwise))
    if not known:
        return DiversionState(mode, since)
    predicted, measured, otherwise = (median(each) for each in zip(*known, strict=True))
    is_worse = len(known) >= LEAST_RUNS and measured > otherwise
    return DiversionState(mode, since, len(known), predicted, measured, otherwise, is_worse)


def diversion_read(
    project: Project, name: str, ask: AskDocument, prices: Prices, now: datetime
) -> Diverted | None:
    """How a request is diverted: None unless the project lets the portal do it, all of its classes are
    learnt, another one than the first costs less at present prices and meets the deadline, and it has
    not made the workload worse."""
    if len(ask.classes) < 2 or ask.workload or ask.groups or ask.starts or ask.shape is not None:
        return None
    if mode_of(project, name)[0] != Diversion.Mode.AUTOMATIC:
        return None
    runs = runs_of(project.id, name, with_use=False)
    if diversion_state(project, name, runs).is_stopped:
        return None
    rates, hourly = rates_of(rated_runs(runs)), prices()
    if not {*ask.classes} <= rates.keys() & hourly.keys():
        return None
    costs = {
        each: hourly[each][0] / Decimal(rates[each].per_gpu_hour * ask.count)
        for each in dict.fromkeys(ask.classes)
    }
    first, able = ask.classes[0], _in_time(ask, rates, now)
    order = sorted(able, key=lambda each: (costs[each], each))
    if not order or costs[order[0]] >= costs[first]:
        return None
    words = ", ".join(
        f"{money_text(costs[each] * 1_000, hourly[each][1])} on {class_name(each)} ({rates[each].runs} runs)"
        for each in order
    )
    late = [class_name(each) for each in costs if each not in able]
    facts = {"workload": name, "unit": rates[first].unit, "costs": words, "late": " and ".join(late)}
    detail = {
        "first": first,
        "costs": {each: str(costs[each]) for each in sorted(costs, key=lambda each: (costs[each], each))},
        "runs": {each: rates[each].runs for each in costs},
        "unit": rates[first].unit,
        "workload": name,
    }
    return Diverted(name, facts, detail)


def _in_time(ask: AskDocument, rates: Mapping[str, WorkRate], now: datetime) -> set[str]:
    """The classes on which the work is done by its deadline, if it starts as early as it may."""
    if ask.deadline is None:
        return {*ask.classes}
    left = (ask.deadline - max(ask.not_before or now, now)).total_seconds()
    pace = rates[ask.classes[0]].per_gpu_hour
    return {each for each in ask.classes if ask.duration * pace / rates[each].per_gpu_hour <= left}


def diversions_of(projects: Sequence[Project]) -> dict[UUID, str]:
    """The mode of each project."""
    rows = Diversion.objects.filter(project__in=projects, workload="")
    modes = dict(rows.values_list("project", "mode"))
    return {each.id: modes.get(each.id, str(Diversion.Mode.SUGGEST)) for each in projects}
