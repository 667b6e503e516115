"""Disputes on the page of a statement, and the operators' page that answers them."""

from datetime import UTC
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import StatementDispute
from allocation.queries.bookings.money.statement_files import project_read
from allocation.queries.bookings.money.statements import StatementOf
from allocation.services.operate.disputes import (
    DisputeNote,
    dispute_answer,
    dispute_raise,
    dispute_withdraw,
)
from billing.rules import Period
from tenants.access import Actor
from tenants.models import User
from tenants.platform.errors import missing
from tenants.platform.forms.actions import form_action_run
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page

SHOWN = 50


def disputes_shown(actor: Actor, of: StatementOf) -> dict[str, object]:
    """What the page of a statement says about disputes."""
    rows = StatementDispute.objects.filter(tenant_id=actor.tenant_id, month=of.month.starts)
    project, projects = of.project, of.projects
    if projects is not None:
        rows = rows.filter(project__in=projects)
    may = actor.is_tenant_admin or (project is not None and actor.may_lead(project.id))
    has_begun = of.month.starts <= timezone.now().astimezone(UTC).date()
    found = rows.select_related("project", "booking", "raised_by", "answered_by")
    return {
        "disputes": [
            (row, row.state == row.State.OPEN and (may or row.raised_by_id == actor.user_id))
            for row in found[:SHOWN]
        ],
        "may_dispute": may and has_begun and of.lab is None,
    }


def dispute_act(request: HttpRequest, actor: Actor, month: Period) -> HttpResponse:
    """Raises or withdraws a dispute. Raises Refused."""
    form, now = request.POST, timezone.now()
    slug = form.get("project", "")
    if "withdraw" in form:
        dispute_withdraw(actor=actor, dispute_id=_id(form.get("withdraw", "")), now=now)
        messages.success(request, "Withdrew the dispute.")
    else:
        project = project_read(actor, slug)
        note = DisputeNote(month.starts, project, form.get("note", ""), form.get("booking", ""))
        dispute_raise(actor=actor, disputed=note, now=now)
        messages.success(request, "Raised the dispute. An operator answers it here.")
    query = f"?month={month.starts:%Y-%m}" + (f"&project={slug}" if slug else "")
    return redirect(reverse("statements", args=[actor.tenant_slug]) + query + "#disputes")


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.DISPUTES)
def ops_disputes(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows open disputes of all tenants; POST accepts or declines one."""
    refusal = None
    if request.method == "POST":
        acts = {
            "accept": lambda form: _answer(operator, form, accept=True),
            "decline": lambda form: _answer(operator, form, accept=False),
        }
        refusal = form_action_run(request, acts)
        if refusal is None:
            return redirect("ops-disputes")
    rows = StatementDispute.objects.filter(state=StatementDispute.State.OPEN).order_by("raised_at")
    context = {
        "disputes": rows.select_related("tenant", "project", "booking", "raised_by")[:SHOWN],
        "refusal": refusal,
        "typed": request.POST if refusal else {},
    }
    status = 422 if refusal else 200
    return render(request, "allocation/ops_disputes.html", context, status=status)


def _answer(operator: User, form: QueryDict, *, accept: bool) -> str:
    row = dispute_answer(
        operator=operator,
        dispute_id=_id(form.get("dispute", "")),
        accept=accept,
        answer=form.get("answer", ""),
        now=timezone.now(),
    )
    if accept and row.booking is not None:
        return f"Accepted. Correct the charge of {row.booking.label} next."
    return "Accepted." if accept else "Declined."


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise missing("dispute") from None


urlpatterns = [path("ops/disputes", ops_disputes, name="ops-disputes")]
