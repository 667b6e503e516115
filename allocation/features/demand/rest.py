"""REST of demand: the newest forecasts with their past hits, when to book, and what is missing."""

from datetime import timedelta
from typing import Any

from rest_framework import serializers

from allocation.features.demand.booking_times import BookingTime, booking_times, class_of, tier_of
from allocation.features.demand.capacity import ClassCapacity, capacity_report
from allocation.features.demand.models import DemandForecast
from allocation.features.demand.own_capacity import OwnCapacity, own_capacity
from allocation.features.demand.services import hits_read, newest_forecasts
from allocation.features.demand.slicing import SlicingUse, slicing_uses
from allocation.words.refusals import refusal_text
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import GpuClass, Scope
from tenants.platform.errors import denied, missing
from tenants.platform.rest.fields import Money, Strict, Text
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area

rest = Endpoints(Scope.BOOK, in_project=True, area=Area.FLEET)


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


_HEAT_QUERY: dict[str, Any] = {
    "__doc__": "What would be booked. `class` is a word of Python.",
    "class": Text(max_length=40, help_text="A GPU class."),
    "tier": Text(max_length=40, required=False, default="", help_text="Empty: the usual one."),
    "count": serializers.IntegerField(
        required=False, default=1, min_value=1, max_value=4096, help_text="GPUs at once."
    ),
}
HeatQuery = type("HeatQuery", (Strict,), _HEAT_QUERY)


class HeatOut(serializers.Serializer[Any]):
    """What a start in an hour is expected to be like."""

    at = serializers.DateTimeField(help_text="The hour's begin.")
    wait_hours = serializers.IntegerField(
        allow_null=True, help_text="Until so many GPUs are expected free. Null: not within 14 days."
    )
    wait_hours_high = serializers.IntegerField(
        allow_null=True, help_text="By the upper bound of the forecast, which one of ten hours exceeds."
    )
    free = serializers.FloatField(help_text="GPUs that are expected free.")
    price = Money(max_digits=20, allow_null=True, help_text="Of a GPU in the hour. Null: there is none.")
    currency = serializers.CharField(allow_blank=True)
    pause_risk = serializers.IntegerField(
        allow_null=True, help_text="Thousandths; 0 in a tier that is never paused. Null: too few to tell."
    )


@rest.rows(
    "heatmap",
    "When to book: expected wait, price and risk of a pause for each hour of the coming week",
    HeatOut,
    query=HeatQuery,
    kind="statement",
)
def list_booking_times(call: ApiView) -> list[BookingTime]:
    """Lists the coming 168 hours for a class; none while it has no forecast, which takes three days."""
    with call.tx():
        gpu_class, tier = class_of(call.query["class"]), tier_of(call.query["tier"])
        return booking_times(gpu_class, tier, call.query["count"], call.now)


class WeekShortOut(serializers.Serializer[Any]):
    """GPU-hours that are missing in a week."""

    starts = serializers.DateTimeField()
    hours = serializers.IntegerField()
    is_past = serializers.BooleanField(help_text="True: what was. False: what is expected.")
    p50 = serializers.FloatField(help_text="GPU-hours that are missing by the middle of the forecast.")
    p90 = serializers.FloatField(help_text="By its upper bound, which one of ten hours exceeds.")
    peak_p50 = serializers.FloatField(help_text="The most GPUs that are missing at once.")
    peak_p90 = serializers.FloatField()


class MoreOut(serializers.Serializer[Any]):
    """What more GPUs would change in the coming two weeks, if nobody asked for more because of them."""

    gpus = serializers.IntegerField()
    p50 = serializers.FloatField(help_text="GPU-hours that are missing then.")
    p90 = serializers.FloatField()
    used_percent = serializers.FloatField(help_text="How much of their time they are used.")
    break_even = Money(
        max_digits=20,
        allow_null=True,
        help_text="The most that an hour of one of them may cost to pay off at the list price.",
    )


class HeadroomOut(serializers.Serializer[Any]):
    """GPUs that the policy keeps free at peaks, and what that gave and cost in the last four weeks."""

    gpus = serializers.IntegerField(help_text="Kept free at peaks now.")
    hours = serializers.IntegerField(help_text="Hours that were peaks.")
    served = serializers.IntegerField(help_text="Short bookings that started at once on these GPUs.")
    idle = serializers.FloatField(help_text="GPU-hours of them that nobody used.")
    waited = serializers.FloatField(help_text="Of these, while others waited for the class.")


