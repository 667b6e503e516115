"""REST of workloads: their speeds, their profiles, and the workload of a booking."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import tzinfo
from decimal import Decimal
from typing import Any

from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
from allocation.features.workloads.diversion import DiversionTerms, diversion_set, diversion_state
from allocation.features.workloads.models import Diversion
from allocation.features.workloads.offers import ADVICE, advice_for, effects_of, usual_ask
from allocation.features.workloads.profiles import Profile
from allocation.features.workloads.services import (
    Workload,
    WorkloadTerms,
    booking_workload_set,
    projects_with_workloads,
    workloads_of,
)
from allocation.queries.fleet.catalogue import work_speeds
from allocation.rules.ask.line.text import document_text
from allocation.rules.workload_names import LABEL, workload_of
from allocation.services.record.workloads import speeds_set
from tenants.api.base import ApiView, list_response
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.errors import missing
from tenants.platform.rest.fields import Money, Strict, Whole
from tenants.platform.rest.schema import described, page
from tenants.rules.operator_roles import Area
from tenants.web.frame import zone_of

rest = Endpoints(Scope.BOOK, in_project=True)


def _percent(text: str) -> serializers.FloatField:
    return serializers.FloatField(allow_null=True, help_text=f"{text} Percent; null: not measured.")


class BottleneckOut(serializers.Serializer[Any]):
    """What holds a workload up on a class, by a rule: `idle`, `input`, `memory` (its bandwidth),
    `communication`, `compute`, `throttled`, or `steady`, which is none of them."""

    kind = serializers.CharField()
    sentence = serializers.CharField(help_text="Of the newest run that has it.")
    evidence = serializers.DictField(child=serializers.FloatField(), help_text="The numbers of the rule.")
    confidence = serializers.FloatField(help_text="From 0 to 1.")
    agreed = serializers.IntegerField(help_text="Runs that have it, of those that were judged.")
    judged = serializers.IntegerField()


class ClassProfileOut(serializers.Serializer[Any]):
    """What finished runs of a project have shown of a workload on a class. Values are medians of runs."""

    project = serializers.CharField()
    gpu_class = serializers.CharField()
    slice = serializers.CharField(help_text="A profile, or `share`. Empty: whole GPUs.")
    gpus = serializers.IntegerField(help_text="Of most runs.")
    runs = serializers.IntegerField()
    last = serializers.DateTimeField(help_text="The last report, or the end, of the newest run.")
    gpu_hours = serializers.FloatField(help_text="Hours of its GPUs, slices or shares.")
    unit = serializers.CharField(allow_null=True, help_text="Of the rate: what a step is.")
    per_gpu_hour = serializers.FloatField(
        allow_null=True, help_text="Steps of a GPU in an hour. Null: fewer than 3 runs have said them."
    )
    low = serializers.FloatField(allow_null=True, help_text="A quarter of the runs did less.")
    high = serializers.FloatField(allow_null=True, help_text="A quarter of the runs did more.")
    rated_runs = serializers.IntegerField(help_text="Runs behind the rate.")
    rated_since = serializers.DateTimeField(
        allow_null=True, help_text="The first of them; older runs do not count. Null: no rate."
    )
    rated_last = serializers.DateTimeField(allow_null=True, help_text="The newest of them.")
    began = serializers.CharField(
        help_text="Why older runs do not count: `driver` (another one) or `jump` (another speed). Else empty."
    )
    driver = serializers.CharField(help_text="The driver of their nodes. Empty: not known.")
    coverage = serializers.FloatField(help_text="Percent of the GPUs' time with a measured utilisation.")
    memory_coverage = serializers.FloatField(help_text="Percent of their time with readings of memory.")
    busy = _percent("Utilisation while it works.")
    idle = _percent("Idle part of the measured time.")
    tensor = _percent("Tensor cores while it works.")
    bandwidth = _percent("Memory bandwidth while it works.")
    peak_memory_mb = serializers.IntegerField(allow_null=True, help_text="The most of all runs, on one GPU.")
    memory_total_mb = serializers.IntegerField(allow_null=True)
    cost_per_run = Money(max_digits=20)
    cost_per_unit = Money(
        max_digits=20, decimal_places=9, allow_null=True, help_text="Outside peak hours. Null: no rate."
    )
    currency = serializers.CharField()
    kwh_per_run = serializers.FloatField(allow_null=True)
    kwh_per_unit = serializers.FloatField(allow_null=True)
    not_measured = serializers.ListField(child=serializers.CharField(), help_text="Null fields, by name.")
    bottleneck = BottleneckOut(
        allow_null=True, help_text="Null: fewer than two runs were measured well enough, or they differ."
    )


class UseOfProjectOut(serializers.Serializer[Any]):
    """How often a project has run it."""

    project = serializers.CharField()
    runs = serializers.IntegerField()
    last = serializers.DateTimeField()


class WorkloadOut(serializers.Serializer[Any]):
    """A workload with its relative speeds by class. At speed 450 it takes 1000/450 as long as
    at speed 1000."""

    workload = serializers.CharField()
    speeds = serializers.DictField(
        child=serializers.IntegerField(), help_text="Of the operator's table; empty for other workloads."
    )


class WorkloadListedOut(WorkloadOut):
    """The same with its finished runs in your projects."""

    projects = UseOfProjectOut(many=True)


class WorkloadAdviceOut(serializers.Serializer[Any]):
    """What finished runs say about the next booking, as the newest run was booked."""

    project = serializers.CharField()
    gpu_class = serializers.CharField()
    code = serializers.CharField()
    sentence = serializers.CharField()
    request = serializers.CharField(allow_null=True, help_text="The changed request, at any time.")
    labels = serializers.DictField(
        child=serializers.CharField(), help_text="Of a booking that takes it: what came of it is measured."
    )
    link = serializers.CharField(help_text="What to do. Empty: nothing but the request.")


class AdviceEffectOut(serializers.Serializer[Any]):
    """What came of an advice."""

    project = serializers.CharField()
    code = serializers.CharField()
    shown = serializers.IntegerField(help_text="Quotes that showed it.")
    taken = serializers.IntegerField(help_text="Bookings that took it.")
    runs = serializers.IntegerField(help_text="Finished runs of them.")
    per_run = Money(max_digits=20, allow_null=True, help_text="The median of what these runs cost.")
    per_run_without = Money(max_digits=20, allow_null=True, help_text="That of runs without advice.")
    per_unit = Money(max_digits=20, decimal_places=9, allow_null=True)
    per_unit_without = Money(max_digits=20, decimal_places=9, allow_null=True)
    percent = serializers.IntegerField(allow_null=True, help_text="The difference; negative: cheaper.")


class DiversionOut(serializers.Serializer[Any]):
    """How the classes of a project's requests are ordered."""

    project = serializers.CharField()
    workload = serializers.CharField(help_text="Empty: all workloads of the project.")
    mode = serializers.ChoiceField(
        choices=Diversion.Mode.values,
        help_text="`off`, `suggest` (a cheaper class in advice) or `automatic` (the cheapest class first).",
    )
    since = serializers.DateTimeField(allow_null=True, help_text="Null: nobody has set it.")


