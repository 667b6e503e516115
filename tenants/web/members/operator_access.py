"""The operators' page on which they open and end access to a tenant's data."""

from datetime import timedelta

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tenants.models import OperatorAccess, Tenant, User
from tenants.platform.forms.actions import form_action_run, id_read
from tenants.rules.operator_roles import Area
from tenants.services.members.operator_access import AccessTerms, access_begin, access_end
from tenants.web.frame import operator_page

SHOWN = 50
LENGTHS = {"15": "15 min", "60": "1 h", "240": "4 h"}
"""Minutes that the form offers."""


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.ACCESS)
def ops_access(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows accesses; opens one, or ends one."""
    now = timezone.now()
    refusal = None
    if request.method == "POST":
        refusal = form_action_run(
            request,
            {
                "begin": lambda form: _begin(operator, form),
                "end": lambda form: _end(operator, form),
            },
        )
        if refusal is None:
            return redirect("ops-access")
    rows = OperatorAccess.objects.select_related("tenant", "operator", "person")[:SHOWN]
    context = {
        "rows": [(row, row.is_open(now)) for row in rows],
        "me": operator,
        "tenants": [(each.slug, each.name) for each in Tenant.objects.filter(is_open=True)],
        "lengths": LENGTHS.items(),
        "typed": request.POST if refusal else request.GET,
        "refusal": refusal,
    }
    return render(request, "tenants/ops_access.html", context, status=422 if refusal else 200)


def _begin(operator: User, form: QueryDict) -> str:
    terms = AccessTerms(
        tenant=form.get("tenant", ""),
        person=form.get("person", "").strip(),
        reason=form.get("reason", ""),
        length=timedelta(minutes=_minutes(form.get("for", ""))),
    )
    made = access_begin(operator=operator, terms=terms, now=timezone.now())
    return f"The data of {made.tenant.name} is open to you. Its admins are notified."


def _minutes(text: str) -> int:
    """The minutes; 0, which the service refuses, for anything that the form does not offer."""
    return int(text) if text in LENGTHS else 0


def _end(operator: User, form: QueryDict) -> str:
    found = access_end(operator=operator, access_id=id_read(form, "access", "access"), now=timezone.now())
    return f"Access to {found.tenant.name} ended."


urlpatterns = [path("ops/access", ops_access, name="ops-access")]
