"""A decision as a page: the bookings that it changed, the reasons, and the proof by replay."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from allocation.queries.decisions.decisions import (
    DecisionFacts,
    changed_bookings,
    decision_facts,
    decisions_latest,
    replay_latest,
)
from allocation.services.decide.replays import replay_by_operator, replay_request
from allocation.web.decisions.lines import decision_lines
from tenants.access import Actor
from tenants.models import User
from tenants.platform.errors import Refused, missing
from tenants.platform.forms.actions import SHOWN_ON_PAGE
from tenants.web.frame import operator_page, tenant_page

SHOWN = 50
MOST_DIGITS = 18


@require_GET
@tenant_page
def decisions(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Lists the decisions that changed bookings of the reader; `before` pages."""
    asked = request.GET.get("before", "")
    before = int(asked) if asked.isdecimal() and len(asked) <= MOST_DIGITS else None
    found = decisions_latest(actor, most=SHOWN + 1, before=before)
    rows = [(facts, count) for number, count in found[:SHOWN] if (facts := decision_facts(number))]
    context = {
        "rows": rows,
        "base": f"/t/{actor.tenant_slug}/decisions",
        "next": found[SHOWN - 1][0] if len(found) > SHOWN else None,
        "is_first": before is None,
    }
    return render(request, "allocation/decisions/list.html", context)


@require_GET
@tenant_page
def decision(request: HttpRequest, actor: Actor, number: int) -> HttpResponse:
    """Shows a decision that changed a booking of the reader; any other one is missing."""
    facts = _visible(actor, number)
    return _page(request, facts, actor, f"/t/{actor.tenant_slug}/decisions")


@require_POST
@tenant_page
def replay(request: HttpRequest, actor: Actor, number: int) -> HttpResponse:
    """Asks for a replay of a decision."""
    _visible(actor, number)
    with _shown(request):
        replay_request(person_id=actor.user_id, number=number, now=timezone.now())
    return redirect("decision", tenant=actor.tenant_slug, number=number)


@require_GET
@operator_page
def ops_decision(request: HttpRequest, operator: User, number: int) -> HttpResponse:
    """Shows a decision with the bookings of all tenants."""
    facts = decision_facts(number)
    if facts is None:
        raise missing("decision")
    return _page(request, facts, None, "/ops/decisions")


@require_POST
@operator_page
def ops_replay(request: HttpRequest, operator: User, number: int) -> HttpResponse:
    """Asks for a replay of a decision."""
    with _shown(request):
        replay_by_operator(operator=operator, number=number, now=timezone.now())
    return redirect("ops-decision", number=number)


def _visible(actor: Actor, number: int) -> DecisionFacts:
    """The decision. Raises Refused `not_found` unless it changed a booking of the reader."""
    facts = decision_facts(number)
    if facts is None or not changed_bookings(number, actor, most=1).total:
        raise missing("decision")
    return facts


@contextmanager
def _shown(request: HttpRequest) -> Iterator[None]:
    """Shows a refusal on the page instead of on one of its own."""
    try:
        yield
    except Refused as refusal:
        if refusal.kind not in SHOWN_ON_PAGE:
            raise
        messages.error(request, refusal.sentence)


def _page(
    request: HttpRequest, facts: DecisionFacts, actor: Actor | None, base: str
) -> HttpResponse:
    now, zone = timezone.now(), timezone.get_current_timezone()
    changed = changed_bookings(facts.id, actor)
    lines = decision_lines(changed.lines, facts.id, zone, now, is_operator=actor is None)
    context: dict[str, Any] = {
        "decision": facts,
        "lines": list(lines),
        "total": changed.total,
        "more": changed.total - len(changed.lines),
        "replay": replay_latest(facts.id),
        "base": base,
        "is_for_operator": actor is None,
    }
    return render(request, "allocation/decisions/one.html", context)


urlpatterns = [
    path("t/<slug:tenant>/decisions", decisions, name="decisions"),
    path("t/<slug:tenant>/decisions/<int:number>", decision, name="decision"),
    path("t/<slug:tenant>/decisions/<int:number>/replay", replay, name="decision-replay"),
    path("ops/decisions/<int:number>", ops_decision, name="ops-decision"),
    path("ops/decisions/<int:number>/replay", ops_replay, name="ops-decision-replay"),
]
