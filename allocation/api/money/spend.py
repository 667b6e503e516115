"""What was charged on any days, and as many days before."""

from collections.abc import Mapping
from datetime import UTC, timedelta
from decimal import Decimal
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.money.bookings import GROUPING
from allocation.queries.bookings.money.statement_files import project_read
from allocation.queries.bookings.money.statements import StatementOf, group_check, spend_of
from allocation.words.refusals import refusal_text
from billing.focus import Totals
from billing.rules import Period
from tenants.api.base import ApiView, list_response
from tenants.platform.costly import costly
from tenants.platform.errors import invalid
from tenants.platform.rest.fields import Day, Money, Strict, Text
from tenants.platform.rest.schema import described, page

USUAL, MOST = timedelta(days=28), timedelta(days=366)
ZERO = Decimal(0)


class SpendOut(serializers.Serializer[Any]):
    """What a group was charged, with corrections; amounts are the ledger's, without rounding."""

    name = serializers.CharField(help_text="Empty for charges without a campaign.")
    amount = Money(max_digits=20, min_value=None)
    before = Money(max_digits=20, min_value=None, help_text="On as many days that end where these begin.")


class SpendQuery(Strict):
    """Days of UTC [starts, ends), without them the last four weeks until today, and a grouping."""

    by = Text(max_length=70, required=False, default="person", help_text=GROUPING)
    starts = Day(required=False)
    ends = Day(required=False, help_text="The first day after them.")
    project = Text(max_length=40, required=False, default="")


@costly("statement")
class Spend(ApiView):
    """The spend of a project, or of the whole organisation (tenant admins)."""

    queries = {"GET": SpendQuery}

    @described(
        "list_spend",
        "Spend by person, project, ticket, label and so on, next to that of the days before",
        answer=page(SpendOut),
        query=SpendQuery,
    )
    def get(self, request: Request) -> Response:
        """Lists groups, the largest amount first."""
        ends = self.query.get("ends", self.now.astimezone(UTC).date() + timedelta(days=1))
        starts = self.query.get("starts", ends - USUAL)
        if not timedelta(0) < ends - starts <= MOST:
            raise invalid("bad_period", refusal_text("spend_period"), "ends")
        days, before = Period(starts, ends), Period(starts - (ends - starts), starts)
        by = group_check(self.query["by"])
        with self.tx():
            project = project_read(self.actor, self.query["project"])
            now, then = (
                spend_of(StatementOf(self.actor.tenant_id, each, project), by) for each in (days, before)
            )
        sums = {name: _exact(now, name) for name in now.keys() | then.keys()}
        return list_response(
            dict(SpendOut({"name": name, "amount": amount, "before": _exact(then, name)}).data)
            for name, amount in sorted(sums.items(), key=lambda each: (-each[1], each[0]))
        )


def _exact(sums: Mapping[str, Totals], name: str) -> Decimal:
    return sums[name].exact if name in sums else ZERO
