"""Maintenance pages for operators: the list, a form with a preview, and early end."""

from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from allocation.errors import AskError
from allocation.models import Gpu, Maintenance, Node, Rack
from allocation.rules.ask.when.recurrence_words import recurrence_words
from allocation.rules.recurrence import recurrence_read
from allocation.services.operate.drain import gpu_return, hardware_fence
from allocation.services.operate.impact import fence_impact, maintenance_end_impact
from allocation.services.operate.maintenance.change import (
    MaintenanceChange,
    maintenance_change,
    maintenance_change_preview,
)
from allocation.services.operate.maintenance.plan import (
    MaintenanceTerms,
    Preview,
    maintenance_end,
    maintenance_plan,
    maintenance_preview,
)
from allocation.web.bookings.request_panel.series_form import CHOICES, repeat_rule
from allocation.web.fleet.confirmations import end_question, fence_question
from allocation.words.refusals import coded_text, refusal_text
from tenants.models import User
from tenants.platform.errors import Refused, missing
from tenants.platform.forms.actions import SHOWN_ON_PAGE
from tenants.platform.forms.confirm import CONFIRMED_FIELD, confirm_page
from tenants.platform.forms.local_times import LocalTimeField, repeated_times
from tenants.platform.text import whole_number
from tenants.rules.operator_roles import Area
from tenants.web.frame import operator_page
from tenants.web.parts import counted

OVER_SHOWN = timedelta(days=30)
TIMES = ("starts", "ends", "drain_by")
STAGES = {
    "planned": ("clock", "info", "Planned"),
    "running": ("wrench", "wait", "Running"),
    "over": ("check", "idle", "Ended"),
    "called_off": ("x", "idle", "Cancelled"),
}


@dataclass(frozen=True, slots=True)
class MaintenanceRow:
    """A maintenance in the table; `is_open` when it can be ended.

    `often` is the recurrence of a series, and `more` counts the dates after this one.
    """

    maintenance: Maintenance
    icon: str
    tone: str
    stage: str
    is_open: bool
    often: str = ""
    more: int = 0

    @property
    def until(self) -> datetime:
        """Returns the actual or planned end; of one that was cancelled, which never began, the
        planned one."""
        ended = self.maintenance.ended_at
        return ended if ended is not None and ended > self.maintenance.starts else self.maintenance.ends

    @property
    def is_planned(self) -> bool:
        """Returns whether it has not started, so that it is cancelled rather than ended."""
        return self.stage == STAGES["planned"][2]


class _Local(forms.DateTimeInput):
    input_type = "datetime-local"

    def __init__(self) -> None:
        super().__init__(format="%Y-%m-%dT%H:%M")


class _Time(LocalTimeField):
    """A time of a row. As it is shown it stays, also in the hour that a clock change repeats."""

    was: datetime | None = None

    def to_python(self, value: str | datetime | date | None) -> datetime | None:
        """Returns the instant that was typed, or the one that was there."""
        return self.was if self.was is not None and value == _local(self.was) else super().to_python(value)


class MaintenanceForm(forms.Form):
    """Place, window and reason of a maintenance. `where` is `rack:NAME` or `node:NAME`."""

    where = forms.CharField(max_length=80, label="Rack or node")
    gpu = forms.IntegerField(required=False, min_value=0, max_value=63, label="Only this GPU")
    starts = LocalTimeField(widget=_Local(), label="From")
    ends = LocalTimeField(widget=_Local(), label="Until")
    drain_by = LocalTimeField(required=False, widget=_Local(), label="Drain running work by")
    reason = forms.CharField(max_length=120, label="Reason, shown to users")
    often = forms.ChoiceField(required=False, choices=CHOICES, label="Repeat")
    days = forms.CharField(required=False, max_length=80, label="Days of the month")
    last_day = forms.DateField(required=False, label="Last day")

    def clean_days(self) -> str:
        """Validates the days of the month."""
        days: str = self.cleaned_data["days"]
        try:
            repeat_rule(self.cleaned_data.get("often", ""), days, "days")
        except AskError as error:
            raise forms.ValidationError(coded_text(error.text)) from error
        return days

    def clean_last_day(self) -> date | None:
        """Requires a last day for a repeating maintenance."""
        day: date | None = self.cleaned_data["last_day"]
        if self.cleaned_data.get("often") and day is None:
            raise forms.ValidationError(refusal_text("repetition_end"))
        return day

    @property
    def times(self) -> list[datetime | None]:
        """Returns its times. The form must be valid."""
        return [self.cleaned_data[name] for name in TIMES]

    def terms(self, zone: str) -> MaintenanceTerms:
        """Returns the request in the local time of `zone`. The form must be valid."""
        said = self.cleaned_data
        rule = repeat_rule(said["often"], said["days"], "days")
        kind, _, name = said["where"].partition(":")
        return MaintenanceTerms(
            starts=said["starts"],
            ends=said["ends"],
            reason=said["reason"],
            rack=name if kind == "rack" else "",
            node=name if kind == "node" else "",
            gpu=said["gpu"],
            drain_by=said["drain_by"],
            repeat=rule and replace(rule, until=said["last_day"]),
            zone=zone,
        )


