"""Quotes: the options of a request with start, price and effect on the budget, and the end of the
last run of an array."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

from allocation.models import Booking, PolicyVersion
from allocation.points import Advice, Quoted, quote_advice
from allocation.points.people import IntendedUse, demand_unmet
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument
from allocation.rules.workload_names import workload_named
from allocation.services.bookings.checks.admission import Admission, Asker
from allocation.services.bookings.checks.admission_check import admission_check
from allocation.services.bookings.checks.offers import most_of, priced_from, rate_for
from allocation.services.bookings.creation import by_cost
from allocation.services.bookings.price_lock import PRICE_LOCK_TIME, price_lock
from allocation.services.bookings.requests import BookingRequest
from allocation.services.policy.policies import policy_of
from allocation.services.quotes.quote_options import Market, QuoteOption, estimated, quote_option
from allocation.services.record.history import Event
from allocation.services.record.workloads import WorkLength, classes_by_cost, is_cheapest_first, work_lengths
from allocation.services.snapshot.demands import solver_ask
from allocation.services.snapshot.published import published_snapshot
from allocation.services.snapshot.snapshot import instant, seconds
from allocation.words.quotes import note_text
from allocation.words.reasons import sentence
from billing.price_books import PriceShelf
from billing.queries import BudgetFigures, tightest_figures
from billing.rules import money_text
from billing.services import HoldRequest, campaign_to_charge
from billing.services.guardrails import STOPPING, new_bookings_refusal, restraints_of
from billing.services.holds import uncovered_refusal
from solver import (
    Availability,
    Option,
    QuoteRequest,
    Runs,
    best_options,
)
from solver.reasons.reason import Reason
from tenants.access import Actor, access_project_to_book
from tenants.models import Project, Tier
from tenants.services.policy_hooks.live import hook_decides

MAX_OPTIONS = 8
STARTS_NOTHING = (
    "A limit of a budget that pays this booking lets nothing start now. A booking waits in the queue"
    " until less of the budget is used; that ends by itself."
)


@dataclass(frozen=True, slots=True)
class Quote:
    """Options, the best first. `blocking`: why the request is not possible as asked.

    `waits`: a booking would wait in the queue without a planned start. `asks_hook`: the policy hook
    of the organisation decides when it is booked. A booking with `lock` keeps these prices until
    `expires`. `lengths`: of a kind of work on each class. `advice`: what finished runs of its
    workload say. `diverted`: why the project's choice puts the cheapest class first.
    `is_stopped`: money refuses it, or lets it wait, whatever is free.
    """

    options: tuple[QuoteOption, ...]
    blocking: str | None
    effect: BudgetFigures | None
    expires: datetime
    lock: str
    waits: bool = False
    asks_hook: bool = False
    lengths: tuple[WorkLength, ...] = ()
    workload: str = ""
    advice: tuple[Advice, ...] = ()
    diverted: str = ""
    is_stopped: bool = False

    @property
    def is_full(self) -> bool:
        """Whether GPUs are what is missing."""
        return bool(self.blocking) and not self.is_stopped


def quote_make(
    *,
    actor: Actor,
    request: BookingRequest,
    now: datetime,
    without: Booking | None = None,
    after: datetime | None = None,
    runs: Runs | None = None,
) -> Quote:
    """Returns the options of a request in its tier, as asked first, and in other tiers, without those that
    another one equals or beats. `without`: a booking that would be cancelled for it. `after`: the planned end
    of those that it waits for, so its start is an estimate. `runs`: it is an array. Nothing is reserved.

    Raises:
        Refused: by `admission_check`.
    """
    project = access_project_to_book(actor, request.project, "project")
    request = request if without else by_cost(project, request, now)
    admission = _admitted(project, request, Asker(actor.user_id, without, zone=request.zone), now, after)
    request = replace(request, ask=admission.ask)
    workload = workload_named(request.name, request.labels, request.ask.to_json())
    campaign_id, market = _campaign_of(project, request), Market.read(now)
    restraints = restraints_of(project, actor.user_id, campaign_id, now)
    asked = _questions(actor, admission, request, project, market)
    questions = [_restrained(each, request.ask, restraints) for each in asked]
    found, blocked = _found(site := _site(now, without), questions, request)
    priced = _priced(found, actor, admission, plain := _without_kind(request), market)
    options = tuple(priced if after is None else (estimated(each, market) for each in priced))
    if runs is not None:
        options = tuple(array_ends(site, options, {each.tier: each for each in questions}, runs))
    starts = options[0].starts if options else admission.not_before
    stopped = None
    if not without:  # A booking that is made already keeps its place.
        stopped = _stopped(project, actor, campaign_id, starts, restraints)
        stopped = stopped or _uncovered(project, actor, campaign_id, admission, options)
    blocking, waits = stopped or _blocked(blocked)
    return Quote(
        () if stopped else options,
        blocking,
        _effect(project, actor, campaign_id, starts),
        now + PRICE_LOCK_TIME,
        price_lock(now),
        waits,
        asks_hook=without is None and hook_decides(actor.tenant_id),
        lengths=tuple(work_lengths(admission.ask, project.id)),
        workload=workload,
        advice=() if without else _advice(project, plain, workload, options, now),
        diverted="" if request.diversion is None else str(request.diversion.sentence),
        is_stopped=stopped is not None,
    )


def _campaign_of(project: Project, request: BookingRequest) -> UUID | None:
    campaign = campaign_to_charge(project, request.campaign, request.labels, request.external_ref)
    return None if campaign is None else campaign.id


def _advice(
    project: Project,
    request: BookingRequest,
    workload: str,
    options: Sequence[QuoteOption],
    now: datetime,
) -> tuple[Advice, ...]:
    """Advice for the request in the hours of its first option; without an option, from now on."""
    starts = options[0].starts if options else now
    seconds = round((options[0].ends - starts).total_seconds()) if options else request.ask.duration
    quoted = Quoted(project, request.ask, request.tier, workload, request.zone, starts, seconds)
    return quote_advice(quoted, now)


def _site(now: datetime, without: Booking | None) -> Availability:
    """The published plan under the policy in force; the booking in `without` counts as cancelled."""
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    return Availability(published_snapshot(now, policy, without), policy)


def _without_kind(request: BookingRequest) -> BookingRequest:
    """The request without its kind of work where cost has put its classes in order: an option is of one
    class, and has its length there."""
    if request.diversion is None:
        return request
    return replace(request, ask=replace(request.ask, workload=None))


def _effect(
    project: Project, actor: Actor, campaign_id: UUID | None, starts: datetime
) -> BudgetFigures | None:
    """The figures of the budget that has the least left at the start."""
    return tightest_figures(
        project_id=project.id, person_id=actor.user_id, campaign_id=campaign_id, at=starts
    )


def _stopped(
    project: Project, actor: Actor, campaign_id: UUID | None, starts: datetime, restraints: AbstractSet[str]
) -> tuple[str, bool] | None:
    """What stops a booking that is made now, and whether it waits; None: nothing does."""
    refusal = new_bookings_refusal(project, actor.user_id, campaign_id, starts)
    if refusal is not None:
        return refusal.sentence, False
    return None if restraints.isdisjoint(STOPPING) else (STARTS_NOTHING, True)


def _uncovered(
    project: Project,
    actor: Actor,
    campaign_id: UUID | None,
    admission: Admission,
    options: Sequence[QuoteOption],
) -> tuple[str, bool] | None:
    """What refuses a booking for days without a budget, in the window for which its money is held."""
    if not options:
        return None
    starts = admission.not_before
    ends = starts + timedelta(seconds=max(map(admission.seconds_on, admission.units)))
    hold = HoldRequest(uuid4(), options[0].most, starts, ends, actor.user_id, campaign_id)
    refusal = uncovered_refusal(tenant_id=project.tenant_id, project_id=project.id, request=hold)
    return None if refusal is None else (refusal.sentence, False)


def _admitted(
    project: Project, request: BookingRequest, asker: Asker, now: datetime, after: datetime | None
) -> Admission:
    """Admits the request, which starts at `after` at the earliest."""
    found = admission_check(project=project, tier_slug=request.tier, ask=request.ask, now=now, asker=asker)
    return found if after is None else replace(found, not_before=max(found.not_before, after))


def _restrained(question: QuoteRequest, ask: AskDocument, restraints: AbstractSet[str]) -> QuoteRequest:
    """Returns the question as the ladders of its budgets have it answered."""
    is_cheaper = "cheaper" in restraints and is_cheapest_first(ask) and not question.fixed
    return replace(question, within="no_borrowing" in restraints, cheapest=question.cheapest or is_cheaper)


def _found(
    site: Availability, questions: Sequence[QuoteRequest], request: BookingRequest
) -> tuple[list[Option], Reason | None]:
    """Returns the best options in its own tier and those as asked in others, and what blocks its own."""
    own, *others = [
        site.quote(question, only_as_asked=number > 0) for number, question in enumerate(questions)
    ]
    in_other_tiers = (each for other in others for each in other.options)
    mine = (_to_named_end(site, questions[0], request.ask, each) for each in own.options)
    found = [*mine, *(each for each in in_other_tiers if each.kind == "as_asked")]
    return _chosen(found, _on_each_class(site, questions[0], request.diversion)), own.blocked


def _on_each_class(site: Availability, question: QuoteRequest, diversion: Event | None) -> list[Option]:
    """The request on each of its classes where learnt cost orders them, in that order: who wants another one
    than the cheapest sees what it costs and when it starts."""
    if diversion is None:
        return []
    of_one = (
        replace(question, ask=replace(question.ask, classes=(each,))) for each in diversion.detail["costs"]
    )
    found = (site.quote(each, only_as_asked=True).options for each in of_one)
    return [each for options in found for each in options if each.kind == "as_asked"]


def _chosen(found: Sequence[Option], listed: Sequence[Option]) -> list[Option]:
    """What is listed in any case, and the best of the others."""
    same = {(each.gpu_class, each.tier, each.kind) for each in listed}
    others = [each for each in found if (each.gpu_class, each.tier, each.kind) not in same]
    best = best_options([*listed, *others], MAX_OPTIONS + len(listed))
    return [*listed, *(each for each in best if each not in listed)][: max(MAX_OPTIONS, len(listed))]


def _with_step_cost(option: QuoteOption, learnt: Mapping[str, Any]) -> QuoteOption:
    """Returns the option with what finished runs say of the cost of its steps at present prices."""
    cost = learnt["costs"].get(option.gpu_class)
    if cost is None or option.kind != "as_asked":
        return option
    note = note_text(
        "step_cost",
        unit=learnt["unit"],
        workload=learnt["workload"],
        cost=money_text(Decimal(cost) * 1_000, option.currency),
        runs=learnt["runs"][option.gpu_class],
    )
    return replace(option, notes=(*option.notes, note))


def _to_named_end(site: Availability, question: QuoteRequest, ask: AskDocument, option: Option) -> Option:
    """The option of another date until the local time that the request named, where it is free until then:
    a change of clocks makes its window shorter or longer."""
    if option.kind != "later" or question.lengths:
        return option
    duration = ask.starting(instant(option.starts)).duration
    if duration in (ask.duration, option.ends - option.starts):
        return option
    other = replace(question, earliest=option.starts, latest=None, duration=duration, fixed=True)
    again = site.quote(other, only_as_asked=True).options
    found = (each for each in again if each.kind == "as_asked" and each.gpu_class == option.gpu_class)
    return next((replace(each, kind="later") for each in found), option)


def _priced(
    found: Iterable[Option],
    actor: Actor,
    admission: Admission,
    request: BookingRequest,
    market: Market,
) -> Iterator[QuoteOption]:
    """Yields them with price and notes."""
    ask, zone = request.ask, ZoneInfo(request.zone)
    if ask.not_before is not None and ask.not_before <= market.now:
        ask = replace(ask, not_before=None)
    tiers = {tier.slug: tier for tier in Tier.objects.all()}
    for each in found:
        option = quote_option(each, (tiers[each.tier], admission.tier), ask, zone, market)
        if option is None:
            continue
        is_own = option.tier == admission.tier.slug
        if request.diversion is not None and is_own:
            # What was learnt is priced in the requested tier.
            option = _with_step_cost(option, request.diversion.detail)
        yield option if is_own else _with_missing(option, actor, request.project, market.now)


def _blocked(found: Reason | None) -> tuple[str | None, bool]:
    """Why there is no option, in words, and whether a booking would wait in the queue."""
    if found is None:
        return None, False
    return sentence(found), found.code == "none_in_service"


def _with_missing(option: QuoteOption, actor: Actor, project: str, now: datetime) -> QuoteOption:
    """Returns the option of another tier with a note of a text or training that is missing."""
    use = IntendedUse(actor.tenant_id, actor.user_id, option.tier, project, option.ask.all_classes)
    unmet = demand_unmet(use, now)
    if unmet is None:
        return option
    return replace(option, notes=(unmet.sentence, *option.notes), to_accept=unmet.to_accept)


def cheapest_first(quote: Quote, ask: AskDocument, tier: str | None) -> Quote:
    """Returns the quote with the lowest price of what is asked first, then other offers by price.

    `ask` is the request before its `cheapest_class`, `tier` the one that it names, if it does.
    """
    asked = ask.all_classes

    def place(each: QuoteOption) -> tuple[bool, bool, bool, Decimal]:
        is_less = each.kind not in ("as_asked", "later")
        return each.gpu_class not in asked, tier not in (None, each.tier), is_less, each.price

    return replace(quote, options=tuple(sorted(quote.options, key=place)))


def cheapest_class(ask: AskDocument, tier: str | None, now: datetime) -> AskDocument:
    """Returns the ask on its cheapest class in the tier, or in any; the first of equals."""
    if ask.groups:
        return ask
    units = ask_units(ask)
    costs: dict[str, Decimal] = {}
    for (gpu_class, of_tier), price in PriceShelf.read(now).on(priced_from(ask, now)).items():
        if gpu_class in units and tier in (None, of_tier):
            rate = rate_for(price, ask, units[gpu_class])
            cost = most_of(rate, ask.starts, ask.duration)
            costs[gpu_class] = min(cost, costs.get(gpu_class, cost))
    known = [name for name in ask.classes if name in costs]
    return replace(ask, classes=(min(known, key=lambda name: costs[name]),)) if known else ask


def _questions(
    actor: Actor, admission: Admission, request: BookingRequest, project: Project, market: Market
) -> Iterator[QuoteRequest]:
    """Yields the request in its own tier, then in each other tier that allows its length."""
    ask = solver_ask(request.ask)
    known = market.costs(admission)
    if is_cheapest_first(request.ask) and known:
        ask = replace(ask, classes=classes_by_cost(request.ask, known))
    elif request.ask.workload is not None:
        ask = replace(ask, classes=tuple(admission.units))
    question = QuoteRequest(
        ask=ask,
        duration=min(map(admission.seconds_on, admission.units)),
        earliest=seconds(admission.not_before),
        latest=seconds(request.ask.deadline) if request.ask.deadline else None,
        fixed=request.ask.starts is not None,
        tenant=str(project.tenant_id),
        project=str(project.id),
        lengths=admission.lengths,
        reference=request.ask.classes[0],
        owner=str(actor.user_id),
        cheapest=is_cheapest_first(request.ask)
        and (request.ask.deadline is not None or request.diversion is not None),
    )
    others = Tier.objects.exclude(slug=admission.tier.slug)
    for tier in (
        admission.tier,
        *others.filter(max_duration_seconds__gte=question.duration).order_by("-priority", "slug"),
    ):
        yield replace(
            question,
            tier=tier.slug,
            priority=tier.priority,
            rates=market.rates(tier.slug, admission),
            risks=market.risks(tier),
        )


def array_ends(
    site: Availability,
    options: Iterable[QuoteOption],
    questions: Mapping[str, QuoteRequest],
    runs: Runs,
) -> Iterator[QuoteOption]:
    """Yields options of one run with the estimated end of the last of all runs, and what the
    estimate assumes. `questions` are those of the quote by tier."""
    for option in options:
        question = replace(
            questions[option.tier],
            ask=solver_ask(option.ask),
            duration=int((option.ends - option.starts).total_seconds()),
            earliest=seconds(option.starts),
            lengths={},
        )
        last = site.last_run(question, runs)
        note = note_text("array_end", count=last.at_once)
        yield replace(
            option,
            last_end=max(option.ends, instant(last.ends)),
            runs_at_once=last.at_once,
            notes=(note, *option.notes),
        )
