"""One device over the time that is kept, for operators."""

from datetime import timedelta

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_GET

from allocation.models import Gpu
from allocation.queries.telemetry import use_of_gpu
from allocation.web.use_chart import card_of
from tenants.errors import missing
from tenants.models import User
from tenants.web.frame import operator_page, zone_of

SPANS = (
    ("hour", "Last hour", timedelta(hours=1)),
    ("day", "Last day", timedelta(days=1)),
    ("week", "Last week", timedelta(days=7)),
    ("all", "90 days", timedelta(days=90)),
)


@require_GET
@operator_page
def ops_gpu(request: HttpRequest, operator: User, name: str, index: int) -> HttpResponse:
    """How hard a GPU worked, whoever had it; `use=` since when, `part=use` the chart alone."""
    gpu = Gpu.objects.select_related("node").filter(node__name=name, index=index).first()
    if gpu is None:
        raise missing("GPU")
    now = timezone.now()
    asked = request.GET.get("use", "day")
    key, _, span = next((each for each in SPANS if each[0] == asked), SPANS[1])
    curve = use_of_gpu(gpu=gpu.id, since=now - span, until=now, now=now)
    choices = [(each, label) for each, label, _ in SPANS]
    zone = zone_of(operator.time_zone)
    use = card_of(curve, choices, key, base=request.path, zone=zone, now=now) | {"runs": True}
    template = "use" if request.GET.get("part") == "use" else "gpu"
    return render(request, f"allocation/{template}.html", {"gpu": gpu, "use": use})


urlpatterns = [path("ops/fleet/<slug:name>/<int:index>", ops_gpu, name="ops-gpu")]
