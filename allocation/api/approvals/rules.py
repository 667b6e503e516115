"""Rules that send bookings to an approver."""

from datetime import time
from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.approvals.approvals import ApprovalStepOut
from allocation.models import ApprovalRule
from allocation.queries.bookings.approvals import rules_in_force
from allocation.rules.approvals import Step
from allocation.services.bookings.approval.rules import (
    RuleTerms,
    approval_rule_retire,
    approval_rule_set,
)
from tenants.api.base import ApiView, list_response
from tenants.platform.rest.fields import Flag, Money, Strict, Text, Whole
from tenants.platform.rest.schema import described, page

_CLOCK = r"\A([01][0-9]|2[0-3]):[0-5][0-9]\Z"
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class HoursOut(serializers.Serializer[Any]):
    """Hours of weekdays, in a time zone."""

    weekdays = serializers.ListField(child=serializers.ChoiceField(choices=DAYS))
    begins = serializers.CharField()
    ends = serializers.CharField()
    zone = serializers.CharField()


class ApprovalRuleOut(serializers.Serializer[Any]):
    """A rule: a new booking that meets all of its conditions needs its steps."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    project = serializers.CharField(
        source="project.slug", default=None, allow_null=True, help_text="Null: every project."
    )
    min_cost = Money(allow_null=True, max_digits=20)
    min_gpu_hours = serializers.DecimalField(max_digits=12, decimal_places=3, allow_null=True)
    min_gpus = serializers.IntegerField(allow_null=True)
    min_seconds = serializers.IntegerField(allow_null=True)
    classes = serializers.ListField(child=serializers.CharField())
    tiers = serializers.ListField(child=serializers.CharField())
    outside = serializers.SerializerMethodField(help_text="Bookings that can run outside of these.")
    is_first = serializers.BooleanField()
    steps = ApprovalStepOut(many=True)
    created = serializers.DateTimeField()
    ended = serializers.DateTimeField(source="retired", allow_null=True)

    @extend_schema_field(HoursOut(allow_null=True))
    def get_outside(self, rule: ApprovalRule) -> dict[str, Any] | None:
        """Returns the hours of the rule, if it has any."""
        if rule.hours_begin is None or rule.hours_end is None:
            return None
        return {
            "weekdays": [DAYS[day] for day in rule.weekdays],
            "begins": f"{rule.hours_begin:%H:%M}",
            "ends": f"{rule.hours_end:%H:%M}",
            "zone": rule.zone,
        }


class HoursIn(Strict):
    """Hours of weekdays."""

    weekdays = serializers.ListField(child=serializers.ChoiceField(choices=DAYS), min_length=1, max_length=7)
    begins = serializers.RegexField(_CLOCK, help_text="`08:00`")
    ends = serializers.RegexField(_CLOCK)
    zone = Text(required=False, max_length=64, default="")


class StepIn(Strict):
    """A step: who decides, how many of them, and within how many hours."""

    role = serializers.ChoiceField(choices=["lead", "admin"])
    needed = Whole(required=False, default=1)
    hours = Whole(required=False, default=72)
    escalates = Flag(required=False, default=False)


class ApprovalRuleIn(Strict):
    """A new rule. Conditions that are left out do not matter; at least one is needed."""

    name = Text(max_length=80)
    project = Text(required=False, max_length=40, default="", help_text="Without it: every one.")
    min_cost = Money(required=False, allow_null=True, default=None)
    min_gpu_hours = Money(required=False, allow_null=True, default=None, decimal_places=3)
    min_gpus = Whole(required=False, allow_null=True, default=None)
    min_seconds = Whole(required=False, allow_null=True, default=None)
    classes = serializers.ListField(child=Text(max_length=40), required=False, max_length=32)
    tiers = serializers.ListField(child=Text(max_length=40), required=False, max_length=32)
    outside = HoursIn(required=False, allow_null=True, default=None)
    is_first = Flag(required=False, default=False)
    steps = StepIn(many=True)


class ApprovalRules(ApiView):
    """Rules in force."""

    @described("list_approval_rules", "List approval rules", answer=page(ApprovalRuleOut))
    def get(self, request: Request) -> Response:
        """Returns those of your organisation and your projects; at most 50 are in force."""
        with self.tx():
            return list_response(ApprovalRuleOut(rules_in_force(self.actor), many=True).data)

    @described(
        "create_approval_rule",
        "Add an approval rule",
        answer=ApprovalRuleOut,
        request=ApprovalRuleIn,
        status=201,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Adds a rule for new bookings: of a project by its leads, of all by tenant admins. A rule
        never changes; end it and add another."""
        sent = self.sent(ApprovalRuleIn)
        hours = sent.pop("outside")
        steps = [Step(**each) for each in sent.pop("steps")]
        outside: dict[str, Any] = (
            {}
            if hours is None
            else {
                "hours_begin": time.fromisoformat(hours["begins"]),
                "hours_end": time.fromisoformat(hours["ends"]),
                "weekdays": [DAYS.index(day) for day in hours["weekdays"]],
                "zone": hours["zone"] or self.actor.time_zone,
            }
        )

        def work() -> Response:
            terms = RuleTerms(steps=steps, **sent, **outside)
            rule = approval_rule_set(actor=self.actor, terms=terms, now=self.now)
            return Response(ApprovalRuleOut(rule).data, status=201)

        return self.once(work)


class ApprovalRuleEnd(ApiView):
    """Ends a rule."""

    @described("act_end_approval_rule", "End an approval rule", answer=ApprovalRuleOut)
    def post(self, request: Request, rule_id: UUID) -> HttpResponseBase:
        """Ends it for new bookings. Requests that wait by it still need their decision."""

        def work() -> Response:
            rule = approval_rule_retire(actor=self.actor, rule_id=rule_id, now=self.now)
            return Response(ApprovalRuleOut(rule).data)

        return self.once(work)
