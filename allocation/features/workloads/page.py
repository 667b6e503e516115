"""The pages of workloads, and the card of its workload on the page of a booking."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from allocation.access import access_booking, may_change
from allocation.features.workloads.diversion import (
    DiversionState,
    DiversionTerms,
    diversion_set,
    diversion_state,
    diversion_states,
    diversions_of,
)
from allocation.features.workloads.models import Diversion
from allocation.features.workloads.offers import (
    ADVICE,
    Effect,
    Sites,
    advice_for,
    effects_of,
    usual_ask,
)
from allocation.features.workloads.profiles import LEAST_JUDGED, Profile
from allocation.features.workloads.rates import LEAST_RUNS
from allocation.features.workloads.runs import FinishedRun
from allocation.features.workloads.services import (
    Workload,
    WorkloadTerms,
    booking_workload_set,
    project_with_workloads,
    projects_with_workloads,
    workload_of_project,
    workloads_of,
)
from allocation.models import Booking
from allocation.points import BOOKING_CARDS, FIGURE_CARDS, BookingCard, WorkRate
from allocation.queries.bookings.money.statement_files import month_read
from allocation.queries.bookings.money.statements import LAB as LAB_PREFIX
from allocation.queries.fleet.catalogue import class_labels
from allocation.rules.ask.line.text import document_text
from allocation.rules.workload_names import LABEL, workload_of
from allocation.web.bookings.booking_pages import booking_answer
from allocation.web.bookings.request_panel.options import advice_label
from allocation.words.refusals import refusal_text
from billing.rules import Period, money_text
from tenants.access import Actor
from tenants.platform.costly import costly
from tenants.platform.errors import Refused, invalid
from tenants.web.frame import tenant_page, zone_of
from tenants.web.parts import counted

# The words of a bottleneck, and the colour of its pill.
KINDS = {
    "idle": ("Idle", "wait"),
    "input": ("Waits for input", "wait"),
    "memory": ("Memory bandwidth", "info"),
    "communication": ("Waits for other GPUs", "wait"),
    "compute": ("Compute", "ok"),
    "throttled": ("Throttled", "risk"),
    "steady": ("No bottleneck", "mute"),
}
# The names of advice.
EFFECTS = {
    "slice": "A slice is enough",
    "cores": "More cores",
    "precision": "Mixed precision",
    "bandwidth": "Less memory traffic",
    "shard": "Shard the optimizer",
    "shorter": "A shorter booking",
    "fewer": "Fewer GPUs",
    "group": "One NVLink group",
    "batch": "A larger batch",
    "memory": "A smaller batch",
    "class": "Another class",
}
# Why older runs do not count.
BEGAN = {
    "driver": "Runs with another driver no longer count.",
    "jump": "Runs before a jump of the speed no longer count.",
}
CONFIDENCES = ((0.75, "sure"), (0.5, "likely"), (0.0, "uncertain"))
MOST_SHOWN = 20
# On the page of figures: the workloads that cost most in these weeks.
CHANGE_WEEKS, MOST_CHANGES, MOST_SEARCHED = timedelta(weeks=4), 8, 40


@dataclass(frozen=True, slots=True)
class Shown:
    """A profile in words."""

    profile: Profile
    where: str
    rate: str
    spread: str
    series: str
    use: tuple[tuple[str, str], ...]
    memory: str
    per_run: str
    per_unit: str
    energy: str
    covered: str
    kind: str
    pill: str
    sure: str
    evidence: str


@costly("statement")
@require_safe
@tenant_page
def workloads(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the workloads of a project, or of all that the person may see (`?project=`)."""
    projects = projects_with_workloads(actor)
    chosen = request.GET.get("project", "")
    of = [project_with_workloads(actor, chosen)] if chosen else projects
    labels = class_labels()
    now = timezone.now()
    found = workloads_of(of)
    states = _states(found)
    rows = [
        (each, profile_shown(each.profiles[0], labels, now), states[each.project.id, each.name])
        for each in found
    ]
    context: dict[str, Any] = {"projects": projects, "chosen": chosen, "rows": rows}
    if chosen:
        context |= {
            "mode": diversions_of(of)[of[0].id],
            "modes": Diversion.Mode.choices,
            "may_lead": actor.may_lead(of[0].id),
        }
    return render(request, "workloads/page.html", context)


