"""A person's reports by mail, and the page that ends one from a mailed address."""

from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from allocation.models import ReportSubscription
from allocation.queries.bookings.money.statement_files import lab_read, project_read
from allocation.queries.bookings.money.statements import LAB
from allocation.services.operate.reports import (
    ReportTerms,
    is_unsubscribe_token,
    report_subscribe,
    report_unsubscribe,
    report_unsubscribe_by_token,
    reports_managed,
)
from allocation.web.parts.times import dated
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.lab_queries import labs_led, labs_read, projects_seen
from tenants.models import Membership
from tenants.platform.errors import Refused, invalid, missing
from tenants.services.notifications import clock_read
from tenants.web.frame import tenant_page


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def reports(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the person's reports; POST adds or ends one."""
    refusal = None
    if request.method == "POST":
        try:
            messages.success(request, _act(actor, request.POST))
        except Refused as error:
            if error.kind in ("missing", "denied"):
                raise
            refusal = error
        else:
            return redirect("reports", tenant=actor.tenant_slug)
    rows = reports_managed(actor, timezone.now()).select_related("project", "lab", "user")
    typed = request.POST if refusal else {"at": "08:00", "project": request.GET.get("project", "")}
    context = {
        "rows": [row for row in rows if row.user_id == actor.user_id],
        "others": [row for row in rows if row.user_id != actor.user_id],
        "people": _people(actor),
        "all_projects": projects_seen(actor, labs_led(actor)),
        "is_admin": actor.is_tenant_admin,
        "all_labs": labs_read(actor),
        "cadences": ReportSubscription.Cadence.choices,
        "formats": ReportSubscription.Format.choices,
        "typed": typed,
        "refusal": refusal,
        "mail_on": settings.MAIL_ON,
    }
    status = 422 if refusal else 200
    return render(request, "allocation/reports/reports.html", context, status=status)


def _act(actor: Actor, form: QueryDict) -> str:
    now = timezone.now()
    if "end" in form:
        report_unsubscribe(actor=actor, report_id=_id(form.get("end", "")), now=now)
        return "Ended the report."
    slug = form.get("project", "")
    at = clock_read(form.get("at", ""), "at")
    if at is None:
        raise invalid("bad_clock", refusal_text("bad_clock"), "at")
    is_lab = slug.startswith(LAB)
    terms = ReportTerms(
        project=project_read(actor, slug) if slug and not is_lab else None,
        lab=lab_read(actor, slug.removeprefix(LAB), "project") if is_lab else None,
        cadence=form.get("cadence", ""),
        format=form.get("format", ""),
        at=at,
        person=form.get("person", ""),
    )
    row = report_subscribe(actor=actor, terms=terms, now=now)
    return f"Added the report. The first one is sent on {dated(row.due)}."


def _people(actor: Actor) -> list[tuple[str, str]]:
    """Others who can get a report from the reader, by sign-in name."""
    members = Membership.objects.filter(tenant_id=actor.tenant_id).exclude(user_id=actor.user_id)
    if not actor.is_tenant_admin:
        members = members.filter(project__in=[p for p in actor.roles if actor.may_lead(p)])
    users = {each.user for each in members.select_related("user")}
    return sorted((each.username, each.display_name) for each in users)


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise missing("report") from None


# A mail program ends a subscription with one POST (RFC 8058) and has no cookie: the address is the
# proof.
@csrf_exempt
@require_http_methods(["GET", "HEAD", "POST"])
def report_end(request: HttpRequest, token: str) -> HttpResponse:
    """Asks whether to end the report of a mailed address; POST ends it. A GET changes nothing."""
    is_ended = False
    if request.method == "POST":
        is_ended = report_unsubscribe_by_token(token, timezone.now())
    is_known = is_ended or is_unsubscribe_token(token)
    context = {"is_ended": is_ended, "is_known": is_known}
    status = 200 if is_known else 404
    return render(request, "allocation/reports/end.html", context, status=status)


urlpatterns = [
    path("t/<slug:tenant>/reports", reports, name="reports"),
    path("reports/end/<str:token>", report_end, name="report-end"),
]
