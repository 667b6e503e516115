"""Requests for more than a limit allows: what is asked, who decides, and who may ask."""

from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from allocation.access import access_booking_to_change
from allocation.features.overrides.amounts import amount_typed
from allocation.features.overrides.log import override_record
from allocation.models import Booking, Override
from allocation.rules.states import TERMINAL, State
from allocation.services.tiers.limits import tier_limits
from allocation.words.refusals import refusal_text
from billing.access import access_budget
from billing.models import Budget
from tenants.access import Actor, access_project_to_book, require_in_reach
from tenants.models import GpuClass, Tier
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.forms.actions import id_text_read
from tenants.platform.terms import term, terms
from tenants.services.input_values import name_read

MOST_OPEN = 20
MOST_TEXT = 200
# Limits of a tier: an exception is for the person who asked for it.
OF_TIERS = (
    Override.Kind.LENGTH,
    Override.Kind.SHORTER,
    Override.Kind.NOTICE,
    Override.Kind.START_HOURS,
    Override.Kind.TIER_CLASS,
    Override.Kind.TIER_AUDIENCE,
    Override.Kind.OPEN_BOOKINGS,
    Override.Kind.OPEN_GPUS,
)
# Rules without a number: an exception lifts them.
LIFTED = (Override.Kind.START_HOURS, Override.Kind.TIER_CLASS, Override.Kind.TIER_AUDIENCE)
_OF_CLASSES = (*Override.OF_QUOTA, Override.Kind.GPU_HOURS, Override.Kind.TIER_CLASS)
_OF_PEOPLE = (Override.Kind.OPEN_BOOKINGS, Override.Kind.OPEN_GPUS)


AMOUNT = "On top of the limit: GPUs, GPU-hours, money, seconds or bookings."


def _budget_read(text: str, *, param: str) -> UUID:
    return id_text_read(text, param, "budget")


@terms
class OverrideTerms:
    """What is asked for. A refusal has these fields filled in as `ask_for_more`."""

    kind: str = term("Limit", max_length=16)
    amount: str = term("How much more", says=AMOUNT, max_length=20)
    project: str = term("Project", default="", max_length=40)
    gpu_class: str = term("GPU class", default="", max_length=40)
    tier: str = term("Tier", default="", max_length=40)
    budget: UUID | None = term("Budget", reads=_budget_read, default=None)
    booking: str = term("Booking", says="Only for this booking.", default="", max_length=40)
    once: bool = term(says="For one booking of this length.", default=False)
    until: datetime | None = term(
        "Until (optional)",
        "Empty: the person who decides sets the day.",
        asks="last_day",
        default=None,
    )
    reason: str = term("Reason (optional)", default="", max_length=200, allow_blank=True)
    give: bool = term(says="Grants it at once; for the owner of the limit.", default=False)


def overrides_visible(actor: Actor) -> QuerySet[Override]:
    """Returns what the actor asked for or can use, and what their projects have or asked for if
    they lead them."""
    rows = Override.objects.filter(tenant_id=actor.tenant_id).select_related(
        "project",
        "person",
        "gpu_class",
        "tier",
        "budget",
        "booking",
        "asked_by",
        "decided_by",
        "tenant",
    )
    if actor.is_tenant_admin:
        return rows
    led = [project for project in actor.roles if actor.may_lead(project)]
    mine = Q(asked_by=actor.user_id) | Q(person=actor.user_id)
    if actor.only_project is not None:
        mine &= Q(project=actor.only_project)
    granted = Q(person=None, state__in=[Override.State.GRANTED, Override.State.ENDED])
    own = Q(project__in=list(actor.roles)) | Q(project=None)
    return rows.filter(mine | Q(project__in=led) | (granted & own & Q(budget=None)))


def access_override(actor: Actor, override_id: UUID) -> Override:
    """Returns an override that the actor may see.

    Raises:
        Refused: `not_found`.
    """
    found = overrides_visible(actor).filter(id=override_id).first()
    if found is None:
        raise missing("request")
    return found


def override_ask(*, actor: Actor, terms: OverrideTerms, now: datetime) -> Override:
    """Asks the owner of a limit for more.

    Raises:
        Refused: `not_found`, `not_allowed`, `project_closed`, `bad_kind`, `bad_amount`,
            `bad_until`, `bad_reason`, `booking_over`, `too_many_overrides`,
            `override_asked`.
    """
    row = override_of(actor, terms, now)
    require_in_reach(actor, row.project)
    row.asked_by_id = actor.user_id
    if row.is_once or row.kind in OF_TIERS:
        row.person_id = actor.user_id
    _open_check(actor)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError as error:
        if "override_asked_once" not in str(error):
            raise
        raise Refused("override_asked", refusal_text("override_asked")) from error
    override_record(actor.user_id, "override.asked", row, now)
    return row


def override_of(actor: Actor, terms: OverrideTerms, now: datetime) -> Override:
    """Returns the unsaved row of what is asked for; every name in it is one that the actor may see.

    Raises:
        Refused: see `override_ask`.
    """
    kind = kind_read(terms.kind)
    project = access_project_to_book(actor, terms.project, "project") if terms.project else None
    booking = _booking_read(actor, terms.booking)
    if booking is not None:
        project = project and booking.project
    row = Override(
        tenant_id=actor.tenant_id,
        kind=kind,
        project=project,
        amount=amount_read(kind, amount_typed(kind, terms.amount)),
        is_once=terms.once or booking is not None,
        booking=booking,
        until=None if terms.once or booking is not None else terms.until,
        asked=now,
        reason=_text_read(terms.reason),
    )
    _subject_set(actor, row, terms)
    until_check(row.until, now)
    is_of_booking = kind in Override.OF_QUOTA and booking is not None
    if row.is_once and kind != Override.Kind.LENGTH and not is_of_booking:
        raise invalid("bad_kind", refusal_text("override_never_once"), "once")
    return row


