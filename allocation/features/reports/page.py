"""The page of a person's reports by mail, and the one that ends a report from a mailed address."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from allocation.features.reports.models import ReportSubscription
from allocation.features.reports.services import (
    ReportTerms,
    is_unsubscribe_token,
    report_subscribe,
    report_unsubscribe,
    report_unsubscribe_by_token,
    reports_managed,
)
from allocation.models import FileFormat
from allocation.queries.bookings.money.statements import LAB
from allocation.web.parts.times import dated
from tenants.access import Actor
from tenants.lab_queries import labs_led, labs_read, projects_seen
from tenants.models import Membership
from tenants.web.form_page import Act, form_page


def _shown(actor: Actor, now: datetime, **_: str) -> dict[str, Any]:
    rows = reports_managed(actor, now)
    return {
        "rows": [row for row in rows if row.user_id == actor.user_id],
        "others": [row for row in rows if row.user_id != actor.user_id],
        "mail_on": settings.MAIL_ON,
    }


def _add(*, actor: Actor, terms: ReportTerms, now: datetime) -> ReportSubscription:
    """Adds a report of a project, or of a lab as `lab:physics`."""
    if terms.project.startswith(LAB):
        terms = replace(terms, project="", lab=terms.project.removeprefix(LAB))
    return report_subscribe(actor=actor, terms=terms, now=now)


def _owners(actor: Actor) -> list[tuple[str, str]]:
    whole = [("", "The whole organisation")] if actor.is_tenant_admin else []
    labs = [(LAB + lab.slug, f"{lab.name} (lab)") for lab in labs_read(actor)]
    return [*whole, *labs, *projects_seen(actor, labs_led(actor)).values_list("slug", "name")]


def _people(actor: Actor) -> list[tuple[str, str]]:
    """The reader, and others who can get a report from them, by sign-in name."""
    members = Membership.objects.filter(tenant_id=actor.tenant_id).exclude(user_id=actor.user_id)
    if not actor.is_tenant_admin:
        members = members.filter(project__in=[p for p in actor.roles if actor.may_lead(p)])
    users = {each.user for each in members.select_related("user")}
    return [("", "Me"), *sorted((each.username, each.display_name) for each in users)]


def _cadences(_: Actor) -> Iterable[tuple[object, object]]:
    return ReportSubscription.Cadence.choices


def _formats(_: Actor) -> Iterable[tuple[object, object]]:
    return FileFormat.choices


def _asked(actor: Actor, *, project: str) -> dict[str, str]:
    return {"project": project}


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
    return render(request, "reports/end.html", context, status=200 if is_known else 404)


urlpatterns = [
    form_page(
        "reports",
        "reports",
        "reports/page.html",
        _shown,
        Act(
            "add",
            _add,
            lambda row: f"Added the report. The first one is sent on {dated(row.due)}.",
            terms=ReportTerms,
            choices={"project": _owners, "cadence": _cadences, "format": _formats, "person": _people},
            initial=_asked,
        ),
        Act("end", report_unsubscribe, "Ended the report.", key="report"),
        queries=("project",),
    ),
    path("reports/end/<str:token>", report_end, name="report-end"),
]
