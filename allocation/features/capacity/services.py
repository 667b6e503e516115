"""Plans of capacity: asked for, approved, cancelled and ended."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.features.capacity.models import CapacityMachine, CapacityPlan
from allocation.features.capacity.money import plan_hold, plan_release
from allocation.features.capacity.pooling import bookings_unpool
from allocation.features.capacity.providers import offers
from allocation.features.capacity.rules import MOST_GPUS, Offer, best_offer
from allocation.models import Booking
from allocation.queries.fleet.stops import stop_sentence, stops_covering
from allocation.words.refusals import refusal_text
from billing.rules import money_text
from tenants.access import Actor, access_project, access_project_to_book, may_still_book
from tenants.audit import audit_record, audited
from tenants.models import GpuClass, Project
from tenants.outbox import task_request
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.platform.terms import term, terms

TASK = "capacity.turn"
LONGEST = timedelta(days=92)
MOST_OPEN = 20
MOST_COST = Decimal(1_000_000)
LOGGED = ("project", "gpu_class_id", "gpus", "starts", "until", "most_cost", "source")
Source = Literal["person", "sprint", "backlog", "forecast"]


@terms
class PlanTerms:
    """GPUs to rent for a project, for at most so much money."""

    project: str = term("Project", says="Its budget pays, and its bookings use the machines.", max_length=40)
    gpu_class: str = term("Class", max_length=40)
    count: int = term("GPUs at the same time", min_value=1, max_value=MOST_GPUS)
    starts: datetime | None = term("Starts (empty: now)", asks="moment", says="Null: now.", default=None)
    until: datetime = term("Ends", asks="moment", says="At most 92 days after the start.")
    most_cost: Decimal = term(
        "Spend at most",
        "In the currency of the offers; it is held in the budget of the project.",
        says="In the currency of the offers.",
        max_digits=12,
        decimal_places=2,
        min_value=Decimal("0.01"),
        max_value=MOST_COST,
    )
    source: Source = term(says="What asks for it.", default="person")


@dataclass(frozen=True, slots=True)
class Cause:
    """What a plan is made for. `decided_by`: the lead whose rule decides it; a proposal waits for one."""

    booking: Booking | None = None
    reference: str = ""
    decided_by: int | None = None
    is_proposal: bool = False


BY_PERSON = Cause()


def plan_create(
    *,
    actor: Actor,
    terms: PlanTerms,
    now: datetime,
    cause: Cause = BY_PERSON,
) -> CapacityPlan:
    """Makes a plan. It is active if a lead makes it or has decided it by a rule, or for a booking; else,
    and as a proposal, it waits for a lead.

    Raises:
        Refused: `not_found`, `not_allowed`, `bad_until`, `no_offer`, `most_cost_too_little`,
            `too_many_plans`, `stopped`, or what the budget says.
    """
    project = access_project_to_book(actor, terms.project, "project")
    starts = max(terms.starts or now, now)
    if not timedelta(0) < terms.until - starts <= LONGEST:
        raise invalid("bad_until", refusal_text("capacity_until", most=LONGEST.days), "until")
    offer = _offer_of(terms)
    _stop_check(project, terms.gpu_class, now)
    is_decided = cause.booking is not None or cause.decided_by is not None
    is_active = is_decided or (actor.may_lead(project.id) and not cause.is_proposal)
    with transaction.atomic():
        _check_open(project)
        plan = CapacityPlan.objects.create(
            id=uuid4(),
            tenant_id=actor.tenant_id,
            project=project,
            gpu_class_id=terms.gpu_class,
            gpus=terms.count,
            starts=starts,
            until=terms.until,
            most_cost=terms.most_cost,
            currency=offer.currency,
            source=terms.source,
            booking=cause.booking,
            reference=cause.reference,
            state=CapacityPlan.State.ACTIVE if is_active else CapacityPlan.State.PROPOSED,
            created=now,
            created_by_id=actor.user_id,
            made_with_id=actor.token_id,
            decided_by_id=(cause.decided_by or actor.user_id) if is_active else None,
        )
        if is_active:
            plan_hold(plan, now)
        audited(actor, "capacity_plan.made", plan, now, *LOGGED)
        task_request(TASK)
    return plan


def _offer_of(terms: PlanTerms) -> Offer:
    """The cheapest offer; its first paid period has to be within the plan's money."""
    if not GpuClass.objects.filter(slug=terms.gpu_class).exists():
        raise missing("GPU class", "gpu_class")
    offer = best_offer(offers(), terms.gpu_class, terms.count, 0)
    if offer is None:
        raise invalid("no_offer", refusal_text("no_offer", gpu_class=terms.gpu_class), "gpu_class")
    least = offer.cost(0) * offer.machines_for(terms.count)
    if terms.most_cost < least:
        text = refusal_text("most_cost_too_little", least=money_text(least, offer.currency))
        raise invalid("most_cost_too_little", text, "most_cost")
    return offer


def _stop_check(project: Project, gpu_class: str, now: datetime) -> None:
    stops = stops_covering(project.tenant_id, "", (gpu_class,), now)
    if stops:
        raise Refused("stopped", stop_sentence(stops[0], now), "conflict", frees_at=stops[0].until)


def _check_open(project: Project) -> None:
    Project.objects.select_for_update().get(id=project.id)
    if CapacityPlan.objects.filter(project=project, state__in=CapacityPlan.OPEN).count() >= MOST_OPEN:
        raise Refused("too_many_plans", refusal_text("too_many_plans", most=MOST_OPEN))