class MaintenanceChangeForm(forms.Form):
    """The window, the deadline and the reason of a maintenance. A begun one keeps its start."""

    starts = _Time(required=False, widget=_Local(), label="From")
    ends = _Time(widget=_Local(), label="Until")
    drain_by = _Time(required=False, widget=_Local(), label="Drain running work by")
    reason = forms.CharField(max_length=120, label="Reason, shown to users")

    def __init__(self, data: QueryDict | None, row: Maintenance) -> None:
        self._was = {name: getattr(row, name) for name in TIMES}
        initial = {name: _local(was) for name, was in self._was.items()}
        super().__init__(data, initial={**initial, "reason": row.reason})
        for name, was in self._was.items():
            vars(self.fields[name])["was"] = was

    @property
    def times(self) -> list[datetime | None]:
        """Returns its times. The form must be valid."""
        return [self.cleaned_data[name] for name in TIMES]

    def change(self) -> MaintenanceChange:
        """Returns the change of the row. The form must be valid."""
        said = self.cleaned_data
        times = {name: None if said[name] == was else said[name] for name, was in self._was.items()}
        return MaintenanceChange(**times, reason=said["reason"])


def _local(moment: datetime) -> str:
    """The field has no seconds."""
    return f"{timezone.localtime(moment):%Y-%m-%dT%H:%M}"


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.NODES)
def ops_maintenance_change(request: HttpRequest, operator: User, maintenance_id: UUID) -> HttpResponse:
    """Changes one maintenance; `act=look` previews the effect, `act=save` saves."""
    rows = Maintenance.objects.select_related("rack", "node", "gpu__node")
    row, now = rows.filter(id=maintenance_id).first(), timezone.now()
    if row is None:
        raise missing("maintenance")
    form = MaintenanceChangeForm(request.POST or None, row)
    preview: Preview | None = None
    refusal: Refused | None = None
    if request.method == "POST" and form.is_valid():
        change = form.change()
        try:
            preview = maintenance_change_preview(maintenance=row, change=change, now=now)
            if request.POST.get("act") == "save" and _is_accepted(request, preview):
                maintenance_change(operator=operator, maintenance=row, change=change, now=now)
                messages.success(request, f"Maintenance of {row.where} changed.")
                return redirect("ops-maintenance")
        except Refused as refused:
            if refused.kind not in SHOWN_ON_PAGE:
                raise
            refusal = refused
    context: dict[str, Any] = {
        "row": row,
        "has_begun": row.starts <= now,
        "form": form,
        "preview": preview,
        "words": preview and preview_words(preview, "Change maintenance"),
        "repeated": preview and repeated_times(form.times),
        "is_more": preview is not None and request.POST.get("act") == "save",
        "refusal": refusal,
    }
    status = 422 if refusal is not None or form.errors else 200
    return render(request, "allocation/ops_maintenance_change.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page(Area.NODES)
def ops_maintenance(request: HttpRequest, operator: User) -> HttpResponse:
    """Shows the list and the form; `act=look` previews the effect, `act=save` saves."""
    now = timezone.now()
    form = MaintenanceForm(request.POST or None, initial={"where": request.GET.get("where", "")})
    preview: Preview | None = None
    refusal: Refused | None = None
    if request.method == "POST" and form.is_valid():
        terms = form.terms(operator.time_zone)
        try:
            preview = maintenance_preview(operator=operator, terms=terms, now=now)
            if request.POST.get("act") == "save" and _is_accepted(request, preview):
                made = maintenance_plan(operator=operator, terms=terms, now=now)
                messages.success(request, f"Maintenance of {made.where} planned.")
                return redirect("ops-maintenance")
        except Refused as refused:
            if refused.kind not in (*SHOWN_ON_PAGE, "missing"):
                raise
            refusal = refused
    context: dict[str, Any] = {
        "form": form,
        "preview": preview,
        "words": preview and preview_words(preview),
        "repeated": preview and repeated_times(form.times),
        "is_more": preview is not None and request.POST.get("act") == "save",
        "refusal": refusal,
        "rows": _rows(now),
        "racks": Rack.objects.order_by("name"),
        "nodes": Node.objects.order_by("name"),
    }
    status = 422 if refusal is not None or form.errors else 200
    return render(request, "allocation/ops_maintenance.html", context, status=status)


def _is_accepted(request: HttpRequest, preview: Preview) -> bool:
    """Returns whether the operator confirmed at least as many losses as there are now."""
    return (whole_number(request.POST.get("accepted", "")) or 0) >= preview.hurt


@require_POST
@operator_page(Area.NODES)
def ops_maintenance_end(request: HttpRequest, operator: User, maintenance_id: UUID) -> HttpResponse:
    """Ends or cancels maintenance after a confirmation; with `following` also its later dates."""
    found = Maintenance.objects.filter(id=maintenance_id).first()
    if found is None:
        raise missing("maintenance")
    now, following = timezone.now(), request.POST.get("following") == "1"
    if CONFIRMED_FIELD not in request.POST and found.stage(now) in ("planned", "running"):
        losses = maintenance_end_impact(maintenance=found, following=following, now=now)
        return confirm_page(request, end_question(found, losses, now))
    ended = maintenance_end(operator=operator, maintenance=found, now=now, following=following)
    messages.success(
        request,
        f"Maintenance of {ended.where} ended. It takes bookings once its agent reports it healthy.",
    )
    return redirect("ops-maintenance")


@require_POST
@operator_page(Area.NODES)
def ops_gpu_return(request: HttpRequest, operator: User, name: str, index: int) -> HttpResponse:
    """Returns a GPU to service."""
    gpu = _gpu(name, index)
    gpu_return(operator=operator, gpu=gpu, note=request.POST.get("note", ""), now=timezone.now())
    messages.success(request, f"GPU {index} of {name} takes bookings again.")
    return redirect("ops-node", name=name)


@require_POST
@operator_page(Area.NODES)
def ops_fence(request: HttpRequest, operator: User, name: str) -> HttpResponse:
    """Records that a node or one of its GPUs is powered off, after a confirmation."""
    node = Node.objects.filter(name=name).first()
    if node is None:
        raise missing("node")
    index = whole_number(request.POST.get("gpu", ""))
    gpu = None if index is None else _gpu(name, index)
    note = request.POST.get("note", "")
    now = timezone.now()
    if CONFIRMED_FIELD not in request.POST:
        losses = fence_impact(node=node, gpu=gpu, note=note)
        return confirm_page(request, fence_question(node, gpu, losses, now))
    closed = hardware_fence(operator=operator, node=node, gpu=gpu, note=note, now=now)
    places = f"{closed} allocation{'s' * (closed != 1)}"
    messages.success(request, f"{places} on {name} now count as empty.")
    return redirect("ops-node", name=name)


def _rows(now: datetime) -> list[MaintenanceRow]:
    found = Maintenance.objects.filter(ends__gt=now - OVER_SHOWN).select_related("rack", "node", "gpu__node")
    rows: dict[object, MaintenanceRow] = {}
    for maintenance in found.order_by("starts", "id"):
        stage = maintenance.stage(now)
        is_open = stage in ("planned", "running")
        # The next date of a series represents the later ones.
        key = maintenance.series if is_open and maintenance.series else maintenance.id
        if key in rows:
            rows[key] = replace(rows[key], more=rows[key].more + 1)
            continue
        often = recurrence_words(recurrence_read(maintenance.rule)) if maintenance.rule else ""
        rows[key] = MaintenanceRow(maintenance, *STAGES[stage], is_open=is_open, often=often)
    return sorted(rows.values(), key=lambda row: not row.is_open)


def _gpu(name: str, index: int) -> Gpu:
    found = Gpu.objects.select_related("node").filter(node__name=name, index=index).first()
    if found is None:
        raise missing("GPU")
    return found


@dataclass(frozen=True, slots=True)
class PreviewWords:
    """The preview: effects, the confirmation's text and the button's text."""

    tone: str
    summary: str
    agreement: str
    button: str


def preview_words(preview: Preview, act: str = "Plan maintenance") -> PreviewWords:
    """Returns the texts of a preview."""
    kept, lost, broken = preview.kept, preview.lost, len(preview.running)
    summary = [f"{counted(kept, 'planned start')} would move."] * bool(kept)
    stuck = f"{counted(lost, 'planned start')} cannot move and would be cancelled."
    summary += [stuck] * bool(lost)
    summary += [f"{counted(broken, 'running booking')} would be interrupted."] * bool(broken)
    agreement = [f"Cancel {counted(lost, 'booking')}"] * bool(lost)
    agreement += [f"interrupt {counted(broken, 'running booking')}"] * bool(broken)
    button = [act]
    button += [f"move {counted(kept, 'start')}"] * bool(kept)
    button += [f"cancel {lost}"] * bool(lost)
    button += [f"interrupt {broken}"] * bool(broken)
    return PreviewWords(
        tone="risk" if preview.hurt else "wait" if preview.moved else "ok",
        summary=" ".join(summary) or "No planned start would move.",
        agreement=", ".join(agreement),
        button=", ".join(button),
    )


urlpatterns = [
    path("ops/maintenance", ops_maintenance, name="ops-maintenance"),
    path(
        "ops/maintenance/<uuid:maintenance_id>",
        ops_maintenance_change,
        name="ops-maintenance-change",
    ),
    path("ops/maintenance/<uuid:maintenance_id>/end", ops_maintenance_end, name="ops-maintenance-end"),
    path("ops/fleet/<slug:name>/<int:index>/return", ops_gpu_return, name="ops-gpu-return"),
    path("ops/fleet/<slug:name>/fence", ops_fence, name="ops-fence"),
]