class DiversionStateOut(DiversionOut):
    """The same with what came of the bookings that were diverted since then. Costs of a step are medians."""

    runs = serializers.IntegerField(help_text="Finished runs on another class than their first one.")
    predicted = Money(max_digits=20, decimal_places=9, allow_null=True, help_text="When they were booked.")
    measured = Money(max_digits=20, decimal_places=9, allow_null=True)
    otherwise = Money(max_digits=20, decimal_places=9, allow_null=True, help_text="On the first class.")
    percent = serializers.IntegerField(allow_null=True, help_text="The difference; negative: cheaper.")
    is_stopped = serializers.BooleanField(
        help_text="It made the workload worse, so it has stopped by itself."
    )


class WorkloadProfileOut(WorkloadOut):
    """A workload with what your projects have learnt of it."""

    profile = ClassProfileOut(many=True, help_text="Of each project and class, the most runs first.")
    advice = WorkloadAdviceOut(many=True)
    diversion = DiversionStateOut(many=True, help_text="Of each project.")
    effects = AdviceEffectOut(many=True, help_text="Advice that quotes have shown, or that was taken.")


class BookingWorkloadOut(serializers.Serializer[Any]):
    """The workload of a booking."""

    number = serializers.CharField()
    workload = serializers.CharField(help_text="Empty: nothing names it.")


class SpeedsIn(Strict):
    """Relative speeds by class. An empty object deletes the workload."""

    speeds = serializers.DictField(child=Whole(min_value=1, max_value=1_000_000))


_MEASURED = ("per_gpu_hour", "busy", "idle", "tensor", "bandwidth", "peak_memory_mb", "kwh_per_run")


def profile_data(project: str, found: Profile) -> dict[str, Any]:
    """A profile as `ClassProfileOut` takes it."""
    rate, verdict = found.rate, found.verdict
    data = {
        "project": project,
        "runs": len(found.runs),
        "rated_runs": rate.runs if rate else 0,
        "rated_since": rate.since if rate else None,
        "rated_last": rate.last if rate else None,
        "began": rate.began if rate else "",
        "driver": rate.driver if rate else "",
        "gpu_hours": round(found.gpu_hours, 3),
        "coverage": round(100 * found.coverage, 1),
        "memory_coverage": round(100 * found.memory_coverage, 1),
        "idle": None if found.idle is None else round(100 * found.idle, 1),
        "cost_per_run": round(Decimal(found.cost_per_run), 6),
        "cost_per_unit": None if found.cost_per_unit is None else round(found.cost_per_unit, 9),
        "bottleneck": None
        if verdict is None
        else {
            "kind": verdict.kind,
            "sentence": verdict.sentence,
            "evidence": dict(verdict.evidence),
            "confidence": verdict.confidence,
            "agreed": verdict.agreed,
            "judged": verdict.judged,
        },
    }
    for name in ("unit", "per_gpu_hour", "low", "high"):
        data[name] = getattr(rate, name) if rate else None
    for name in ("busy", "tensor", "bandwidth"):
        value = getattr(found, name)
        data[name] = None if value is None else round(value, 1)
    for name in ("gpu_class", "slice", "gpus", "last", "currency", "peak_memory_mb", "memory_total_mb"):
        data[name] = getattr(found, name)
    for name in ("kwh_per_run", "kwh_per_unit"):
        data[name] = getattr(found, name)
    return data | {"not_measured": [name for name in _MEASURED if data[name] is None]}