def _states(found: Iterable[Workload]) -> dict[tuple[UUID, str], DiversionState]:
    runs = {(each.project.id, each.name): each.runs for each in found}
    return diversion_states([project for project, _ in runs], runs)


@dataclass(frozen=True, slots=True)
class AdviceShown:
    """An advice in words, with its changed request and the address of its quote."""

    on: str
    sentence: str
    link: str
    text: str
    href: str


@costly("statement")
@require_safe
@tenant_page
def workload(request: HttpRequest, actor: Actor, project: str, name: str) -> HttpResponse:
    """Shows the profile of one workload of a project."""
    found = workload_of_project(project_with_workloads(actor, project), name)
    context = _context(found, timezone.now()) | {
        "advice": advice_shown(actor, found, found.profiles),
        "may_lead": actor.may_lead(found.project.id),
        **_diversion(found),
        "effects": [_effect_shown(found, each) for each in effects_of(found.project, name, found.runs)],
    }
    return render(request, "workloads/one.html", context)


def _context(found: Workload, now: datetime) -> dict[str, Any]:
    labels = class_labels()
    return {
        "now": now,
        "workload": found,
        "profiles": [profile_shown(each, labels, now) for each in found.profiles],
        "runs": [
            (run, labels.get(run.gpu_class, run.gpu_class), money_text(run.paid, run.currency))
            for run in found.runs[:MOST_SHOWN]
        ],
        "least_judged": LEAST_JUDGED,
        "least_runs": LEAST_RUNS,
    }


def _diversion(found: Workload) -> dict[str, Any]:
    """What the card of classes by cost knows."""
    state = diversion_state(found.project, found.name, found.runs)
    return {
        "state": state,
        "state_costs": _costs(state, found.profiles[0].currency),
        "state_name": Diversion.Mode(state.mode).label,
        "modes": Diversion.Mode.choices,
    }


def _costs(state: DiversionState, currency: str) -> list[tuple[str, str]]:
    return [
        (words, "–" if cost is None else money_text(cost * 1_000, currency))
        for words, cost in (
            ("Predicted", state.predicted),
            ("Measured", state.measured),
            ("On the first class", state.otherwise),
        )
    ]


def advice_shown(
    actor: Actor, found: Workload, profiles: Iterable[Profile], sites: Sites | None = None
) -> list[AdviceShown]:
    """Returns the advice for the next booking on each class, as the newest run there was booked."""
    labels, zone = class_labels(), zone_of(actor.time_zone)
    sites = {} if sites is None else sites
    shown = []
    for profile in profiles:
        ask = usual_ask(profile.runs[0])
        for each in advice_for(found.project, found.name, found.profiles, ask, sites):
            text = document_text(each.ask, zone) if each.ask is not None else ""
            query = {"q": text, "project": found.project.slug, "work": found.name}
            query["labels"] = f"{ADVICE}={each.code}"
            href = f"/t/{actor.tenant_slug}/book?{urlencode(query)}" if text else ""
            on = labels.get(profile.gpu_class, profile.gpu_class)
            label = advice_label(each.ask, labels) if each.ask is not None else ""
            shown.append(AdviceShown(on, each.sentence, each.link, label, href))
    return shown


def _effect_shown(found: Workload, each: Effect) -> tuple[str, Effect, str]:
    """The name of an advice, its counts, and what came of it in words."""
    currency = found.profiles[0].currency
    if not each.runs:
        return EFFECTS[each.code], each, "no run that took it is over"
    now, old = each.per_unit, each.per_unit_without
    what, times = "1,000 steps", 1_000
    if now is None or old is None:
        now, old, what, times = each.per_run, each.per_run_without, "a run", 1
    if now is None or old is None:
        return EFFECTS[each.code], each, "nothing to compare with"
    costs = [money_text(value * times, currency) for value in (now, old)]
    words = f"{what} cost {costs[0]} in {each.runs}, {costs[1]} without it ({each.percent:+d} %)"
    return EFFECTS[each.code], each, words


