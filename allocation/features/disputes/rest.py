"""REST of disputes of statements."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers

from allocation.features.disputes.models import StatementDispute
from allocation.features.disputes.services import (
    DisputeAnswerTerms,
    DisputeTerms,
    dispute_answer,
    dispute_raise,
    dispute_withdraw,
    disputes_visible,
)
from tenants.access import PlatformActor
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.rest.terms import Slug, Username
from tenants.rules.operator_roles import Area

rest = Endpoints(Scope.BUDGET, in_project=True)
ops = Endpoints(Scope.BUDGET, for_operators=True, area=Area.DISPUTES)


class DisputeOut(serializers.Serializer[Any]):
    """A dispute of a month's statement, and its answer."""

    id = serializers.UUIDField()
    month = serializers.DateField(format="%Y-%m", help_text="`2026-11`.")
    project = Slug()
    booking = serializers.CharField(source="booking.label", default=None, allow_null=True)
    note = serializers.CharField()
    state = serializers.ChoiceField(choices=StatementDispute.State.values)
    raised_at = serializers.DateTimeField()
    raised_by = Username()
    answer = serializers.CharField()
    answered_at = serializers.DateTimeField(allow_null=True)


@rest.post(
    "statements/<str:month>/dispute",
    "Dispute the statement of a month (leads for their project, tenant admins)",
    DisputeOut,
    terms=DisputeTerms,
    status=201,
)
def dispute_statement(call: ApiView, terms: DisputeTerms, month: str) -> StatementDispute:
    """Raises a dispute, which an operator answers."""
    return dispute_raise(actor=call.actor, month=month, terms=terms, now=call.now)


@rest.list("disputes", "Disputes of statements", DisputeOut)
def list_disputes(call: ApiView) -> QuerySet[StatementDispute]:
    """Lists disputes, the latest first."""
    return disputes_visible(call.actor)


@rest.post("disputes/<uuid:dispute_id>/withdraw", "Withdraw a dispute", DisputeOut)
def withdraw_dispute(call: ApiView, dispute_id: UUID) -> StatementDispute:
    """Withdraws an open dispute."""
    return dispute_withdraw(actor=call.actor, dispute_id=dispute_id, now=call.now)


@ops.post(
    "disputes/<uuid:dispute_id>/answer",
    "Accept or decline a dispute (operators)",
    DisputeOut,
    terms=DisputeAnswerTerms,
)
def answer_dispute(call: ApiView, terms: DisputeAnswerTerms, dispute_id: UUID) -> StatementDispute:
    """Answers an open dispute. A correction is written apart."""
    actor = PlatformActor.of(call.user)
    return dispute_answer(actor=actor, dispute_id=dispute_id, terms=terms, now=call.now)


urlpatterns = [*rest.urls, *ops.urls]