def _profiles(rows: Iterable[Workload]) -> list[dict[str, Any]]:
    return [profile_data(each.project.slug, found) for each in rows for found in each.profiles]


def _advice(found: Workload, zone: tzinfo) -> Iterator[dict[str, Any]]:
    for profile in found.profiles:
        for each in advice_for(found.project, found.name, found.profiles, usual_ask(profile.runs[0])):
            yield {
                "project": found.project.slug,
                "gpu_class": profile.gpu_class,
                "code": each.code,
                "sentence": each.sentence,
                "request": None if each.ask is None else document_text(each.ask, zone),
                "labels": {LABEL: found.name, ADVICE: each.code},
                "link": each.link,
            }


def _diversion(found: Workload) -> dict[str, Any]:
    state = diversion_state(found.project, found.name, found.runs)
    shown = {"project": found.project.slug, "workload": found.name, "percent": state.percent}
    return shown | asdict(state)


class Workloads(ApiView):
    """The known workloads."""

    @described("list_workloads", "List workloads", answer=page(WorkloadListedOut))
    def get(self, request: Request) -> Response:
        """Returns those of the operator's table with their speeds, and those of which your projects have
        finished runs."""
        with self.tx():
            speeds = work_speeds()
            found = workloads_of(projects_with_workloads(self.actor), with_use=False)
            used: dict[str, list[dict[str, Any]]] = {}
            for each in found:
                row = {"project": each.project.slug, "runs": len(each.runs), "last": each.runs[0].at}
                used.setdefault(each.name, []).append(row)
            rows = [
                {"workload": name, "speeds": speeds.get(name, {}), "projects": used.get(name, [])}
                for name in sorted({*speeds, *used})
            ]
            return list_response(WorkloadListedOut(rows, many=True).data)


class WorkloadOne(OperatorView):
    """One workload."""

    area = Area.RULES

    @described("get_workload", "Read a workload with its profile", answer=WorkloadProfileOut)
    def get(self, request: Request, slug: str) -> Response:
        """Returns its speeds, and what finished runs of the projects that you may see have shown of it."""
        with self.tx():
            speeds = work_speeds().get(slug, {})
            found = workloads_of(projects_with_workloads(self.actor), slug)
            if not speeds and not found:
                raise missing("workload")
            shown = {
                "workload": slug,
                "speeds": speeds,
                "profile": _profiles(found),
                "advice": [row for each in found for row in _advice(each, zone_of(self.actor.time_zone))],
                "diversion": [_diversion(each) for each in found],
                "effects": [
                    {"project": each.project.slug, **asdict(row), "percent": row.percent}
                    for each in found
                    for row in effects_of(each.project, each.name, each.runs)
                ],
            }
            return Response(WorkloadProfileOut(shown).data)

    @described(
        "set_workload",
        "Create or update a workload (operators)",
        answer=WorkloadOut,
        request=SpeedsIn,
    )
    def put(self, request: Request, slug: str) -> Response:
        """Sets the relative speed of a workload on each class and returns the workload."""
        self.require_operator()
        sent = self.sent(SpeedsIn)
        with self.operator_tx():
            speeds = speeds_set(operator=self.user, workload=slug, speeds=sent["speeds"], now=self.now)
            return Response(WorkloadOut({"workload": slug, "speeds": speeds}).data)


@rest.put(
    "bookings/<str:reference>/workload",
    "Name the workload of a booking",
    BookingWorkloadOut,
    terms=WorkloadTerms,
)
def put_booking_workload(call: ApiView, terms: WorkloadTerms, reference: str) -> dict[str, str]:
    """Sets its label `workload`, also when it is over. Without a name it is named by its booking again."""
    row = booking_workload_set(actor=call.actor, reference=reference, terms=terms, now=call.now)
    return {"number": row.label, "workload": workload_of(row)}


@rest.put(
    "projects/<slug:slug>/diversion",
    "Choose how the classes of requests are ordered (leads)",
    DiversionOut,
    terms=DiversionTerms,
)
def put_project_diversion(call: ApiView, terms: DiversionTerms, slug: str) -> dict[str, Any]:
    """With `automatic` a request of a workload on several classes, of which all are learnt, takes the class
    on which a step costs least. It stops by itself when three runs or more cost more than on the first class;
    setting it again lets it try anew."""
    row = diversion_set(actor=call.actor, project=slug, terms=terms, now=call.now)
    return {"project": slug, "workload": row.workload, "mode": row.mode, "since": row.since}


urlpatterns = [
    path("workloads", Workloads.as_view(), name="api-workloads"),
    path("workloads/<slug:slug>", WorkloadOne.as_view(), name="api-workload"),
    *rest.urls,
]
