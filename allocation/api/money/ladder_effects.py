"""What rungs of a ladder would stop, before they are set."""

from typing import Any
from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
from allocation.queries.bookings.rung_effects import rung_effect
from allocation.words.refusals import refusal_text
from billing.access import access_budget, require_budget_right
from billing.models import Budget, Guardrail
from billing.queries import budget_figures_of
from billing.services.guardrails import MOST_RUNGS
from tenants.api.base import ApiView
from tenants.platform.costly import costly
from tenants.platform.errors import invalid, missing
from tenants.platform.rest.fields import Money, Strict, Whole
from tenants.platform.rest.schema import described
from tenants.rules.operator_roles import Area


class RungAsked(Strict):
    """A rung as it would be set."""

    measure = serializers.ChoiceField(choices=Guardrail.Measure.values)
    percent = Whole(min_value=1, max_value=200)
    action = serializers.ChoiceField(choices=Guardrail.Action.values)


class LadderAsked(Strict):
    """Rungs that are asked about; without any, those of the ladder."""

    rungs = RungAsked(many=True, required=False)


class RungEffectOut(serializers.Serializer[Any]):
    """What a rung would do now. A number that its action does not touch is 0."""

    measure = serializers.ChoiceField(choices=Guardrail.Measure.values)
    percent = serializers.IntegerField()
    action = serializers.ChoiceField(choices=Guardrail.Action.values)
    share = serializers.DecimalField(max_digits=12, decimal_places=2, help_text="Percent of the amount now.")
    acts = serializers.BooleanField(help_text="Whether the share is reached now.")
    stopped = serializers.IntegerField(
        help_text="Bookings of the period that `no_bookings` would have refused, or `approval` "
        "would have asked about, so far."
    )
    amount = Money(max_digits=20, help_text="What those hold or cost.")
    first = serializers.DateTimeField(allow_null=True, help_text="When the first was requested.")
    kept = serializers.IntegerField(help_text="Bookings that `drain` or `pause` keep from starting.")
    held = Money(max_digits=20, help_text="What bookings hold, for `drain` and `pause`.")
    paused = serializers.IntegerField(help_text="Running bookings that `pause` would pause.")
    runs_on = serializers.IntegerField(help_text="Those that their tiers never pause.")
    gives_up = serializers.IntegerField(
        help_text="Bookings that would give up borrowed GPUs under `no_borrowing`."
    )
    moved = serializers.IntegerField(
        help_text="Bookings that `cheaper` would move to the cheapest of several classes."
    )


class LadderEffectOut(serializers.Serializer[Any]):
    """What each rung would do, in the order of the request."""

    rungs = RungEffectOut(many=True)


@costly("preview", "GET", "HEAD", "POST")
class LadderPreview(ApiView):
    """What rungs would stop."""

    @described(
        "preview_ladder",
        "What rungs of a ladder would stop now, before they are set",
        answer=LadderEffectOut,
        request=LadderAsked,
    )
    def post(self, request: Request, budget_id: UUID) -> Response:
        """Counts what each rung would do; changes nothing."""
        sent = self.sent(LadderAsked)
        with self.tx():
            budget = access_budget(self.actor, budget_id)
            require_budget_right(self.actor, budget.owner)
            return Response(_effects(self, budget, sent))


@costly("preview", "GET", "HEAD", "POST")
class PlatformLadderPreview(OperatorView):
    """What rungs of a budget of the platform would stop."""

    area = Area.MONEY

    @described(
        "preview_platform_ladder",
        "What rungs of the platform's ladder would stop now (operators)",
        answer=LadderEffectOut,
        request=LadderAsked,
    )
    def post(self, request: Request, budget_id: UUID) -> Response:
        """Counts what each rung would do; changes nothing."""
        sent = self.sent(LadderAsked)
        with self.operator_tx():
            budget = Budget.objects.filter(id=budget_id, level=Budget.Level.PLATFORM).first()
            if budget is None:
                raise missing("budget")
            return Response(_effects(self, budget, sent))


def _effects(view: ApiView, budget: Budget, sent: dict[str, Any]) -> dict[str, Any]:
    if len(sent.get("rungs", [])) > MOST_RUNGS:
        raise invalid("too_many_rungs", refusal_text("too_many_rungs", most_rungs=MOST_RUNGS), "rungs")
    rungs = sent.get("rungs") or [
        {"measure": row.measure, "percent": row.percent, "action": row.action}
        for row in Guardrail.objects.filter(budget=budget)
    ]
    figures = budget_figures_of([budget.id])[budget.id]
    found = []
    for each in rungs:
        rung = (each["measure"], each["percent"], each["action"])
        effect = rung_effect(budget, figures, rung, view.now)
        names = (name for name in effect.__slots__)
        found.append({**each, **{name: getattr(effect, name) for name in names}})
    return dict(LadderEffectOut({"rungs": found}).data)