def profile_shown(found: Profile, labels: dict[str, str], now: datetime) -> Shown:
    """Returns a profile in words; – is not measured."""
    what = labels.get(found.gpu_class, found.gpu_class)
    verdict = found.verdict
    kind, pill = KINDS[verdict.kind] if verdict else ("", "")
    rate = found.rate
    return Shown(
        profile=found,
        where=f"{found.slice} of {what}" if found.slice else f"{found.gpus} × {what}",
        rate=f"{rate.per_gpu_hour:,.4g} {rate.unit}s" if rate else "–",
        spread=f"half of {rate.runs} runs: {rate.low:,.4g} to {rate.high:,.4g}" if rate else "",
        series=_series(rate, now) if rate else "",
        use=(
            ("Busy", _percent(found.busy)),
            ("Tensor cores", _percent(found.tensor)),
            ("Memory bandwidth", _percent(found.bandwidth)),
            ("Idle", _percent(None if found.idle is None else 100 * found.idle)),
        ),
        memory=_memory(found),
        per_run=money_text(found.cost_per_run, found.currency),
        per_unit="–"
        if found.cost_per_unit is None
        else money_text(found.cost_per_unit * 1_000, found.currency),
        energy="–" if found.kwh_per_run is None else f"{found.kwh_per_run:,.2f} kWh",
        covered=f"{100 * found.coverage:.0f} %",
        kind=kind,
        pill=pill,
        sure=_sure(verdict.confidence) if verdict else "",
        evidence=f"{verdict.agreed} of {verdict.judged} runs" if verdict else "",
    )


def _series(rate: WorkRate, now: datetime) -> str:
    """By how many runs a rate is, how old they are, and why older ones do not count."""
    days = (now - rate.last).days
    age = f"the last {days} day{'s' * (days != 1)} ago" if days else "the last within a day"
    driver = f" with driver {rate.driver}" if rate.driver else ""
    words = f"Rate of {rate.runs} run{'s' * (rate.runs != 1)}{driver}, {age}."
    return f"{words} {BEGAN[rate.began]}" if rate.began else words


def _memory(found: Profile) -> str:
    if found.peak_memory_mb is None:
        return "–"
    of = f" of {found.memory_total_mb / 1024:.0f}" if found.memory_total_mb else ""
    return f"{found.peak_memory_mb / 1024:.1f}{of} GiB"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} %"


def _sure(confidence: float) -> str:
    return next(word for least, word in CONFIDENCES if confidence >= least)


def workload_card(actor: Actor, booking: Booking, now: datetime) -> BookingCard | None:
    """Returns the card of a booking's workload."""
    name, may = workload_of(booking), may_change(actor, booking)
    if not name and not may:
        return None
    found = workloads_of([booking.project], name) if name else []
    labels = class_labels()
    shown = [profile_shown(each, labels, now) for each in _of_booking(found, booking)]
    card = {
        "name": name,
        "is_said": LABEL in booking.labels,
        "label": booking.label,
        "project": booking.project.slug,
        "may": may,
        "shown": shown[0] if shown else None,
        "runs": len(found[0].runs) if found else 0,
        "advice": advice_shown(actor, found[0], [each.profile for each in shown]) if found else [],
    }
    return BookingCard("workloads/card.html", card)


def _of_booking(found: Iterable[Workload], booking: Booking) -> list[Profile]:
    """The profiles on the class of a booking; before it has one, on the first that it asks for."""
    gpu_class = booking.planned_class or next(iter(booking.ask.get("classes", ())), "")
    slice_ = booking.ask.get("profile") or ("share" if booking.ask.get("share") else "")
    return [
        profile
        for each in found
        for profile in each.profiles
        if (profile.gpu_class, profile.slice) == (gpu_class, slice_)
    ]


@dataclass(frozen=True, slots=True)
class Change:
    """A workload with what it cost lately, its first advice, and what came of its order of classes."""

    workload: Workload
    href: str
    shown: Shown
    paid: str
    runs: int
    advice: AdviceShown | None
    diverted: str


