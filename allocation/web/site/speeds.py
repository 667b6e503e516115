"""The operator's table of the relative speed of each workload on each class."""

import re
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from allocation.queries.fleet.catalogue import work_speeds
from allocation.services.record.workloads import speeds_set
from allocation.words.refusals import refusal_text
from tenants.models import GpuClass, User
from tenants.platform.errors import Refused, invalid
from tenants.platform.forms.actions import form_action_run
from tenants.web.frame import operator_page

SPEED = re.compile(r"\d{1,4}(?:\.\d{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """A workload; `cells` are (class, label, speed as typed) in the classes' order."""

    workload: str
    cells: tuple[tuple[str, str, str], ...]
    is_new: bool = False
    failed: bool = False


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def ops_speeds(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows a form for each workload and for a new one."""
    refusal = None
    if request.method == "POST":
        refusal = form_action_run(request, {"set": lambda form: _set(operator, form)})
        if refusal is None:
            return redirect("ops-speeds")
    classes = list(GpuClass.objects.values_list("slug", "label"))
    context = {
        "classes": [label for _, label in classes],
        "rows": _rows(classes, request.POST if refusal else None),
        "refusal": refusal,
    }
    return render(request, "allocation/ops_speeds.html", context, status=422 if refusal else 200)


def _set(operator: User, form: QueryDict) -> str:
    workload = form.get("workload", "").strip().lower()
    typed = {
        key.removeprefix("speed-"): text.strip()
        for key, text in form.items()
        if key.startswith("speed-") and isinstance(text, str) and text.strip()
    }
    speeds = {name: _thousandths(name, text) for name, text in typed.items()}
    speeds_set(operator=operator, workload=workload, speeds=speeds, now=timezone.now())
    return f"Speeds of {workload} saved." if speeds else f"{workload} removed."


def _thousandths(name: str, text: str) -> int:
    """`0.45` is 450. Raises Refused."""
    if not SPEED.fullmatch(text):
        raise _not_a_speed(name)
    whole, _, rest = text.partition(".")
    return int(whole) * 1000 + int(rest.ljust(3, "0") or 0)


def _not_a_speed(name: str) -> Refused:
    return invalid("bad_speed", refusal_text("speed_form"), f"speeds.{name}")


def _rows(classes: list[tuple[str, str]], sent: QueryDict | None) -> list[SpeedRow]:
    known = work_speeds()
    rows = [
        SpeedRow(
            workload,
            tuple((name, label, _text(speeds.get(name))) for name, label in classes),
        )
        for workload, speeds in known.items()
    ]
    rows.append(SpeedRow("", tuple((name, label, "") for name, label in classes), is_new=True))
    if sent is None:
        return rows
    typed = sent.get("workload", "").strip().lower()
    return [
        SpeedRow(
            typed,
            tuple((name, label, sent.get(f"speed-{name}", "")[:12]) for name, label in classes),
            is_new=row.is_new,
            failed=True,
        )
        if row.workload == typed or (row.is_new and typed not in known)
        else row
        for row in rows
    ]


def _text(thousandths: int | None) -> str:
    return "" if thousandths is None else f"{thousandths / 1000:g}"


urlpatterns = [path("ops/speeds", ops_speeds, name="ops-speeds")]