class CapacityOut(serializers.Serializer[Any]):
    """What is missing of a class."""

    gpu_class = serializers.CharField()
    gpus = serializers.IntegerField()
    price = Money(max_digits=20, allow_null=True, help_text="Of a GPU-hour outside peak hours.")
    currency = serializers.CharField(allow_blank=True)
    weeks = WeekShortOut(many=True)
    more = MoreOut(many=True)
    headroom = HeadroomOut(allow_null=True, help_text="Null: none, now and in the last four weeks.")


@rest.rows(
    "capacity/report",
    "What is missing by class and week, and what more GPUs would change (operators)",
    CapacityOut,
    query=DemandQuery,
    kind="statement",
)
def list_capacity(call: ApiView) -> list[ClassCapacity]:
    """Lists the classes that have a forecast: four past weeks and the two that come."""
    call.require_operator()
    with operator_tx():
        name = call.query.get("class", "")
        return [row for row in capacity_report(call.now) if name in ("", row.gpu_class)]


class OwnWaitsOut(serializers.Serializer[Any]):
    """GPU-hours that bookings waited for on a class."""

    gpu_class = serializers.CharField()
    weeks = serializers.ListField(child=serializers.FloatField(), help_text="By week, the oldest first.")


class WaitChangeOut(serializers.Serializer[Any]):
    """Waits with the GPUs of now and with more, in seconds; null: nothing waited."""

    project = serializers.CharField(source="name", help_text="Empty: the whole organisation.")
    asked = serializers.IntegerField(help_text="Bookings without a fixed window.")
    p50 = serializers.IntegerField(allow_null=True)
    p50_more = serializers.IntegerField(allow_null=True)
    p95 = serializers.IntegerField(allow_null=True)
    p95_more = serializers.IntegerField(allow_null=True)
    effect = serializers.CharField(help_text="In words.")


class MoreGpusOut(serializers.Serializer[Any]):
    """What more GPUs would have changed, by a trial of operators on the past."""

    words = serializers.CharField(help_text="Such as `8 more NVIDIA H100`.")
    days = serializers.IntegerField()
    until = serializers.DateTimeField()
    rows = WaitChangeOut(many=True)


class OwnCapacityOut(serializers.Serializer[Any]):
    """What the work of your projects waited for, and what more GPUs would have changed for it."""

    starts = serializers.ListField(child=serializers.DateTimeField(), help_text="Of the weeks.")
    waits = OwnWaitsOut(many=True)
    more = MoreGpusOut(many=True)


@rest.get(
    "capacity/own", "What your projects waited for, and what more GPUs would change (leads)", OwnCapacityOut
)
def get_own_capacity(call: ApiView) -> OwnCapacity:
    """Returns the last four weeks of the projects that you lead, also as head of their lab; of all to
    admins."""
    found = own_capacity(call.actor, call.now)
    if found is None:
        raise denied(refusal_text("own_capacity_leads"))
    return found


class SlicingOut(serializers.Serializer[Any]):
    """Slices that nodes make ahead of expected requests, and what that did in the last four weeks."""

    gpu_class = serializers.CharField()
    gpus = serializers.IntegerField(help_text="GPUs that the policy lets them slice ahead now.")
    now = serializers.IntegerField(help_text="Slices that are there, or being made.")
    hits = serializers.IntegerField(help_text="Slices on which a booking started.")
    misses = serializers.IntegerField(help_text="Slices that were removed because they were not needed.")
    seconds_saved = serializers.FloatField(
        allow_null=True,
        help_text="By which bookings on them were ready earlier than the median of others. Null: fewer than"
        " five others.",
    )
    reset_seconds_saved = serializers.IntegerField(
        help_text="Of resets that were made before, for which the first booking on a GPU would have waited."
    )


@rest.rows(
    "capacity/slices-ahead",
    "Slices made ahead of expected requests, with hits and seconds saved (operators)",
    SlicingOut,
    query=DemandQuery,
    kind="statement",
)
def list_slices_ahead(call: ApiView) -> list[SlicingUse]:
    """Lists the classes for which the policy slices GPUs ahead, or did in the last four weeks."""
    call.require_operator()
    with operator_tx():
        name = call.query.get("class", "")
        return [row for row in slicing_uses(call.now) if name in ("", row.gpu_class)]


urlpatterns = rest.urls