def change_card(actor: Actor | None, query: Mapping[str, str], now: datetime) -> BookingCard | None:
    """What could change in the workloads of a project or a lab (`?project=`), or of all that the person may
    see, in a month (`?month=`) or in the last weeks."""
    if actor is None:
        return None
    owner, projects = query.get("project", ""), projects_with_workloads(actor)
    of = [
        each
        for each in projects
        if owner in (each.slug, f"{LAB_PREFIX}{each.lab.slug}" if each.lab is not None else each.slug)
    ]
    month = month_read(query["month"]) if query.get("month") else None
    recent = _recent(workloads_of(of or projects), month, now)[:MOST_SEARCHED]
    states, labels = _states(each for each, _ in recent), class_labels()
    found: list[Change] = []
    sites: Sites = {}
    for each, runs in recent:
        state = states[each.project.id, each.name]
        advice = advice_shown(actor, each, each.profiles[:1], sites)
        if advice or state.runs:
            shown, currency = profile_shown(each.profiles[0], labels, now), each.profiles[0].currency
            href = f"/t/{actor.tenant_slug}/workloads/{each.project.slug}/{each.name}"
            paid, diverted = money_text(_paid(runs), currency), _diverted_words(state, currency)
            found.append(Change(each, href, shown, paid, len(runs), next(iter(advice), None), diverted))
        if len(found) == MOST_CHANGES:
            break
    when = f"in {month.starts:%B %Y}" if month else "in four weeks"
    if not found:
        return None
    return BookingCard("workloads/change.html", {"rows": found, "when": when})


def _diverted_words(state: DiversionState, currency: str) -> str:
    """What came of runs on another class than the first of their requests; empty without any."""
    if not state.runs or state.measured is None:
        return ""
    costs = {words: cost for words, cost in _costs(state, currency) if cost != "–"}
    others = [f"{cost} {words.lower()}" for words, cost in costs.items() if words != "Measured"]
    runs = f"{counted(state.runs, 'run')} on another class than the first"
    percent = f", {state.percent:+d} %" if state.percent is not None else ""
    compared = f" ({', '.join(others)})" if others else ""
    return f"{runs}{percent}: 1,000 steps cost {costs['Measured']}{compared}"


def _recent(
    found: Iterable[Workload], month: Period | None, now: datetime
) -> list[tuple[Workload, list[FinishedRun]]]:
    """The workloads with runs of a month or of the last weeks, and these runs; what cost most is first."""
    since, until = (month.first_second, month.last_second) if month else (now - CHANGE_WEEKS, now)
    every = [(each, [run for run in each.runs if since <= run.at <= until]) for each in found]
    return sorted((row for row in every if row[1]), key=lambda row: (-_paid(row[1]), row[0].name))


def _paid(runs: Iterable[FinishedRun]) -> Decimal:
    return sum((run.paid for run in runs), Decimal(0))


@require_POST
@tenant_page
def booking_workload(request: HttpRequest, actor: Actor, label: str) -> HttpResponse:
    """Names the workload of a booking from its card."""
    terms = WorkloadTerms(name=request.POST.get("name", "").strip() or None)
    try:
        row = booking_workload_set(actor=actor, reference=label, terms=terms, now=timezone.now())
    except Refused as refusal:
        return booking_answer(request, actor, access_booking(actor, label), refusal)
    messages.success(request, f"{row.label} belongs to the workload {workload_of(row) or 'of no name'}.")
    return redirect("booking", tenant=actor.tenant_slug, label=row.label)


@require_POST
@tenant_page
def project_diversion(request: HttpRequest, actor: Actor, project: str) -> HttpResponse:
    """Sets how the classes of a project, or of one of its workloads, are ordered."""
    name, mode = request.POST.get("workload", ""), request.POST.get("mode", "")
    if mode not in Diversion.Mode.values:
        raise invalid(
            "unknown_choice", refusal_text("kpi_noun", nouns=", ".join(Diversion.Mode.values)), "mode"
        )
    terms = DiversionTerms(mode=Diversion.Mode(mode), workload=name)
    row = diversion_set(actor=actor, project=project, terms=terms, now=timezone.now())
    messages.success(request, f"Classes by cost: {row.get_mode_display().lower()}.")
    if row.workload:
        return redirect("workload", tenant=actor.tenant_slug, project=project, name=row.workload)
    return redirect(f"/t/{actor.tenant_slug}/workloads?project={project}")


BOOKING_CARDS.append(workload_card)
# What to change comes first: a link of the page leads to it.
FIGURE_CARDS.insert(0, change_card)
urlpatterns = [
    path("t/<slug:tenant>/workloads", workloads, name="workloads"),
    path("t/<slug:tenant>/workloads/<slug:project>/<slug:name>", workload, name="workload"),
    path("t/<slug:tenant>/projects/<slug:project>/diversion", project_diversion, name="project-diversion"),
    path("t/<slug:tenant>/bookings/<str:label>/workload", booking_workload, name="booking-workload"),
]
