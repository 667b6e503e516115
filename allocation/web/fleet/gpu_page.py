"""The page of one GPU, for operators."""

from datetime import timedelta

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from allocation.models import Gpu, Node
from allocation.queries.fleet.telemetry import use_of_gpu
from allocation.services.nodes.gpu_modes import mode_pin
from allocation.services.operate.impact import pin_impact
from allocation.web.fleet.confirmations import pin_question
from allocation.web.fleet.reach import page_nodes
from allocation.web.parts.use_chart import card_of
from allocation.words.fleet import MODE_WORDS
from tenants.models import User
from tenants.platform.errors import missing
from tenants.platform.forms.confirm import CONFIRMED_FIELD, confirm_page
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page, zone_of

SPANS = (
    ("hour", "Last hour", timedelta(hours=1)),
    ("day", "Last day", timedelta(days=1)),
    ("week", "Last week", timedelta(days=7)),
    ("all", "90 days", timedelta(days=90)),
)

MODES = {"whole": "Whole", "sliced": "Slices"}
PINS = (("", "Automatic"), ("whole", "Whole only"), ("sliced", "Slices only"))


@require_GET
@operator_page(Area.NODES)
def ops_gpu(request: HttpRequest, operator: User, name: str, index: int) -> HttpResponse:
    """Shows a GPU's utilisation; `use=` selects the span, `part=use` the chart alone."""
    gpu = _gpu(name, index)
    page_nodes(request, operator, Node.objects.filter(name=name))
    now = timezone.now()
    asked = request.GET.get("use", "day")
    key, _, span = next((each for each in SPANS if each[0] == asked), SPANS[1])
    curve = use_of_gpu(gpu=gpu.id, since=now - span, until=now, now=now)
    choices = [(each, label) for each, label, _ in SPANS]
    zone = zone_of(operator.time_zone)
    use = card_of(curve, choices, key, base=request.path, zone=zone, now=now) | {"runs": True}
    template = "use" if request.GET.get("part") == "use" else "gpu"
    pinnable = gpu.model.placements.exists()
    context = {
        "gpu": gpu,
        "use": use,
        "pinnable": pinnable,
        "pins": PINS,
        "mode_words": _mode_words(gpu),
    }
    return render(request, f"allocation/{template}.html", context)


@require_POST
@operator_page(Area.NODES)
def ops_gpu_mode(request: HttpRequest, operator: User, name: str, index: int) -> HttpResponse:
    """Pins or unpins the mode of a GPU; asks first when planned bookings would move."""
    mode, note = request.POST.get("mode", ""), request.POST.get("note", "")
    gpu = _gpu(name, index)
    if (
        CONFIRMED_FIELD not in request.POST
        and mode in MODE_WORDS
        and (planned := pin_impact(gpu=gpu, mode=mode))
    ):
        return confirm_page(request, pin_question(gpu, mode, planned))
    mode_pin(operator=operator, gpu=gpu, mode=mode, note=note, now=timezone.now())
    said = f"is pinned to {MODE_WORDS[mode]}" if mode else "switches its mode automatically"
    messages.success(request, f"GPU {index} of {name} {said}.")
    return redirect("ops-gpu", name=name, index=index)


def _mode_words(gpu: Gpu) -> str:
    """Returns the current, next and pinned mode as text."""
    parts = [f"{MODES[gpu.mode]} now"]
    if gpu.mode_wanted and gpu.mode_wanted_at is not None:
        since = timezone.localtime(gpu.mode_wanted_at)
        parts.append(f"switching to {_mode(gpu.mode_wanted)} since {since:%H:%M:%S}")
    if gpu.mode_pinned:
        pending = gpu.mode_pinned != gpu.mode and not gpu.mode_wanted
        parts.append(f"pinned to {_mode(gpu.mode_pinned)}{', switches when empty' if pending else ''}")
    return " · ".join(parts)


def _mode(mode: str) -> str:
    return MODES[mode].lower()


def _gpu(name: str, index: int) -> Gpu:
    rows = Gpu.objects.select_related("node", "model").filter(node__name=name, index=index)
    found = rows.first()
    if found is None:
        raise missing("GPU")
    return found


urlpatterns = [
    path("ops/fleet/<slug:name>/<int:index>", ops_gpu, name="ops-gpu"),
    path("ops/fleet/<slug:name>/<int:index>/mode", ops_gpu_mode, name="ops-gpu-mode"),
]
