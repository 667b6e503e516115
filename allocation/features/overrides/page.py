"""Pages of overrides: what people ask for beyond a limit, and what was granted."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Q

from allocation.features.overrides.amounts import OF_TIME, amount_editable, amount_words
from allocation.features.overrides.decisions import (
    USUAL,
    GrantTerms,
    Owner,
    RefusalTerms,
    may_decide,
    override_decline,
    override_end,
    override_grant,
    override_withdraw,
)
from allocation.features.overrides.requests import (
    LIFTED,
    OF_TIERS,
    OverrideTerms,
    override_ask,
    overrides_visible,
)
from allocation.models import Override
from allocation.queries.bookings.money.projects import quota_of
from allocation.web.bookings.booking_pages import page_context
from allocation.web.bookings.page_context import PageContext
from allocation.web.parts.times import moment_words
from tenants.access import Actor, PlatformActor
from tenants.models import GpuClass, Project
from tenants.platform.terms import term, terms
from tenants.queries import tiers_all
from tenants.rules.operator_roles import Area
from tenants.services.input_values import gpus_text, seconds_text
from tenants.web.form_page import Act, form_page, operator_form_page
from tenants.web.parts import Field, counted

MOST_SHOWN = 50
MOST_OF_SITE = 100
MOST_OVER = 10
MOST_DIGITS = 10
ASKED = ("kind", "amount", "project", "gpu_class", "tier", "budget", "booking")
_UNITS = {
    Override.Kind.QUOTA: "More GPUs at the same time",
    Override.Kind.GPU_HOURS: "More GPU-hours",
    Override.Kind.BUDGET: "More budget",
    Override.Kind.LAB_QUOTA: "More GPUs at the same time",
    Override.Kind.PERSON_QUOTA: "More GPUs at the same time",
    Override.Kind.LENGTH: "Longer by",
    Override.Kind.SHORTER: "Shorter by",
    Override.Kind.NOTICE: "Earlier or later by",
    Override.Kind.OPEN_BOOKINGS: "More open bookings",
    Override.Kind.OPEN_GPUS: "More GPUs at the same time",
}
_DECIDERS = {
    Override.Decider.OPERATOR: "an operator",
    Override.Decider.TENANT_ADMIN: "an admin of the organisation",
    Override.Decider.LEAD: "a lead of the project",
}


@terms
class DeclineForm(RefusalTerms):
    """Why it is declined. The service says that it is needed."""

    reason: str = term("Reason", default="", max_length=200)


@dataclass(frozen=True, slots=True)
class OverrideCard:
    """One request or override, in words. `until`: the day that is offered as its end."""

    row: Override
    what: str
    amount: str
    until: datetime
    is_mine: bool
    whose: str = ""
    person: str = ""
    when: str = ""
    decides: bool = True
    decider: str = ""

    @property
    def has_amount(self) -> bool:
        """Whether it is about a number."""
        return self.row.kind not in LIFTED


def _shown(actor: Actor, now: datetime, **asked: str) -> dict[str, Any]:
    """Requests and overrides that the reader may see, and the form of what the address asks for."""
    ctx = page_context(actor, now)
    cards = [_card(actor, row, ctx) for row in overrides_visible(actor)[:MOST_SHOWN]]
    return {
        "waiting": [card for card in cards if card.row.state == Override.State.ASKED],
        "in_force": [card for card in cards if _is_in_force(card.row, now)],
        "over": [_over(card, ctx) for card in cards if _is_over(card.row, now)][:MOST_OVER],
        "ask": _asked_for(actor, asked, now) if asked["kind"] in Override.Kind.values else None,
        "starts": [] if asked["kind"] else _starts(actor, ctx),
    }


def _of_site(operator: PlatformActor, now: datetime) -> dict[str, Any]:
    """Requests to operators, and all overrides in force."""
    rows = Override.objects.select_related(
        "tenant", "project", "gpu_class", "tier", "booking", "asked_by", "decided_by", "budget"
    )
    waiting = rows.filter(state=Override.State.ASKED, decider=Override.Decider.OPERATOR)
    dated = Q(until=None, is_once=True) | Q(until__gt=now)
    in_force = rows.filter(dated, state=Override.State.GRANTED).order_by("until", "id")
    return {
        "waiting": [_plain_card(operator, row, now) for row in waiting.order_by("asked")[:MOST_OF_SITE]],
        "in_force": [_plain_card(operator, row, now) for row in in_force[:MOST_OF_SITE]],
    }


def _plain_card(actor: Owner, row: Override, now: datetime) -> OverrideCard:
    until = row.until or now + USUAL
    is_mine = row.asked_by_id == actor.user_id
    return OverrideCard(row, amount_words(row), amount_editable(row), until, is_mine)


def _is_in_force(row: Override, now: datetime) -> bool:
    is_over = row.until is not None and row.until <= now
    return row.state == Override.State.GRANTED and not is_over


def _is_over(row: Override, now: datetime) -> bool:
    return row.state != Override.State.ASKED and not _is_in_force(row, now)


def _over(card: OverrideCard, ctx: PageContext) -> tuple[OverrideCard, str, str]:
    """Returns a past request with what became of it, and the answer."""
    row = card.row
    word = "Over" if row.state == Override.State.GRANTED else row.get_state_display()
    at = row.ended or (row.until if word == "Over" else row.decided) or row.asked
    return card, f"{word} {moment_words(at, ctx.zone, ctx.now)}", row.answer


def _starts(actor: Actor, ctx: PageContext) -> list[tuple[str, str, list[Field]]]:
    """Returns the forms that begin a request without a refusal: heading, kind, and fields."""
    projects = Field("project", "Project", choices=_projects(actor), id="")
    if not projects.choices:
        return []
    classes = Field("gpu_class", "GPU class", choices=list(ctx.labels.items()))
    tiers = Field("tier", "Tier", choices=[(each.slug, each.name) for each in tiers_all()])
    return [
        (heading, kind, [replace(each, id=f"{kind}-{each.name}") for each in (projects, other)])
        for heading, kind, other in (
            ("More GPUs at once", Override.Kind.QUOTA.value, classes),
            ("A longer booking", Override.Kind.LENGTH.value, tiers),
        )
    ]


def _projects(actor: Actor) -> list[tuple[str, str]]:
    rows = Project.objects.filter(tenant_id=actor.tenant_id, is_open=True).order_by("name")
    return [(each.slug, each.name) for each in rows if actor.may_book(each.id)]


def _card(actor: Actor, row: Override, ctx: PageContext) -> OverrideCard:
    person = row.asked_by or row.decided_by
    when = f"asked {moment_words(row.asked, ctx.zone, ctx.now)}"
    if row.until is not None:
        when = f"until {moment_words(row.until, ctx.zone, ctx.now)}"
    elif row.is_once:
        when = f"for {row.booking.label}" if row.booking else "for one booking"
    return replace(
        _plain_card(actor, row, ctx.now),
        whose=row.project.name if row.project else "The organisation",
        person=person.display_name if person else "",
        when=when,
        decides=may_decide(actor, row) and row.asked_by_id != actor.user_id,
        decider=_DECIDERS[Override.Decider(row.decider)],
    )


def _asked_for(actor: Actor, asked: dict[str, str], now: datetime) -> dict[str, object]:
    """What the form of a request says, and its hidden inputs: the numbers of the refusal that leads here."""
    kind = Override.Kind(asked["kind"])
    gpu_class = GpuClass.objects.filter(slug=asked["gpu_class"]).first()
    tier = next((each for each in tiers_all() if each.slug == asked["tier"]), None)
    of = Project.objects.filter(tenant_id=actor.tenant_id, slug=asked["project"]).first()
    about = (tier.name if tier else "", gpu_class.label if gpu_class else "", of.name if of else "")
    hidden = {"kind", "gpu_class", "tier", "budget", "booking"}
    if kind not in OF_TIERS or asked["project"]:
        hidden.add("project")
    if kind in LIFTED:
        hidden.add("amount")
    return {
        "title": _title(kind, about, asked["amount"].strip()),
        "present": _present(of, gpu_class, now) if kind == Override.Kind.QUOTA else "",
        "hidden": hidden,
        "unit": _UNITS.get(kind, ""),
        "is_time": kind in OF_TIME,
    }


def _initial(actor: Actor, **asked: str) -> dict[str, str]:
    """What the form begins with: seconds as people write them, and one of a rule without a number."""
    kind, typed = asked["kind"], asked["amount"].strip()
    if kind in LIFTED:
        return asked | {"amount": "1"}
    is_time = kind in OF_TIME and typed.isascii() and typed.isdecimal() and len(typed) < MOST_DIGITS
    return asked | {"amount": seconds_text(int(typed)) if is_time else typed}


def _title(kind: Override.Kind, about: tuple[str, str, str], amount: str) -> str:
    """`Ask for 2 more H100 80 GB for Protein folding`, or the kind and what it is about."""
    _, gpu_class, project = about
    if kind == Override.Kind.QUOTA and gpu_class:
        number = f"{amount} more" if amount and len(amount) < MOST_DIGITS else "more"
        return f"Ask for {number} {gpu_class} for {project or 'the organisation'}"
    return f"Ask for more: {', '.join(filter(None, [kind.label, *about]))}"


def _present(project: Project | None, gpu_class: GpuClass | None, now: datetime) -> str:
    """`Now 4.643 of 6 GPUs are in use`; empty without a project, a class or a limit."""
    if project is None or gpu_class is None:
        return ""
    for line in quota_of(project=project, now=now):
        if line.gpu_class == gpu_class.slug and line.limit is not None:
            limit = counted(gpus_text(line.limit), line.noun)
            return f"Now {gpus_text(line.used)} of {limit} are in use."
    return ""


def _asked_done(row: Override) -> str:
    decider = _DECIDERS[Override.Decider(row.decider)]
    return f"Asked for {amount_words(row)}. {decider[0].upper()}{decider[1:]} decides."


DECISIONS = (
    Act(
        "grant",
        override_grant,
        lambda row: f"Granted: {amount_words(row)}.",
        key="override",
        noun="request",
        terms=GrantTerms,
    ),
    Act(
        "decline",
        override_decline,
        "Declined. The person reads your reason.",
        key="override",
        noun="request",
        terms=DeclineForm,
    ),
    Act(
        "end",
        override_end,
        "Ended. Running work stays; planned starts are judged anew.",
        key="override",
        noun="request",
    ),
)
urlpatterns = [
    form_page(
        "overrides",
        "overrides",
        "overrides/page.html",
        _shown,
        Act(
            "ask",
            override_ask,
            _asked_done,
            terms=OverrideTerms,
            choices={"project": _projects},
            initial=_initial,
        ),
        *DECISIONS,
        Act("withdraw", override_withdraw, "Withdrawn.", key="override", noun="request"),
        queries=ASKED,
    ),
    operator_form_page(
        "overrides",
        "ops-overrides",
        "overrides/ops.html",
        _of_site,
        *DECISIONS,
        area=Area.RULES,
    ),
]
