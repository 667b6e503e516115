"""REST of insights."""

from collections.abc import Sequence
from datetime import date
from typing import Any

from rest_framework import serializers

from allocation.features.insights.figures import STEPS, Figures, Whose, sum_of
from allocation.features.insights.rule_changes import KINDS, RuleChange, changes_seen, rule_changes
from allocation.features.insights.services import (
    OWN_NOUNS,
    SITE_NOUNS,
    Question,
    own_figures,
    periods_read,
    question_read,
    rows_of,
)
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.rest.fields import Day, Money, Strict, Text
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area

rest = Endpoints(Scope.ADMIN, in_project=True, area=Area.OVERVIEW)


def _query(nouns: tuple[str, ...], **more: serializers.Field[Any, Any, Any, Any]) -> type[Strict]:
    """The parameters; `from` is a word of Python."""
    return type(
        "KpiQuery",
        (Strict,),
        {
            "__doc__": "UTC days [from, to), without them the last four weeks until now.",
            "from": Day(required=False),
            "to": Day(required=False, help_text="The first day after them."),
            "by": serializers.ChoiceField(nouns, required=False, default="class"),
            "step": serializers.ChoiceField(STEPS, required=False, default="day"),
            **more,
        },
    )


def _decimal(text: str, *, null: bool = False) -> serializers.DecimalField:
    return serializers.DecimalField(
        max_digits=20, decimal_places=3, help_text=text, allow_null=null, coerce_to_string=True
    )


class KpiUnitOut(serializers.Serializer[Any]):
    """What units of progress cost, of the runs that have reported last in the step."""

    unit = serializers.CharField(help_text="What the programs count, such as step or epoch.")
    cost = Money(
        max_digits=20,
        decimal_places=9,
        allow_null=True,
        help_text="Of one unit, at plain prices and the rates of the runs. Null: none was done.",
    )
    units = serializers.FloatField(help_text="That were done, at these rates.")
    runs = serializers.IntegerField()


class KpiOut(serializers.Serializer[Any]):
    """What a class, a project or somebody had in a step. Hours are of whole GPUs."""

    starts = serializers.DateField(help_text="The first day of the step within the days.")
    name = serializers.CharField(help_text="Empty for charges without one.")
    gpu_hours = _decimal("That bookings had, by the portal's record. A slice counts by its size.")
    measured_gpu_hours = _decimal("Of them with readings of nodes: unused hours are of these.")
    unused_gpu_hours = _decimal("Without a process, or less than 5 % busy.")
    dark_gpu_hours = _decimal("Of these, in hours in which somebody waited for the class.")
    utilisation = _decimal("Percent busy of the time with a utilisation. Null: not measured.", null=True)
    kwh = _decimal("Measured by the GPUs.")
    energy_gpu_hours = _decimal("Hours for which it was measured.")
    co2_kg = _decimal(
        "Of the measured energy, by the grams of its zones, elsewhere by `CARBON_GRAMS_PER_KWH`. Null"
        " without either, or without a measurement.",
        null=True,
    )
    bandwidth = _decimal("Percent of the memory bandwidth. Null: not measured.", null=True)
    sm = _decimal(
        "Percent of the time that an SM had work, on average over all SMs. Null: not measured.", null=True
    )
    tensor = _decimal("Percent of the time that tensor cores worked. Null: not measured.", null=True)
    tflops_per_watt = _decimal(
        "An estimate: the time of tensor cores by the product's dense FP16 peak, by the measured energy.",
        null=True,
    )
    link_bytes_per_kiloflop = _decimal(
        "Communication to computation: bytes over NVLink, PCIe and the network of bookings for each thousand"
        " operations, an estimate as above.",
        null=True,
    )
    began = serializers.IntegerField(help_text="Bookings that ran for the first time.")
    wait_p50_seconds = serializers.IntegerField(
        allow_null=True, help_text="From the earliest start that was requested. Null: none began."
    )
    wait_p95_seconds = serializers.IntegerField(allow_null=True)
    starts_announced = serializers.IntegerField(help_text="Of those that began: planned ahead.")
    starts_kept = serializers.IntegerField(
        help_text="Of these: never announced later, and at most a minute after the latest start."
    )
    pauses = serializers.IntegerField()
    lost_hours = _decimal("Of bookings' runs since their last save, by pauses.")
    spend = Money(
        max_digits=20,
        min_value=None,
        allow_null=True,
        help_text="What was charged, with corrections, for runs that ended in the step. Null: nothing, or"
        " of several currencies.",
    )
    price_per_busy_gpu_hour = Money(
        max_digits=20,
        allow_null=True,
        help_text="The plain price of the hours for each hour of a GPU that was fully busy. Null where less"
        " than half was measured.",
    )
    core_hours = _decimal("Of bookings without a GPU, which no other figure of hours has.")
    units: Any = KpiUnitOut(many=True, help_text="What units of progress cost. Empty as spend is.")


class CapacityHoursOut(serializers.Serializer[Any]):
    """Where the hours of a class went."""

    there = serializers.FloatField(help_text="GPU-hours of all GPUs that the class has today.")
    out_of_service = serializers.FloatField(
        help_text="Of them missing, hanging, on a node without an answer, or under maintenance."
    )
    dark = serializers.FloatField(
        help_text="Of them in service and free in hours in which as many GPUs of the class were waited for."
    )


