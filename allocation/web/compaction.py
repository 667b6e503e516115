"""Moving running work together: what it would win and cost, for operators."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_GET

from allocation.services.compaction import compaction_proposals
from tenants.models import User
from tenants.web.frame import operator_page


@require_GET
@operator_page
def ops_compaction(request: HttpRequest, operator: User) -> HttpResponse:
    """Proposals for this moment; reading them changes nothing."""
    context = {"proposals": compaction_proposals(timezone.now())}
    return render(request, "allocation/ops_compaction.html", context)


urlpatterns = [path("ops/compaction", ops_compaction, name="ops-compaction")]
