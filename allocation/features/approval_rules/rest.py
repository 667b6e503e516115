"""REST of approval rules."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from allocation.api.approvals.approvals import ApprovalStepOut
from allocation.features.approval_rules.services import (
    DAYS,
    ApprovalRuleChangeTerms,
    ApprovalRuleTerms,
    approval_rule_change,
    approval_rule_retire,
    approval_rule_set,
    rule_terms,
    rules_shown,
)
from allocation.models import ApprovalRule
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.rest.fields import Money
from tenants.platform.rest.terms import Slug

rest = Endpoints(Scope.PROJECT, in_project=True)


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
    project = Slug(help_text="Null: every project.")
    min_cost = Money(allow_null=True, max_digits=20)
    min_gpu_hours = serializers.DecimalField(max_digits=12, decimal_places=3, allow_null=True)
    min_gpus = serializers.IntegerField(allow_null=True)
    min_seconds = serializers.IntegerField(allow_null=True)
    classes = serializers.ListField(child=serializers.CharField())
    tiers = serializers.ListField(child=serializers.CharField())
    outside = serializers.SerializerMethodField(help_text="Bookings that can run outside of these.")
    is_first = serializers.BooleanField()
    steps = ApprovalStepOut(many=True)
    version = serializers.IntegerField(help_text="Rises with every change.")
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


@rest.list("approval-rules", "List approval rules", ApprovalRuleOut)
def list_approval_rules(call: ApiView) -> QuerySet[ApprovalRule]:
    """Returns those of your organisation and your projects; at most 50 are in force."""
    return rules_shown(call.actor)


@rest.post("approval-rules", "Add an approval rule", ApprovalRuleOut, terms=ApprovalRuleTerms, status=201)
def create_approval_rule(call: ApiView, terms: ApprovalRuleTerms) -> ApprovalRule:
    """Adds a rule for new bookings: of a project by its leads, of all by tenant admins."""
    return approval_rule_set(actor=call.actor, terms=terms, now=call.now)


@rest.patch(
    "approval-rules/<uuid:rule_id>",
    "Change an approval rule",
    ApprovalRuleOut,
    terms=ApprovalRuleChangeTerms,
)
def change_approval_rule(call: ApiView, terms: ApprovalRuleChangeTerms, rule_id: UUID) -> ApprovalRule:
    """Changes it for new bookings, unless it has another `version` by now (409). Requests that wait by
    it keep their steps."""
    sent = {name: getattr(terms, name) for name in call.body.data if name != "version"}
    return approval_rule_change(
        actor=call.actor,
        rule_id=rule_id,
        version=terms.version,
        terms=replace(rule_terms(call.actor, rule_id), **sent),
        now=call.now,
    )


@rest.post("approval-rules/<uuid:rule_id>/end", "End an approval rule", ApprovalRuleOut)
def end_approval_rule(call: ApiView, rule_id: UUID) -> ApprovalRule:
    """Ends it for new bookings. Requests that wait by it still need their decision."""
    return approval_rule_retire(actor=call.actor, rule_id=rule_id, now=call.now)


urlpatterns = rest.urls
