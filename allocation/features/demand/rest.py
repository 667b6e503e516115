"""REST of demand: the newest forecasts with their past hits."""

from datetime import timedelta
from typing import Any

from rest_framework import serializers

from allocation.features.demand.models import DemandForecast
from allocation.features.demand.services import hits_read, newest_forecasts
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import GpuClass, Scope
from tenants.platform.errors import missing
from tenants.platform.rest.fields import Strict, Text

rest = Endpoints(Scope.BOOK, in_project=True)


_QUERY: dict[str, Any] = {
    "__doc__": "A filter. `class` is a word of Python.",
    "class": Text(max_length=40, required=False, help_text="A GPU class."),
}
DemandQuery = type("DemandQuery", (Strict,), _QUERY)


class DemandHourOut(serializers.Serializer[Any]):
    """An hour: 8 in 10 are between `low` and `high`."""

    at = serializers.DateTimeField(help_text="The hour's begin.")
    low = serializers.FloatField()
    middle = serializers.FloatField()
    high = serializers.FloatField()


class HitsOut(serializers.Serializer[Any]):
    """How well kept forecasts did in the last four weeks, at some distance."""

    hours_ahead = serializers.CharField(source="ahead", help_text="Such as `7-24`.")
    held = serializers.IntegerField(help_text="Hours in the band.")
    tested = serializers.IntegerField(help_text="Of so many.")
    error = serializers.FloatField(help_text="GPUs between the middle and what came, on average.")


class DemandOut(serializers.Serializer[Any]):
    """What is expected of a class in the next 336 hours, of all organisations together."""

    gpu_class = serializers.CharField()
    kind = serializers.ChoiceField(
        ["requested", "in_use", "wanted"],
        help_text="GPUs that are asked for in the hour, in use in it, or in use and waited for.",
    )
    made_at = serializers.DateTimeField()
    hours = DemandHourOut(many=True, help_text="From the hour on in which it was made.")
    hits = HitsOut(many=True, help_text="Empty while no forecast is old enough.")


def _shown(row: DemandForecast) -> dict[str, Any]:
    bands = enumerate(zip(row.low, row.middle, row.high, strict=True))
    return {
        "gpu_class": row.gpu_class_id,
        "kind": row.kind,
        "made_at": row.at,
        "hours": [
            {"at": row.at + timedelta(hours=number), "low": low, "middle": middle, "high": high}
            for number, (low, middle, high) in bands
        ],
        "hits": hits_read(row),
    }


@rest.rows(
    "forecasts/demand",
    "Expected demand of GPU classes by hour for 14 days, with past hits",
    DemandOut,
    query=DemandQuery,
    kind="statement",
)
def list_demand_forecasts(call: ApiView) -> list[dict[str, Any]]:
    """Lists the newest forecasts by class and kind. A class is forecast after three days."""
    with call.tx():
        name = call.query.get("class", "")
        if name and not GpuClass.objects.filter(slug=name).exists():
            raise missing("GPU class", "class")
        return [_shown(row) for kinds in newest_forecasts(name).values() for row in kinds.values()]


urlpatterns = rest.urls
