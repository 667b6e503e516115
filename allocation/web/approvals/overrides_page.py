"""The page of overrides: what people ask for beyond a limit, and what was granted."""

from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.access import overrides_visible
from allocation.models import Override
from allocation.queries.bookings.money.projects import quota_of
from allocation.services.overrides.amounts import (
    OF_TIME,
    amount_editable,
    amount_typed,
    amount_words,
)
from allocation.services.overrides.decisions import (
    USUAL,
    Grant,
    may_decide,
    override_decline,
    override_end,
    override_grant,
    override_withdraw,
)
from allocation.services.overrides.requests import (
    LIFTED,
    OF_TIERS,
    Wanted,
    kind_read,
    override_ask,
)
from allocation.web.bookings.booking_pages import page_context
from allocation.web.bookings.page_context import PageContext
from allocation.web.parts.times import moment_words
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.models import GpuClass, Project
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.actions import FormAction, form_action_run, id_read
from tenants.queries import tiers_all
from tenants.services.input_values import gpus_text, seconds_text
from tenants.web.frame import tenant_page, zone_of
from tenants.web.parts import Field, counted

MOST_SHOWN = 50
MOST_OVER = 10
MOST_DIGITS = 10
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


@dataclass(frozen=True, slots=True)
class OverrideCard:
    """One request or override, in words."""

    row: Override
    what: str
    whose: str
    person: str
    when: str
    amount: str
    has_amount: bool
    until: str
    decides: bool
    is_mine: bool
    decider: str


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def overrides_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows requests and overrides that the reader may see. Its forms ask, decide and end."""
    refusal = None
    now = timezone.now()
    if request.method == "POST":
        acts: dict[str, FormAction] = {
            "ask": lambda form: _ask(actor, form, now),
            # The button of a refusal: its numbers are in the address.
            "ask-more": lambda form: _ask(actor, request.GET, now),
            "grant": lambda form: _grant(actor, form, now),
            "decline": lambda form: _decline(actor, form, now),
            "withdraw": lambda form: _withdraw(actor, form, now),
            "end": lambda form: _end(actor, form, now),
        }
        refusal = form_action_run(request, acts)
        if refusal is None:
            return redirect("overrides", tenant=actor.tenant_slug)
    ctx = page_context(actor, now)
    cards = [_card(actor, row, ctx) for row in overrides_visible(actor)[:MOST_SHOWN]]
    typed = request.POST if request.POST.get("act") == "ask" else request.GET
    context = {
        "waiting": [card for card in cards if card.row.state == Override.State.ASKED],
        "in_force": [card for card in cards if _is_in_force(card.row, now)],
        "over": [_over(card, ctx) for card in cards if _is_over(card.row, now)][:MOST_OVER],
        "form": _form(actor, typed, refusal, now) if typed.get("kind") in Override.Kind.values else None,
        "starts": [] if typed.get("kind") else _starts(actor, ctx),
        "refusal": refusal,
    }
    status = 422 if refusal else 200
    return render(request, "allocation/approvals/overrides.html", context, status=status)


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


def _ask(actor: Actor, form: QueryDict, now: datetime) -> str:
    kind = kind_read(form.get("kind", ""))
    wanted = Wanted(
        kind=kind,
        amount=amount_typed(kind, form.get("amount", "")),
        project=form.get("project", ""),
        gpu_class=form.get("gpu_class", ""),
        tier=form.get("tier", ""),
        budget=id_read(form, "budget", "budget") if form.get("budget") else None,
        booking=form.get("booking", ""),
        until=_day_end(actor, form),
        reason=form.get("reason", ""),
    )
    row = override_ask(actor=actor, wanted=wanted, now=now)
    decider = _DECIDERS[Override.Decider(row.decider)]
    return f"Asked for {amount_words(row)}. {decider[0].upper()}{decider[1:]} decides."


def _grant(actor: Actor, form: QueryDict, now: datetime) -> str:
    key = id_read(form, "override", "request")
    row = overrides_visible(actor).filter(id=key).first()
    amount = amount_typed(Override.Kind(row.kind), form.get("amount", "")) if row else None
    grant = Grant(amount, _day_end(actor, form), answer=form.get("reason", ""))
    found = override_grant(actor=actor, override_id=key, grant=grant, now=now)
    return f"Granted: {amount_words(found)}."


def _decline(actor: Actor, form: QueryDict, now: datetime) -> str:
    key, reason = id_read(form, "override", "request"), form.get("reason", "")
    override_decline(actor=actor, override_id=key, reason=reason, now=now)
    return "Declined. The person reads your reason."


def _withdraw(actor: Actor, form: QueryDict, now: datetime) -> str:
    override_withdraw(actor=actor, override_id=id_read(form, "override", "request"), now=now)
    return "Withdrawn."


def _end(actor: Actor, form: QueryDict, now: datetime) -> str:
    override_end(actor=actor, override_id=id_read(form, "override", "request"), now=now)
    return "Ended. Running work stays; planned starts are judged anew."


def _day_end(actor: Actor, form: QueryDict) -> datetime | None:
    """The end of the typed day in the reader's zone."""
    text = form.get("until", "").strip()
    if not text:
        return None
    try:
        day = datetime.strptime(text, "%Y-%m-%d").date()  # noqa: DTZ007 (a day has no zone)
    except ValueError:
        raise invalid("bad_until", refusal_text("day_example"), "until") from None
    return datetime.combine(day + timedelta(days=1), time(), zone_of(actor.time_zone))