def kind_read(text: str) -> Override.Kind:
    """The kind of this name. Raises Refused `bad_kind`."""
    if text not in Override.Kind.values:
        known = ", ".join(Override.Kind.values)
        raise invalid("bad_kind", refusal_text("override_kind", known=known), "kind")
    return Override.Kind(text)


def amount_read(kind: Override.Kind, amount: Decimal) -> Decimal:
    """The amount, if the kind can have it. Raises Refused `bad_amount`."""
    is_whole = kind in (Override.Kind.BUDGET, Override.Kind.GPU_HOURS) or amount == int(amount)
    if not amount.is_finite() or not 0 < amount <= Override.MOST[kind] or not is_whole:
        raise invalid("bad_amount", refusal_text("override_amount"), "amount")
    return amount


def until_check(until: datetime | None, now: datetime) -> None:
    """Raises Refused `bad_until` unless the end is in the future and within two years."""
    if until is not None and not 0 < (until - now).total_seconds() <= 2 * 366 * 86_400:
        raise invalid("bad_until", refusal_text("override_until"), "until")


def decider_of(row: Override) -> Override.Decider:
    """Who owns the limit, and so decides."""
    if row.tier is not None and is_beyond_bounds(row):
        return Override.Decider.OPERATOR
    if row.budget is not None and row.budget.level in (Budget.Level.CAMPAIGN, Budget.Level.PERSON):
        return Override.Decider.LEAD
    if row.kind == Override.Kind.PERSON_QUOTA and row.project is not None:
        return Override.Decider.LEAD
    is_quota = row.kind in (Override.Kind.QUOTA, Override.Kind.GPU_HOURS)
    if is_quota and row.project is None:
        return Override.Decider.OPERATOR
    return Override.Decider.TENANT_ADMIN


def is_beyond_bounds(row: Override) -> bool:
    """Whether the operator's bound of the tier is lower than what the row gives."""
    if row.tier is None or row.kind in LIFTED:
        return False
    limits, amount = tier_limits(row.tenant_id, row.tier, row.asked), int(row.amount)
    bounds = limits.bounds
    if row.kind == Override.Kind.LENGTH:
        return (limits.longest.value or 0) + amount > (bounds.longest or 0)
    if row.kind == Override.Kind.SHORTER:
        return (limits.shortest.value or 0) - amount < (bounds.shortest or 0)
    if row.kind == Override.Kind.OPEN_BOOKINGS:
        most = bounds.most_open
        return most is not None and (limits.most_open.value or 0) + amount > most
    if row.kind == Override.Kind.OPEN_GPUS:
        most = bounds.most_gpus
        return most is not None and (limits.most_gpus.value or 0) + amount > most
    # It counts in both directions, so it must stay within both bounds to be an admin's.
    is_soon = (limits.least_lead.value or 0) - amount < (bounds.least_lead or 0)
    is_far = (limits.most_lead.value or 0) + amount > (bounds.most_lead or 0)
    return is_soon and is_far


def _subject_set(actor: Actor, row: Override, terms: OverrideTerms) -> None:
    """Sets what the limit is about, and who decides."""
    kind = Override.Kind(row.kind)
    if kind == Override.Kind.BUDGET:
        if terms.budget is None:
            raise missing("budget", "budget")
        row.budget = access_budget(actor, terms.budget)
        row.project = row.budget.project
    if kind in _OF_CLASSES:
        row.gpu_class = GpuClass.objects.filter(slug=terms.gpu_class).first()
        if row.gpu_class is None:
            raise missing("GPU class", "gpu_class")
    if kind in OF_TIERS:
        _tier_set(row, terms.tier)
    if row.project is None and kind in (*OF_TIERS, Override.Kind.LAB_QUOTA):
        raise missing("project", "project")
    if kind == Override.Kind.PERSON_QUOTA:
        row.person_id = row.booking.owner_id if row.booking else actor.user_id
    row.decider = decider_of(row)


def _tier_set(row: Override, slug: str) -> None:
    row.tier = Tier.objects.filter(slug=slug).first() if slug else None
    if row.tier is None and row.kind not in _OF_PEOPLE:
        raise missing("tier", "tier")


def _booking_read(actor: Actor, label: str) -> Booking | None:
    if not label:
        return None
    booking = access_booking_to_change(actor, label)
    if State(booking.state) in TERMINAL:
        state = booking.get_state_display().lower()
        raise Refused("booking_over", refusal_text("booking_over", label=booking.label, state=state))
    return booking


def _text_read(text: str) -> str:
    if not text.strip():
        return ""
    try:
        return name_read(text, param="reason", longest=MOST_TEXT)
    except Refused:
        sentence = refusal_text("override_reason", most=MOST_TEXT)
        raise invalid("bad_reason", sentence, "reason") from None


def _open_check(actor: Actor) -> None:
    mine = Override.objects.filter(
        tenant_id=actor.tenant_id, asked_by=actor.user_id, state=Override.State.ASKED
    )
    if mine.count() >= MOST_OPEN:
        raise Refused(
            "too_many_overrides",
            refusal_text("too_many_overrides", most=MOST_OPEN),
            numbers={"most": MOST_OPEN},
        )
