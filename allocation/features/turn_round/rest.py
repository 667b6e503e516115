"""REST of turn-round: what the time between two bookings of a device was, by node and kind."""

from collections.abc import Iterable, Iterator
from typing import Any

from rest_framework import serializers

from allocation.features.turn_round.services import KINDS, TurnRound, turn_rounds
from allocation.models import Node
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.rest.fields import Strict, Text
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area

rest = Endpoints(Scope.FLEET, for_operators=True, area=Area.FLEET)


class TurnRoundQuery(Strict):
    """A filter."""

    node = Text(max_length=63, required=False, help_text="A node's name.")


class TurnRoundOut(serializers.Serializer[Any]):
    """What changes among the newest 200 starts of the last four weeks took, in seconds."""

    node = serializers.CharField()
    kind = serializers.ChoiceField(
        list(KINDS),
        help_text="`slices`: before or after the change; `data`: of any, with data that was fetched.",
    )
    changes = serializers.IntegerField(help_text="Changes that were measured.")
    clearing_p50 = serializers.FloatField(help_text="From the end of a run until its device was empty.")
    preparing_p50 = serializers.FloatField(help_text="From the order to start until it was ready.")
    total_p50 = serializers.FloatField()
    total_p90 = serializers.FloatField()
    announced_seconds = serializers.IntegerField(
        help_text="So much later the latest start right after another booking is announced; 0: up to a "
        "minute, or fewer than five changes."
    )


@rest.rows(
    "turn-rounds",
    "The time between two bookings of a device, by node and kind (operators)",
    TurnRoundOut,
    query=TurnRoundQuery,
    kind="statement",
)
def list_turn_rounds(call: ApiView) -> list[dict[str, Any]]:
    """Lists the nodes on which bookings followed each other."""
    with operator_tx():
        nodes = Node.objects.order_by("name").values_list("id", "name")
        wanted = call.query.get("node", "")
        found = turn_rounds(call.now)
        return [
            row for node, name in nodes if wanted in ("", name) for row in _shown(name, found.get(node, ()))
        ]


def _shown(name: str, rows: Iterable[TurnRound]) -> Iterator[dict[str, Any]]:
    for row in rows:
        fields = ("kind", "changes", "clearing_p50", "preparing_p50", "total_p50", "total_p90")
        figures = {field: getattr(row, field) for field in fields}
        yield figures | {"node": name, "announced_seconds": int(row.announced.total_seconds())}


urlpatterns = rest.urls
