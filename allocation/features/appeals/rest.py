"""REST of appeals against pauses."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers

from allocation.features.appeals.models import PauseAppeal
from allocation.features.appeals.services import (
    AppealAnswerTerms,
    AppealTerms,
    appeal_answer,
    appeal_answer_by_operator,
    appeal_raise,
    appeals_to_answer,
    appeals_visible,
)
from tenants.access import PlatformActor
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.rest.terms import Username
from tenants.rules.operator_roles import Area

rest = Endpoints(Scope.BOOK, in_project=True)
admins = Endpoints(Scope.ADMIN)
ops = Endpoints(Scope.ADMIN, for_operators=True, area=Area.APPEALS)


class PauseAppealOut(serializers.Serializer[Any]):
    """An objection to a pause, and its answer."""

    id = serializers.UUIDField()
    tenant = serializers.CharField(source="tenant.slug")
    booking = serializers.CharField(source="booking.label")
    pause = serializers.IntegerField(source="pause.number", help_text="1 for the booking's first pause.")
    reason = serializers.CharField()
    raised = serializers.DateTimeField()
    raised_by = Username()
    decider = serializers.ChoiceField(choices=PauseAppeal.Decider.choices, help_text="Who answers.")
    state = serializers.ChoiceField(choices=PauseAppeal.State.choices)
    answer = serializers.CharField()
    answered = serializers.DateTimeField(allow_null=True)


@rest.list("pause-appeals", "List objections to pauses", PauseAppealOut, order=("-raised", "-id"))
def list_pause_appeals(call: ApiView) -> QuerySet[PauseAppeal]:
    """Returns yours, those about your bookings and of projects that you lead; admins see all."""
    return appeals_visible(call.actor)


@rest.post(
    "bookings/<str:reference>/pauses/<int:number>/appeal",
    "Contest a pause",
    PauseAppealOut,
    terms=AppealTerms,
    status=201,
    operation="create_pause_appeal",
)
def create_pause_appeal(call: ApiView, terms: AppealTerms, reference: str, number: int) -> PauseAppeal:
    """Contests a pause, once, within two weeks. Operators answer, or the organisation's admins where its own
    work or budget caused it. Neither the pause nor its bill changes by this."""
    return appeal_raise(actor=call.actor, reference=reference, number=number, terms=terms, now=call.now)


@admins.post(
    "pause-appeals/<uuid:appeal_id>/answer",
    "Answer an objection to a pause (admins)",
    PauseAppealOut,
    terms=AppealAnswerTerms,
)
def answer_pause_appeal(call: ApiView, terms: AppealAnswerTerms, appeal_id: UUID) -> PauseAppeal:
    """Answers what the organisation's admins decide, once and not one's own."""
    return appeal_answer(actor=call.actor, appeal_id=appeal_id, terms=terms, now=call.now)


@ops.list("platform/pause-appeals", "List open objections to pauses (operators)", PauseAppealOut)
def list_platform_pause_appeals(call: ApiView) -> QuerySet[PauseAppeal]:
    """Returns the open ones that operators answer, the oldest first."""
    return appeals_to_answer(None)


@ops.post(
    "platform/pause-appeals/<uuid:appeal_id>/answer",
    "Answer an objection to a pause (operators)",
    PauseAppealOut,
    terms=AppealAnswerTerms,
)
def answer_platform_pause_appeal(call: ApiView, terms: AppealAnswerTerms, appeal_id: UUID) -> PauseAppeal:
    """Answers what operators decide, once. A refund of an accepted one is a correction."""
    actor = PlatformActor.of(call.user)
    return appeal_answer_by_operator(actor=actor, appeal_id=appeal_id, terms=terms, now=call.now)


urlpatterns = [*rest.urls, *admins.urls, *ops.urls]
