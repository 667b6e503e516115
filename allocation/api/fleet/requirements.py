"""Terms and training: what classes and tiers demand, and who meets it."""

from typing import Any
from uuid import UUID

from django.db.models import Q
from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
from allocation.models import Acceptance, Requirement
from allocation.services.requirements.checks import (
    RequirementState,
    requirement_states,
    requirements_of,
    requirements_open,
)
from allocation.services.requirements.requirements import (
    RequirementTerms,
    class_requirement_end,
    class_requirement_set,
    requirement_accept,
    tier_requirement_end,
    tier_requirement_set,
    training_record,
)
from tenants.access import client_address
from tenants.api.base import ApiView, list_response
from tenants.models import User
from tenants.platform.errors import missing
from tenants.platform.rest.fields import Day, Strict, Text, Whole
from tenants.platform.rest.schema import described, page
from tenants.rules.operator_roles import Area


class RequirementIn(Strict):
    """A text or training. One of the same name for the same target is replaced by a new version."""

    of = serializers.ChoiceField(
        choices=["tier", "class"], help_text="`class` is for operators, `tier` for tenant admins."
    )
    target = Text(max_length=40, help_text="Slug of the tier or class.")
    kind = serializers.ChoiceField(choices=Requirement.Kind.values)
    name = Text(max_length=80)
    text = serializers.CharField(max_length=20_000)
    valid_days = Whole(required=False, allow_null=True, default=None)
    projects = serializers.ListField(
        child=Text(max_length=40),
        required=False,
        default=list,
        max_length=100,
        help_text="Slugs of the projects in which the tier demands it; left out: in all.",
    )


class RequirementOut(serializers.Serializer[Any]):
    """A requirement in force, and whether the caller meets it."""

    id = serializers.UUIDField(source="requirement.id")
    target = serializers.CharField(source="requirement.target")
    kind = serializers.ChoiceField(source="requirement.kind", choices=Requirement.Kind.values)
    name = serializers.CharField(source="requirement.name")
    version = serializers.IntegerField(source="requirement.version")
    text = serializers.CharField(source="requirement.text")
    valid_days = serializers.IntegerField(source="requirement.valid_days", allow_null=True)
    projects = serializers.ListField(
        source="requirement.projects",
        child=serializers.CharField(),
        help_text="Where the tier demands it; empty: in all projects.",
    )
    ended = serializers.DateTimeField(source="requirement.ended", allow_null=True)
    is_met = serializers.BooleanField()
    until = serializers.SerializerMethodField(help_text="Until when the caller meets it.")

    def get_until(self, state: RequirementState) -> str | None:
        """Returns the end of the caller's acceptance; null without one."""
        row = state.acceptance
        return row.until.isoformat() if row is not None and row.until is not None else None


class AcceptanceOut(serializers.Serializer[Any]):
    """Who accepted a text or had a training."""

    user = serializers.CharField(source="user.username")
    version = serializers.IntegerField(source="requirement.version")
    at = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True)
    address = serializers.IPAddressField(allow_null=True)
    recorded_by = serializers.CharField(source="recorded_by.username")


class TrainingIn(Strict):
    """The day on which a person had the training."""

    user = Text(max_length=150, help_text="Sign-in name.")
    day = Day()