def plan_approve(*, actor: Actor, plan_id: UUID, now: datetime) -> CapacityPlan:
    """Makes a proposed plan active and holds its money. Idempotent.

    Raises:
        Refused: `not_found`, `not_allowed`, `plan_over`, `asker_left`, or what the budget says.
    """
    with transaction.atomic():
        plan = _led(actor, plan_id)
        if plan.state == plan.State.ACTIVE:
            return plan
        if plan.state != plan.State.PROPOSED or plan.until <= now:
            raise Refused("plan_over", refusal_text("plan_over"))
        if not may_still_book(plan.created_by_id, plan.project):
            raise Refused("asker_left", refusal_text("asker_left"))
        _stop_check(plan.project, plan.gpu_class_id, now)
        plan.state, plan.decided_by_id = plan.State.ACTIVE, actor.user_id
        plan.save(update_fields=["state", "decided_by"])
        plan_hold(plan, now)
        audited(actor, "capacity_plan.approved", plan, now, *LOGGED)
        task_request(TASK)
    return plan


def plan_cancel(*, actor: Actor, plan_id: UUID, now: datetime) -> CapacityPlan:
    """Cancels a plan: by who made it, or a lead. What runs on its machines runs to its end. Idempotent.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    with transaction.atomic():
        plan = _visible_one(actor, plan_id)
        if plan.created_by_id != actor.user_id and not actor.may_lead(plan.project_id):
            raise denied(refusal_text("capacity_leads"))
        if plan.state in CapacityPlan.OPEN:
            plan.decided_by_id = actor.user_id
            plan_close(plan, plan.State.CANCELLED, now)
            audited(actor, "capacity_plan.cancelled", plan, now, *LOGGED)
            task_request(TASK)
    return plan


def plans_visible(actor: Actor) -> QuerySet[CapacityPlan]:
    """The plans of the actor's projects; admins see all of the organisation."""
    rows = CapacityPlan.objects.filter(tenant_id=actor.tenant_id)
    rows = rows.select_related("project", "gpu_class", "created_by", "booking")
    if actor.only_project is not None:
        rows = rows.filter(project=actor.only_project)
    return rows if actor.is_tenant_admin else rows.filter(project__in=list(actor.roles))


def machines_visible(actor: Actor) -> QuerySet[CapacityMachine]:
    """The machines of these plans."""
    rows = CapacityMachine.objects.filter(plan__in=plans_visible(actor).values("id"))
    return rows.select_related("plan__project", "gpu_class")


def plan_one(actor: Actor, plan_id: UUID) -> CapacityPlan:
    """One plan. Raises Refused `not_found`."""
    plan = plans_visible(actor).filter(id=plan_id).first()
    if plan is None:
        raise missing("plan")
    return plan


def _visible_one(actor: Actor, plan_id: UUID) -> CapacityPlan:
    plan = plans_visible(actor).select_for_update(of=("self",)).filter(id=plan_id).first()
    if plan is None:
        raise missing("plan")
    return plan


def _led(actor: Actor, plan_id: UUID) -> CapacityPlan:
    plan = _visible_one(actor, plan_id)
    if not actor.may_lead(plan.project_id):
        raise denied(refusal_text("capacity_leads"))
    return plan


def project_may_plan(actor: Actor, slug: str) -> Project:
    """A project whose plans the actor leads. Raises Refused `not_found` or `not_allowed`."""
    project = access_project(actor, slug)
    if not actor.may_lead(project.id):
        raise denied(refusal_text("capacity_leads"))
    return project


def plans_end(now: datetime) -> int:
    """Ends plans whose time or booking is over, and gives their money back; returns how many."""
    over = CapacityPlan.objects.filter(state__in=CapacityPlan.OPEN).filter(
        Q(until__lte=now) | Q(booking__isnull=False, booking__ended_at__isnull=False)
    )
    for key in list(over.order_by("id").values_list("id", flat=True)):
        with transaction.atomic():
            plan = CapacityPlan.objects.select_for_update().get(id=key)
            if plan.state in CapacityPlan.OPEN:
                plan_close(plan, plan.State.ENDED, now)
    return len(over)


def plans_of_departed_cancel(now: datetime) -> int:
    """Cancels what was planned for projects that were closed, and by people who may book there no more;
    returns how many."""
    rows = CapacityPlan.objects.filter(state__in=CapacityPlan.OPEN).select_related("project")
    left = [row.id for row in rows.order_by("id") if not may_still_book(row.created_by_id, row.project)]
    for key in left:
        with transaction.atomic():
            plan = CapacityPlan.objects.select_for_update(of=("self",)).select_related("project").get(id=key)
            if plan.state in CapacityPlan.OPEN:
                plan.note = "Who made it has left." if plan.project.is_open else "The project is closed."
                plan_close(plan, plan.State.CANCELLED, now)
                audit_record(
                    tenant_id=plan.tenant_id,
                    actor_id=None,
                    action="capacity_plan.cancelled",
                    target=("capacity_plan", plan.id),
                    now=now,
                    detail={"project": plan.project.slug, "why": plan.note},
                )
    return len(left)


def plan_close(plan: CapacityPlan, state: str, now: datetime) -> None:
    """Ends a locked plan: it gets no more machines, and keeps the money of those that it has."""
    plan.state, plan.ended = state, now
    plan.save(update_fields=["state", "ended", "note", "decided_by"])
    if not plan.machines.filter(state__in=CapacityMachine.OPEN).exists():
        plan_release(plan, now)
    if not plan.machines.filter(state=CapacityMachine.State.READY).exists():
        bookings_unpool(plan, now)
