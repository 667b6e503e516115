"""Consolidating running work: proposals with gain and cost, and orders."""

from datetime import timedelta

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.models import CompactionOrder
from allocation.services.decide.compaction import compaction_order, compaction_proposals
from tenants.models import User
from tenants.platform.costly import costly
from tenants.platform.errors import Refused
from tenants.platform.forms.actions import SHOWN_ON_PAGE
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page

ORDERS_SHOWN = timedelta(days=7)
MOST_ORDERS = 20


@costly("preview")
@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.FLEET)
def ops_compaction(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows current proposals and recent orders; a POST orders one.

    An outdated proposal is refused, and the refusal is shown above the current ones.
    """
    now, refusal = timezone.now(), None
    if request.method == "POST":
        try:
            order = compaction_order(operator=operator, key=request.POST.get("proposal", ""), now=now)
        except Refused as refused:
            if refused.kind not in SHOWN_ON_PAGE:
                raise
            refusal = refused
        else:
            said = "The next decision carries it out or says why not."
            messages.success(request, f"Ordered for {order.beneficiary.label}. {said}")
            return redirect("ops-compaction")
    orders = CompactionOrder.objects.filter(created__gt=now - ORDERS_SHOWN)
    context = {
        "proposals": compaction_proposals(now),
        "orders": orders.select_related("beneficiary__tenant", "created_by")[:MOST_ORDERS],
        "refusal": refusal,
    }
    status = 200 if refusal is None else 409
    return render(request, "allocation/ops_compaction.html", context, status=status)


urlpatterns = [path("ops/compaction", ops_compaction, name="ops-compaction")]