class Requirements(OperatorView):
    """The requirements that are in force."""

    area = Area.RULES

    @described("list_requirements", "Terms and training", answer=page(RequirementOut))
    def get(self, request: Request) -> Response:
        """Lists what classes and tiers demand, and whether the caller meets it."""
        with self.tx():
            tenant = self.actor.tenant_id
            states = requirement_states(
                requirements_open(tenant),
                tenant_id=tenant,
                person_id=self.actor.user_id,
                now=self.now,
            )
            return list_response(RequirementOut(states, many=True).data)

    @described(
        "set_requirement",
        "Demand a text or training (tenant admins, operators)",
        answer=RequirementOut,
        request=RequirementIn,
        status=201,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Sets it for a tier of the tenant, or, as an operator, for a class."""
        sent = self.sent(RequirementIn)
        of, terms = sent.pop("of"), RequirementTerms(**sent)
        if of == "class":
            self.require_operator()
            return self.operate(
                lambda: _state(class_requirement_set(operator=self.user, terms=terms, now=self.now)),
                RequirementOut,
                201,
            )

        def work() -> Response:
            row = tier_requirement_set(actor=self.actor, terms=terms, now=self.now)
            return Response(RequirementOut(_state(row)).data, status=201)

        return self.once(work)


class RequirementAccept(ApiView):
    """Acceptance of a text."""

    @described("act_accept_requirement", "Accept a text", answer=AcceptanceOut, status=201)
    def post(self, request: Request, requirement_id: UUID) -> HttpResponseBase:
        """Records that the caller accepts this version, with time and address."""

        def work() -> Response:
            found = requirement_accept(
                actor=self.actor,
                requirement_id=requirement_id,
                address=client_address(request.META),
                now=self.now,
            )
            return Response(AcceptanceOut(found).data, status=201)

        return self.once(work)


class RequirementEnd(OperatorView):
    """The end of a requirement."""

    area = Area.RULES

    @described("act_end_requirement", "End a requirement", answer=RequirementOut)
    def post(self, request: Request, requirement_id: UUID) -> HttpResponseBase:
        """Ends one of the tenant's tiers, or, as an operator, one of a class."""
        if self.is_for_operator():
            return self.operate(
                lambda: _state(
                    class_requirement_end(operator=self.user, requirement_id=requirement_id, now=self.now)
                ),
                RequirementOut,
            )

        def work() -> Response:
            row = _of_admin(self, requirement_id)
            ended = tier_requirement_end(actor=self.actor, requirement_id=row.id, now=self.now)
            return Response(RequirementOut(_state(ended)).data)

        return self.once(work)


class RequirementPeople(ApiView):
    """Who meets a requirement."""

    @described("list_acceptances", "Who accepted or had it (tenant admins)", answer=page(AcceptanceOut))
    def get(self, request: Request, requirement_id: UUID) -> Response:
        """Lists acceptances of all versions of the tenant's people, the newest first."""
        with self.tx():
            row = _of_admin(self, requirement_id)
            same = Q(
                requirement__name=row.name,
                requirement__tier=row.tier_id,
                requirement__gpu_class=row.gpu_class_id,
            )
            rows = Acceptance.objects.filter(same, tenant_id=self.actor.tenant_id)
            found = rows.select_related("user", "requirement", "recorded_by")
            return list_response(AcceptanceOut(found[:1000], many=True).data)

    @described(
        "record_training",
        "Record a training (tenant admins)",
        answer=AcceptanceOut,
        request=TrainingIn,
        status=201,
    )
    def post(self, request: Request, requirement_id: UUID) -> HttpResponseBase:
        """Records the day on which a person of the tenant had the training."""
        sent = self.sent(TrainingIn)

        def work() -> Response:
            _of_admin(self, requirement_id)
            user = User.objects.filter(username=sent["user"]).first()
            if user is None:
                raise missing("person", "user")
            found = training_record(
                actor=self.actor,
                requirement_id=requirement_id,
                user_id=user.pk,
                day=sent["day"],
                now=self.now,
            )
            return Response(AcceptanceOut(found).data, status=201)

        return self.once(work)


def _of_admin(view: ApiView, requirement_id: UUID) -> Requirement:
    """The requirement; for others than the tenant's admins there is none."""
    tenant = view.actor.tenant_id
    row = Requirement.objects.filter(requirements_of(tenant)).filter(id=requirement_id).first()
    if row is None or not view.actor.is_tenant_admin:
        raise missing("requirement")
    return row


def _state(row: Requirement) -> RequirementState:
    return RequirementState(row, None, is_met=False)
