"""REST of the mix of own, reserved and burst GPUs."""

from typing import Any

from rest_framework import serializers

from allocation.features.capacity.mix.arithmetic import KINDS, OWN, RESERVED
from allocation.features.capacity.mix.load import Whose
from allocation.features.capacity.mix.questions import (
    CHEAPEST,
    PRESENT,
    TRIED,
    ClassMix,
    MixQuery,
    SiteMixQuery,
    mixes_of,
    question_read,
    whose_mix,
)
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.rest.fields import Money
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area

rest = Endpoints(Scope.PROJECT, in_project=True, area=Area.FLEET)


def _number(text: str, digits: int = 3, *, null: bool = False) -> serializers.DecimalField:
    return serializers.DecimalField(max_digits=20, decimal_places=digits, help_text=text, allow_null=null)


class MixPartOut(serializers.Serializer[Any]):
    """The own, the reserved or the burst GPUs of a mix."""

    kind = serializers.ChoiceField(KINDS)
    gpus = serializers.IntegerField(help_text="Of burst: the most at once.")
    used = _number("GPU-hours of the demand on them.")
    share = _number("Percent of the demand.", 1)
    paid = _number("GPU-hours that cost: of own and reserved GPUs every hour.")
    cost = Money(max_digits=20, allow_null=True, help_text="Null: the price is not known.")


class MixOut(serializers.Serializer[Any]):
    """A mix. Queues, priorities and places are not simulated."""

    name = serializers.ChoiceField(
        [CHEAPEST, PRESENT, TRIED],
        help_text="`cheapest` has at most the own GPUs of now, `present` all of these, `tried` the given.",
    )
    parts = MixPartOut(many=True)
    cost = Money(max_digits=20, allow_null=True)


class PricesOut(serializers.Serializer[Any]):
    """Prices of a GPU-hour. Own and reserved GPUs cost in every hour, burst GPUs in those in which they are
    used."""

    own = Money(max_digits=20, allow_null=True)
    reserved = Money(max_digits=20, allow_null=True)
    burst = Money(max_digits=20, allow_null=True)
    currency = serializers.CharField(allow_blank=True)


class ClassMixOut(serializers.Serializer[Any]):
    """The GPUs of a class that bookings needed, counted without their waits, and what mixes cost."""

    gpu_class = serializers.CharField()
    starts = serializers.DateTimeField(
        help_text="The first hour that is counted, not before the first request."
    )
    ends = serializers.DateTimeField()
    hours = serializers.IntegerField(help_text="Hours that are counted.")
    gpu_hours = _number("That bookings had in them. Each run counts when it could have begun.")
    peak = _number("The most GPUs in an hour, on average of it.")
    never_ran_bookings = serializers.IntegerField(
        source="never_ran.bookings", help_text="Not counted: they ended without a run, or still wait."
    )
    never_ran_gpu_hours = _number("That these asked for.")
    own = serializers.IntegerField(help_text="Own GPUs that the bookings may use at once now.")
    prices = PricesOut()
    break_even_own = _number("Percent of the hours from which own GPUs are cheaper.", 1, null=True)
    break_even_reserved = _number("Percent of the hours from which reserved GPUs are cheaper.", 1, null=True)
    burst_wait_seconds = serializers.IntegerField(
        source="lead_seconds", allow_null=True, help_text="About how long a rented machine takes to come."
    )
    hours_by_gpu = serializers.ListField(
        child=serializers.FloatField(), help_text="The hours in which the first GPU is needed, the second, …"
    )
    mixes = MixOut(many=True)


def _shown(row: ClassMix) -> dict[str, Any]:
    names = ("gpu_class", "starts", "ends", "hours", "gpu_hours", "peak", "never_ran", "own", "prices")
    return {name: getattr(row, name) for name in (*names, "lead_seconds", "mixes")} | {
        "never_ran_gpu_hours": row.never_ran.gpu_hours,
        "break_even_own": row.prices.break_even(OWN),
        "break_even_reserved": row.prices.break_even(RESERVED),
        "hours_by_gpu": [round(each, 3) for each in row.hours_by_level],
    }


@rest.rows(
    "capacity/mix",
    "What own, reserved and burst GPUs would have cost for past demand",
    ClassMixOut,
    query=MixQuery,
    kind="statement",
)
def list_capacity_mixes(call: ApiView) -> list[dict[str, Any]]:
    """Lists the classes that bookings needed: of a project, of all that a lead leads, or of the organisation
    for its admins. With `own` or `reserved` the mix of these GPUs is one of the `mixes`."""
    with call.tx():
        whose = whose_mix(call.actor, call.query["project"])
        return [_shown(row) for row in mixes_of(whose, question_read(call.query, call.now), call.now)]


@rest.rows(
    "platform-mix",
    "What own, reserved and burst GPUs would have cost for the demand of the whole site (operators)",
    ClassMixOut,
    query=SiteMixQuery,
    kind="statement",
)
def list_platform_mixes(call: ApiView) -> list[dict[str, Any]]:
    """Lists the classes that bookings of all organisations needed."""
    call.require_operator()
    with operator_tx():
        whose = Whose("all organisations")
        return [_shown(row) for row in mixes_of(whose, question_read(call.query, call.now), call.now)]
