"""The page that says how far the file of a large statement is, and then has it."""

from typing import cast
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from allocation.features.exports.services import (
    KEPT,
    ExportTerms,
    export_request,
    export_response,
    export_seen,
)
from billing.rules import month_of, period_text
from tenants.access import Actor
from tenants.platform.errors import Refused
from tenants.web.frame import tenant_page

AGAIN_SECONDS = 2


@require_POST
@tenant_page
def export_new(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Has a file made."""
    sent = {name: request.POST.get(name, "") for name in ("month", "project", "file")}
    row = export_request(actor=actor, terms=ExportTerms(**sent), now=timezone.now())
    return redirect("export", actor.tenant_slug, row.id)


@require_safe
@tenant_page
def export(request: HttpRequest, actor: Actor, export_id: UUID) -> HttpResponse:
    """Shows how far the file is. The browser asks again by itself, also without scripts."""
    row = export_seen(actor, export_id)
    query = {"month": f"{row.month:%Y-%m}", "project": row.project.slug if row.project else ""}
    context = {
        "statement_url": f"{reverse('statements', args=[actor.tenant_slug])}?{urlencode(query)}",
        "export": row,
        "month_text": period_text(month_of(row.month)),
        "kept_until": row.created + KEPT,
    }
    response = render(request, "exports/page.html", context)
    if row.finished_at is None:
        # A browser that has waited saves the file by itself.
        response["Refresh"] = f"{AGAIN_SECONDS}; url=?waited=1"
    elif row.state == "ready" and "waited" in request.GET:
        response["Refresh"] = f"0; url={reverse('export-file', args=[actor.tenant_slug, row.id])}"
    return response


@require_safe
@tenant_page
def export_file(request: HttpRequest, actor: Actor, export_id: UUID) -> HttpResponse:
    """Returns the file, or the page that says how far it is."""
    row = export_seen(actor, export_id)
    try:
        # A file is streamed, which the types of pages do not know.
        return cast(HttpResponse, export_response(row))
    except Refused:
        return redirect("export", actor.tenant_slug, row.id)


urlpatterns = [
    path("t/<slug:tenant>/exports", export_new, name="export-new"),
    path("t/<slug:tenant>/exports/<uuid:export_id>", export, name="export"),
    path("t/<slug:tenant>/exports/<uuid:export_id>/file", export_file, name="export-file"),
]
