"""Requests that wait for the reader's approval, those that the reader made, and one of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.access import access_approval
from allocation.models import Approval, ApprovalRule
from allocation.queries.bookings.approvals import approvals_to_decide, approvals_visible
from allocation.services.approvals.alternatives import alternative_take
from allocation.services.approvals.counter_terms import Proposal
from allocation.services.approvals.counters import (
    counter_accept,
    counter_decline,
    counter_make,
)
from allocation.services.bookings.approval.decisions import Decision, Verdict, approval_decide
from allocation.services.bookings.request_text import request_read
from allocation.web.approvals.cards import ApprovalCard, cards_of, first_dates
from allocation.web.bookings.booking_pages import page_context
from allocation.web.parts.approvals import step_words
from tenants.access import Actor
from tenants.platform.costly import costly
from tenants.platform.errors import Refused
from tenants.platform.forms.actions import FormAction, form_action_run, id_read
from tenants.web.frame import tenant_page

# Requests on the page; the rest follows when these are decided.
MOST_SHOWN = 20
# Rows that are read to find as many after the dates of a series are joined.
MOST_READ = 400
MOST_DECIDED = 10
# Cards that show the effect on others; for the rest the page of a request does.
MOST_EFFECTS = 3


@costly("preview")
@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def approvals_page(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows what the reader may decide and decides it, with what they asked for themselves."""
    refusal = None
    if request.method == "POST":
        refusal = form_action_run(request, _acts(actor))
        if refusal is None:
            return redirect("approvals", tenant=actor.tenant_slug)
    ctx = page_context(actor, timezone.now())
    waiting = approvals_to_decide(actor, ctx.now)
    seen = approvals_visible(actor, ctx.now)
    mine = seen.filter(asker=actor.user_id, state=Approval.State.OPEN)
    over = seen.exclude(state=Approval.State.OPEN).order_by("-decided", "id")
    shown = first_dates(waiting[:MOST_READ])[:MOST_SHOWN]
    own = first_dates(mine[:MOST_READ])[:MOST_SHOWN]
    decided = first_dates(over[:MOST_DECIDED])
    found = cards_of(actor, [*shown, *own, *decided], ctx, [*shown[:MOST_EFFECTS], *own[:1]])
    cards, rest = found[: len(shown)], found[len(shown) :]
    context = {
        "cards": cards,
        "total": waiting.count(),
        "mine": rest[: len(own)],
        "deciders": deciders_of(actor),
        "over": rest[len(own) :],
        **_refused(request, refusal, cards),
    }
    status = 409 if refusal is not None and refusal.kind == "conflict" else 422
    return render(request, "allocation/approvals/inbox.html", context, status=status if refusal else 200)


@costly("preview")
@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def approval_page(request: HttpRequest, actor: Actor, approval: UUID) -> HttpResponse:
    """Shows one request, as a mail links to it. Only its form decides."""
    now = timezone.now()
    found = access_approval(actor, approval, now)
    refusal = None
    if request.method == "POST":
        refusal = form_action_run(request, _acts(actor))
        if refusal is None:
            return redirect("approvals", tenant=actor.tenant_slug)
        found = access_approval(actor, approval, now)
    ctx = page_context(actor, now)
    (card,) = cards_of(actor, [found], ctx, [found])
    context = {"card": card, **_refused(request, refusal, [card])}
    status = 409 if refusal is not None and refusal.kind == "conflict" else 422
    return render(request, "allocation/approvals/one.html", context, status=status if refusal else 200)


@dataclass(frozen=True, slots=True)
class DeciderRow:
    """A rule in force: whose bookings wait by it, who decides, and where the reader changes it."""

    name: str
    where: str
    who: str
    href: str


def deciders_of(actor: Actor) -> list[DeciderRow]:
    """The rules in force that the reader's projects have, in words."""
    rules = ApprovalRule.objects.filter(tenant_id=actor.tenant_id, retired=None).select_related("project")
    if not actor.is_tenant_admin:
        rules = rules.filter(Q(project=None) | Q(project__in=list(actor.roles)))
    page = reverse("approval-rules", args=[actor.tenant_slug])
    found = []
    for rule in rules.order_by("project__name", "created", "id"):
        may = actor.is_tenant_admin if rule.project is None else actor.may_lead(rule.project.id)
        where = rule.project.name if rule.project else "their project"
        who = "; then ".join(step_words(step, where) for step in rule.step_list)
        edit = f"{page}?edit={rule.id}#edit" if may else ""
        found.append(DeciderRow(rule.name, rule.project.name if rule.project else "All projects", who, edit))
    return found


def _acts(actor: Actor) -> dict[str, FormAction]:
    return {
        "approve": lambda form: _decide(actor, form, "approve"),
        "decline": lambda form: _decide(actor, form, "decline"),
        "counter": lambda form: _counter(actor, form),
        "accept": lambda form: _accept(actor, form),
        "refuse": lambda form: _refuse(actor, form),
        "instead": lambda form: _instead(actor, form),
    }


def _counter(actor: Actor, form: QueryDict) -> str:
    now = timezone.now()
    key, text = id_read(form, "approval", "approval"), form.get("request", "").strip()
    found = access_approval(actor, key, now)
    ask, tier = request_read(text, project=found.project.slug, zone=found.booking.zone, now=now)
    proposal = Proposal(ask, tier, text, form.get("reason", ""))
    counter_make(actor=actor, approval_id=key, digest=form.get("digest", ""), proposal=proposal, now=now)
    return f"Offered. {found.booking.label} waits until its owner accepts, or somebody decides."


def _accept(actor: Actor, form: QueryDict) -> str:
    key, digest = id_read(form, "approval", "approval"), form.get("counter", "")
    booking = counter_accept(actor=actor, approval_id=key, digest=digest, now=timezone.now())
    return f"{booking.label} is changed to what was offered."


def _refuse(actor: Actor, form: QueryDict) -> str:
    key = id_read(form, "approval", "approval")
    approval = counter_decline(actor=actor, approval_id=key, now=timezone.now())
    return f"Declined. {approval.booking.label} still waits, unchanged."


def _instead(actor: Actor, form: QueryDict) -> str:
    key, digest = id_read(form, "approval", "approval"), form.get("digest", "")
    booking = alternative_take(actor=actor, approval_id=key, digest=digest, now=timezone.now())
    return f"{booking.label} is booked instead. It needs no approval."


def _decide(actor: Actor, form: QueryDict, verdict: Verdict) -> str:
    decision = Decision(verdict, form.get("digest", ""), form.get("reason", ""))
    approval = approval_decide(
        actor=actor,
        approval_id=id_read(form, "approval", "approval"),
        decision=decision,
        now=timezone.now(),
    )
    label = approval.booking.label
    if approval.state == Approval.State.OPEN:
        return f"Recorded for {label}. Another person decides next."
    if approval.state == Approval.State.APPROVED:
        return f"{label} approved. It gets its place within seconds."
    return f"{label} declined. Its money is free again."


def _refused(request: HttpRequest, refusal: Refused | None, cards: Sequence[ApprovalCard]) -> dict[str, Any]:
    """The refusal, the request on the page that it is about, and what was typed."""
    if refusal is None:
        return {}
    sent = request.POST.get("approval", "")
    shown = any(str(card.approval.id) == sent for card in cards)
    return {
        "refusal": refusal,
        "refused_id": sent if shown else "",
        "typed": request.POST.get("reason", ""),
    }


urlpatterns = [
    path("t/<slug:tenant>/approvals", approvals_page, name="approvals"),
    path("t/<slug:tenant>/approvals/<uuid:approval>", approval_page, name="approval"),
]