class SiteKpiOut(KpiOut):
    """What a class, an organisation or a tier had in a step."""

    capacity = CapacityHoursOut(allow_null=True, help_text="By class only.")


def _shown(row: tuple[date, str, Figures]) -> dict[str, Any]:
    starts, name, found = row
    names = [each for each in SiteKpiOut().get_fields() if each not in ("starts", "name")]
    return {"starts": starts, "name": name} | {each: getattr(found, each) for each in names}


def _question(call: ApiView, nouns: tuple[str, ...]) -> Question:
    query = call.query
    return question_read(query.get("from"), query.get("to"), query["by"], query["step"], nouns, call.now)


_OWNER = Text(
    max_length=40, required=False, default="", help_text="A project, `lab:` and a lab, or `projects:mine`."
)


@rest.rows(
    "kpis",
    "GPU-hours, use, energy, waits, pauses and spend over time",
    KpiOut,
    query=_query(
        OWN_NOUNS,
        project=_OWNER,
    ),
    kind="statement",
)
def list_kpis(call: ApiView) -> list[dict[str, Any]]:
    """Lists the figures of a project, or of the whole organisation (tenant admins). Current runs count
    until now."""
    with call.tx():
        question = _question(call, OWN_NOUNS)
        whose = own_figures(call.actor, call.query["project"], question)
        return [_shown(row) for row in rows_of(whose, question, call.now)]


@rest.rows(
    "platform-kpis",
    "GPU-hours, use, energy, waits, pauses and spend of the whole site over time (operators)",
    SiteKpiOut,
    query=_query(SITE_NOUNS),
    kind="statement",
)
def list_platform_kpis(call: ApiView) -> list[dict[str, Any]]:
    """Lists the figures of all organisations together. Spend is by organisation only."""
    call.require_operator()
    with operator_tx():
        question = _question(call, SITE_NOUNS)
        return [_shown(row) for row in rows_of(Whose(), question, call.now)]


class RuleChangeOut(serializers.Serializer[Any]):
    """Something else that changed."""

    at = serializers.DateTimeField()
    kind = serializers.ChoiceField(choices=list(KINDS))
    who = serializers.CharField(help_text="A sign-in name, or `The portal`.")
    sentence = serializers.CharField(help_text="Such as `published price book version 3`.")
    values = serializers.ListField(child=serializers.CharField(), help_text="Such as `weight: 1 to 2`.")


class PeriodOut(serializers.Serializer[Any]):
    """A period: its figures together, and what else changed in it."""

    starts = serializers.DateField()
    ends = serializers.DateField(help_text="The first day after it.")
    figures: Any = KpiOut()
    changes: Any = RuleChangeOut(
        many=True, help_text="The oldest first, 200 at most. Empty for members who lead nothing."
    )


def _comparison_query(**more: serializers.Field[Any, Any, Any, Any]) -> type[Strict]:
    """The parameters of two periods."""
    return type(
        "ComparisonQuery",
        (Strict,),
        {
            "__doc__": "UTC days [from, to), without them the last four weeks until now, and those before.",
            "from": Day(required=False),
            "to": Day(required=False, help_text="The first day after them."),
            "against_from": Day(required=False, help_text="Without it: as many days just before."),
            "against_to": Day(required=False, help_text="Without it: as many days as the first period has."),
            **more,
        },
    )


def _periods(call: ApiView) -> tuple[Question, Question]:
    query = call.query
    return periods_read([query.get(name) for name in ("from", "to", "against_from", "against_to")], call.now)


def _period(call: ApiView, whose: Whose, question: Question, changes: Sequence[RuleChange]) -> dict[str, Any]:
    total = sum_of(found for _, _, found in rows_of(whose, question, call.now))
    return {
        "starts": question.days.starts,
        "ends": question.days.ends,
        "figures": _shown((question.days.starts, "", total)),
        "changes": changes,
    }


@rest.rows(
    "kpi-comparison",
    "Compare two periods, with what else changed in them",
    PeriodOut,
    query=_comparison_query(
        project=_OWNER,
    ),
    kind="statement",
)
def list_kpi_comparison(call: ApiView) -> list[dict[str, Any]]:
    """Lists two periods with the figures of a project or of the whole organisation. Its admins also get what
    else changed: policies by their numbers, prices, quotas and tiers, from the organisation's log. Its
    leads get of these the policies, the prices, and the quotas of the organisation and of their projects."""
    with call.tx():
        periods = _periods(call)
        whose = own_figures(call.actor, call.query["project"], periods[0])
        return [_period(call, whose, each, changes_seen(call.actor, each.days)) for each in periods]


@rest.rows(
    "platform-kpi-comparison",
    "Compare two periods of the whole site, with what else changed in them (operators)",
    PeriodOut,
    query=_comparison_query(),
    kind="statement",
)
def list_platform_kpi_comparison(call: ApiView) -> list[dict[str, Any]]:
    """Lists two periods with the figures of all organisations together, and the changes of policy, prices,
    quotas, tiers and the fleet."""
    call.require_operator()
    with operator_tx():
        return [_period(call, Whose(), each, rule_changes(None, each.days)) for each in _periods(call)]


urlpatterns = rest.urls
