"""Tiers: what they allow, and what the policy's planning horizon takes from it."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.queries.decisions.horizon import horizon_hint
from tenants.api.base import ApiView, list_response
from tenants.models import Tier, User
from tenants.platform.errors import missing
from tenants.platform.rest.fields import Flag, Strict, Text, Whole
from tenants.platform.rest.schema import described, page
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area
from tenants.services import TierTerms, tier_set


class TierTermsIn(Strict):
    """The settings of a tier; times in seconds."""

    name = Text(max_length=80)
    priority = Whole(min_value=-1000, max_value=1000, help_text="A higher number is served first.")
    pausable = Flag()
    grace_seconds = Whole()
    protected_seconds = Whole()
    max_duration_seconds = Whole()
    advance_seconds = Whole(help_text="The planning horizon of the policy is a limit, too.")
    description = Text(required=False, allow_blank=True, max_length=200, default="")
    counts_against_guarantee = Flag(
        required=False, default=True, help_text="Without it the tier always borrows."
    )
    pause_method = serializers.ChoiceField(choices=Tier.PauseMethod.values, required=False, default="stop")
    max_pauses = Whole(required=False, allow_null=True, default=None, help_text="Null: as often as needed.")
    credit_cap_seconds = Whole(
        required=False, default=4 * 3600, help_text="The most work done again that is not charged."
    )
    more_times = Whole(required=False, default=0, help_text="How often a pause can be postponed.")
    more_time_seconds = Whole(required=False, default=0, help_text="By how much at a time.")
    replace_on_lost = Flag(
        required=False,
        default=False,
        help_text="Begun anew elsewhere when its node falls silent; the node ends it itself.",
    )
    notice_seconds = Whole(
        required=False, default=0, help_text="GPUs that are given up so shortly before are late."
    )
    late_share = Whole(
        required=False, default=0, help_text="Percent of the price of time that is given up late."
    )
    no_show_after_seconds = Whole(
        required=False,
        allow_null=True,
        default=None,
        help_text="Unused bookings end then, 0: never; null: as the policy says.",
    )
    no_show_share = Whole(
        required=False,
        allow_null=True,
        default=None,
        help_text="Percent of the rest of a no-show; null: as the policy says.",
    )
    idle_action = serializers.ChoiceField(
        choices=Tier.IdleAction.values,
        required=False,
        default=Tier.IdleAction.TELL,
        help_text="What happens to idle GPUs that others wait for.",
    )
    min_duration_seconds = Whole(required=False, default=0)
    lead_seconds = Whole(
        required=False, default=0, help_text="Bookings are made at least so long before they start."
    )
    max_open = Whole(required=False, allow_null=True, default=None, help_text="Open bookings of a person.")
    max_open_gpus = Whole(required=False, allow_null=True, default=None, help_text="GPUs of these bookings.")


class TierOut(serializers.Serializer[Any]):
    """A service class."""

    slug = serializers.CharField()
    name = serializers.CharField()
    priority = serializers.IntegerField()
    pausable = serializers.BooleanField()
    grace_seconds = serializers.IntegerField()
    protected_seconds = serializers.IntegerField()
    max_duration_seconds = serializers.IntegerField()
    advance_seconds = serializers.IntegerField()
    description = serializers.CharField()
    counts_against_guarantee = serializers.BooleanField()
    pause_method = serializers.ChoiceField(choices=Tier.PauseMethod.values)
    max_pauses = serializers.IntegerField(allow_null=True)
    credit_cap_seconds = serializers.IntegerField()
    more_times = serializers.IntegerField()
    more_time_seconds = serializers.IntegerField()
    replace_on_lost = serializers.BooleanField()
    notice_seconds = serializers.IntegerField()
    late_share = serializers.IntegerField()
    no_show_after_seconds = serializers.IntegerField(allow_null=True)
    no_show_share = serializers.IntegerField(allow_null=True)
    idle_action = serializers.ChoiceField(choices=Tier.IdleAction.values)
    min_duration_seconds = serializers.IntegerField()
    lead_seconds = serializers.IntegerField()
    max_open = serializers.IntegerField(allow_null=True)
    max_open_gpus = serializers.IntegerField(allow_null=True)
    hint = serializers.SerializerMethodField(
        help_text="What the planning horizon of the policy takes from it; empty: nothing."
    )

    def get_hint(self, row: Tier) -> str:
        """Returns the hint."""
        return horizon_hint(row.advance_seconds)


class Tiers(ApiView):
    """The tiers."""

    @described("list_tiers", "Tiers, the first served first", answer=page(TierOut))
    def get(self, request: Request) -> Response:
        """Lists all tiers."""
        with self.tx():
            return list_response(TierOut(Tier.objects.all(), many=True).data)


class TierOne(ApiView):
    """One tier."""

    area = Area.RULES

    @described("get_tier", "One tier", answer=TierOut)
    def get(self, request: Request, slug: str) -> Response:
        """Describes the tier."""
        with self.tx():
            tier = Tier.objects.filter(slug=slug).first()
            if tier is None:
                raise missing("tier")
            return Response(TierOut(tier).data)

    @described("set_tier", "Create or change a tier (operators)", answer=TierOut, request=TierTermsIn)
    def put(self, request: Request, slug: str) -> Response:
        """Creates or changes the tier."""
        self.require_operator()
        terms = TierTerms(**self.sent(TierTermsIn))
        with operator_tx():
            operator = User.objects.get(id=self.actor.user_id)
            tier = tier_set(operator=operator, slug=slug, terms=terms, now=self.now)
            return Response(TierOut(tier).data)