def _card(actor: Actor, row: Override, ctx: PageContext) -> OverrideCard:
    person = row.asked_by or row.decided_by
    when = f"asked {moment_words(row.asked, ctx.zone, ctx.now)}"
    if row.until is not None:
        when = f"until {moment_words(row.until, ctx.zone, ctx.now)}"
    elif row.is_once:
        when = f"for {row.booking.label}" if row.booking else "for one booking"
    ends = row.until or ctx.now + USUAL
    return OverrideCard(
        row=row,
        what=amount_words(row),
        whose=row.project.name if row.project else "The organisation",
        person=person.display_name if person else "",
        when=when,
        amount=amount_editable(row),
        has_amount=row.kind not in LIFTED,
        until=f"{ends.astimezone(ctx.zone):%Y-%m-%d}",
        decides=may_decide(actor, row) and row.asked_by_id != actor.user_id,
        is_mine=row.asked_by_id == actor.user_id,
        decider=_DECIDERS[Override.Decider(row.decider)],
    )


def _form(actor: Actor, typed: QueryDict, refusal: Refused | None, now: datetime) -> dict[str, object]:
    """The form of a request, with the numbers of the refusal that leads here."""
    kind = Override.Kind(typed.get("kind", ""))

    def field(name: str, label: str, hint: str = "", **more: Any) -> Field:  # noqa: ANN401 (a Field's)
        is_wrong = refusal is not None and refusal.param == name
        error = refusal.sentence if refusal is not None and is_wrong else ""
        value = typed.get(name, "")
        return Field(name, label, value, hint=hint, error=error, required=False, id=f"ask-{name}", **more)

    hidden = [
        (name, typed.get(name, "")) for name in ("gpu_class", "tier", "budget", "booking") if typed.get(name)
    ]
    if kind in LIFTED:
        hidden.append(("amount", "1"))
    gpu_class = GpuClass.objects.filter(slug=typed.get("gpu_class", "")).first()
    tier = next((each for each in tiers_all() if each.slug == typed.get("tier")), None)
    of = Project.objects.filter(tenant_id=actor.tenant_id, slug=typed.get("project", "")).first()
    about = (tier.name if tier else "", gpu_class.label if gpu_class else "", of.name if of else "")
    choices = _projects(actor)
    amount = field("amount", _UNITS.get(kind, ""), inputmode="decimal")
    if kind in OF_TIME:
        amount = _as_time(amount)
    needs_project = kind in OF_TIERS and not typed.get("project")
    return {
        "kind": kind,
        "title": _title(kind, about, typed.get("amount", "").strip()),
        "present": _present(of, gpu_class, now) if kind == Override.Kind.QUOTA else "",
        "hidden": hidden if needs_project else [*hidden, ("project", typed.get("project", ""))],
        "project": Field("project", "Project", "", choices=choices, id="ask-project")
        if needs_project
        else None,
        "fields": [
            *([amount] if kind in _UNITS else []),
            field("until", "Until (optional)", "Empty: the person who decides sets the day.", type="date"),
            field("reason", "Reason (optional)"),
        ],
    }


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


def _as_time(amount: Field) -> Field:
    """Returns the field with its seconds as people write them; other text stays as typed."""
    typed = str(amount.value).strip()
    is_plain = typed.isascii() and typed.isdecimal() and len(typed) < MOST_DIGITS
    shown = seconds_text(int(typed)) if is_plain else typed
    return replace(amount, value=shown, inputmode="", hint="Such as 6h or 1d 12h.")


urlpatterns = [path("t/<slug:tenant>/overrides", overrides_page, name="overrides")]
