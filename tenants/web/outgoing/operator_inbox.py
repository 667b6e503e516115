"""The inbox of an operator: what tenants ask the operators for."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from tenants.models import User
from tenants.platform.forms.actions import form_action_run
from tenants.queries import operator_notifications, operator_unread_count
from tenants.rules.operator_roles import Area
from tenants.services.notifications import operator_notifications_mark_read
from tenants.web.frame import operator_page
from tenants.web.parts import counted

MOST_SHOWN = 100


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.OWN)
def ops_inbox(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the newest entries; each leads to the page that answers it. POST marks all as read."""
    if request.method == "POST":
        refusal = form_action_run(request, {"all-read": lambda _: _all_read(operator)})
        if refusal is not None:
            raise refusal
        return redirect("ops-inbox")
    unread = operator_unread_count(operator.pk)
    rows = operator_notifications(operator.pk).select_related("tenant").order_by("-at", "-id")
    context = {
        "rows": rows[:MOST_SHOWN],
        "heading": counted(unread, "unread request") if unread else "Inbox",
    }
    return render(request, "tenants/notifications/ops_inbox.html", context)


@require_safe
@operator_page(Area.OWN)
def ops_bell(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the bell of the top bar alone, for pages that stay open."""
    return render(request, "parts/ops_bell.html")


def _all_read(operator: User) -> str:
    marked = operator_notifications_mark_read(operator=operator, now=timezone.now())
    return f"{counted(marked, 'request')} marked as read."


urlpatterns = [
    path("ops/inbox", ops_inbox, name="ops-inbox"),
    path("ops/inbox/bell", ops_bell, name="ops-bell"),
]
