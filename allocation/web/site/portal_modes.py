"""Planned outages and decision freezes, for operators."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import Backup, PortalMode
from allocation.queries.fleet.portal_modes import mode_in_force
from allocation.services.operate.portal_modes import (
    FREEZE,
    OUTAGE,
    LeaseState,
    NodeLease,
    freeze_begin,
    leases_of_nodes,
    length_read,
    mode_end,
    outage_begin,
    outage_close,
)
from allocation.words.refusals import refusal_text
from tenants.models import User
from tenants.platform.errors import invalid
from tenants.platform.forms.actions import FormAction, form_action_run
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page

SHOWN = 10
LEASES: dict[LeaseState, tuple[str, str]] = {
    "confirmed": ("check", "Confirmed"),
    "waiting": ("clock", "Pending"),
    "not_heard": ("warn", "Unreachable"),
    "too_old": ("clock", "Unknown"),
    "cut_off": ("x", "None"),
}
"""The icon and label of each state of a node's extended lease."""


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A row of the lease table."""

    of: NodeLease
    tone: str
    icon: str
    word: str


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.SYSTEM)
def ops_portal(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the current outage and freeze, each node's lease, and the forms."""
    refusal = None
    if request.method == "POST":
        refusal = form_action_run(request, _acts(operator))
        if refusal is None:
            return redirect("ops-portal")
    now = timezone.now()
    outage = mode_in_force(OUTAGE, now)
    nodes = leases_of_nodes(outage, now) if outage else []
    context = {
        "outage": outage,
        "freeze": mode_in_force(FREEZE, now),
        "leases": [_lease_row(node) for node in nodes],
        "unsafe": [node for node in nodes if not node.is_safe],
        "past": PortalMode.objects.select_related("begun_by")[:SHOWN],
        "backup": Backup.objects.first(),
        "refusal": refusal,
        "sent": request.POST,
    }
    return render(request, "allocation/ops_portal.html", context, status=422 if refusal else 200)


def _lease_row(lease: NodeLease) -> LeaseRow:
    tone = "ok" if lease.state == "confirmed" else "idle" if lease.is_safe else "risk"
    return LeaseRow(lease, tone, *LEASES[lease.state])


def _acts(operator: User) -> dict[str, FormAction]:
    now = timezone.now()

    def begin(form: QueryDict) -> str:
        length = length_read(form.get("for", ""))
        if length is None:
            raise invalid("outage_length", refusal_text("outage_length_form"), "for")
        outage_begin(operator=operator, length=length, reason=form.get("reason", ""), now=now)
        return "Outage announced. Every node gets an extended lease."

    def close(_: QueryDict) -> str:
        outage_close(operator=operator, now=now)
        return "Members' changes are now refused. You can stop the programs."

    def end(_: QueryDict) -> str:
        mode_end(kind=OUTAGE, operator=operator, now=now)
        return "Outage ended."

    def freeze(form: QueryDict) -> str:
        freeze_begin(
            operator=operator,
            reason=form.get("reason", ""),
            length=length_read(form.get("for", "")),
            now=now,
        )
        return "Decisions frozen."

    def thaw(_: QueryDict) -> str:
        mode_end(kind=FREEZE, operator=operator, now=now)
        return "Decisions resumed."

    return {"begin": begin, "close": close, "end": end, "freeze": freeze, "thaw": thaw}


urlpatterns = [path("ops/portal", ops_portal, name="ops-portal")]
