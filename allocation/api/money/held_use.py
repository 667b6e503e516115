"""How held GPU time was used: reserved but unused time, energy and CO2."""

from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.money.bookings import FileQuery, statement_asked
from allocation.queries.bookings.money.held_use import held_use_of
from tenants.api.base import ApiView
from tenants.platform.costly import costly
from tenants.platform.rest.fields import Money
from tenants.platform.rest.schema import described


def _amount(text: str, *, null: bool = False) -> serializers.DecimalField:
    return serializers.DecimalField(max_digits=20, decimal_places=3, help_text=text, allow_null=null)


class HeldUseOut(serializers.Serializer[Any]):
    """The use of a month from telemetry. Hours are of whole GPUs; slices count by their size."""

    month = serializers.CharField()
    project = serializers.CharField(allow_null=True, help_text="Null: all projects.")
    lab = serializers.CharField(allow_null=True, help_text="Whose projects it has.")
    held_hours = _amount("Of all bookings until now, by the portal's record.")
    hours = _amount("Of them measured: nodes have sent readings. All that follows is about these.")
    unused_hours = _amount("Of them without a process, or less than 5 % busy.")
    unused_cost = Money(max_digits=20, help_text="Their plain price. It is a part of the charges.")
    measured_kwh = _amount("Energy from readings of the GPUs.")
    assumed_kwh = _amount("Energy of time without readings, from the design power of the class.")
    co2_kg = _amount(
        "By the grams of its zones, elsewhere by `CARBON_GRAMS_PER_KWH`; null without either.", null=True
    )
    energy_cost = Money(
        max_digits=20,
        allow_null=True,
        help_text="Of the energy used in zones with an electricity price; null without. No part of charges.",
    )


@costly("statement")
class HeldUseView(ApiView):
    """The use of a month."""

    queries = {"GET": FileQuery}

    @described(
        "get_held_use",
        "Reserved but unused time, energy and CO2 of a month",
        answer=HeldUseOut,
        query=FileQuery,
    )
    def get(self, request: Request) -> Response:
        """Describes the use of a project, of a lab, or of the whole organisation (tenant admins)."""
        with self.tx():
            of = statement_asked(self)
            use = held_use_of(of, settings.CARBON_GRAMS_PER_KWH, self.now)
        found = {name: getattr(use, name) for name in use.__slots__}
        found |= {
            "month": f"{of.month.starts:%Y-%m}",
            "project": of.project.slug if of.project else None,
            "lab": of.lab.slug if of.lab else None,
        }
        return Response(dict(HeldUseOut(found).data))
