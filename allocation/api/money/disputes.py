"""Disputes of statements."""

from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
from allocation.models import StatementDispute
from allocation.queries.bookings.money.statement_files import month_read
from allocation.services.operate.disputes import (
    DisputeNote,
    dispute_answer,
    dispute_raise,
    dispute_withdraw,
)
from tenants.access import Actor, access_project
from tenants.api.base import ApiView, list_response
from tenants.platform.rest.fields import Strict, Text
from tenants.platform.rest.schema import described, page
from tenants.rules.operator_roles import Area


class DisputeOut(serializers.Serializer[Any]):
    """A dispute of a month's statement, and its answer."""

    id = serializers.UUIDField()
    month = serializers.DateField(format="%Y-%m", help_text="`2026-11`.")
    project = serializers.CharField(source="project.slug", default=None, allow_null=True)
    booking = serializers.CharField(source="booking.label", default=None, allow_null=True)
    note = serializers.CharField()
    state = serializers.ChoiceField(choices=StatementDispute.State.values)
    raised_at = serializers.DateTimeField()
    raised_by = serializers.CharField(source="raised_by.username")
    answer = serializers.CharField()
    answered_at = serializers.DateTimeField(allow_null=True)


class DisputeNew(Strict):
    """What is wrong: in the statement of a project or of the whole organisation, perhaps with one
    booking."""

    project = Text(max_length=40, required=False, default="")
    booking = Text(max_length=24, required=False, default="", help_text="`BK-2041`.")
    note = Text(max_length=1000)


class DisputeAnswer(Strict):
    """The operator's answer."""

    outcome = serializers.ChoiceField(choices=["accepted", "declined"])
    answer = Text(max_length=1000)


def disputes_seen(actor: Actor) -> QuerySet[StatementDispute]:
    """The disputes of the actor's projects; of the whole organisation for its admins."""
    rows = StatementDispute.objects.filter(tenant_id=actor.tenant_id)
    if not actor.is_tenant_admin:
        rows = rows.filter(Q(project__in=list(actor.roles)))
    return rows.select_related("project", "booking", "raised_by")


class StatementDisputes(ApiView):
    """Disputes of a statement."""

    @described(
        "dispute_statement",
        "Dispute the statement of a month (leads for their project, tenant admins)",
        answer=DisputeOut,
        status=201,
        request=DisputeNew,
    )
    def post(self, request: Request, month: str) -> HttpResponseBase:
        """Raises a dispute, which an operator answers."""
        sent = self.sent(DisputeNew)

        def work() -> Response:
            slug = sent["project"]
            project = access_project(self.actor, slug, "project") if slug else None
            first = month_read(month).starts
            disputed = DisputeNote(first, project, sent["note"], sent["booking"])
            row = dispute_raise(actor=self.actor, disputed=disputed, now=self.now)
            return Response(dict(DisputeOut(row).data), status=201)

        return self.once(work)


class Disputes(ApiView):
    """All disputes that the caller may see."""

    @described("list_disputes", "Disputes of statements", answer=page(DisputeOut))
    def get(self, request: Request) -> Response:
        """Lists disputes, the latest first."""
        with self.tx():
            return list_response(dict(DisputeOut(row).data) for row in disputes_seen(self.actor))


class DisputeWithdraw(ApiView):
    """The end of a dispute by who raised it."""

    @described("withdraw_dispute", "Withdraw a dispute", answer=DisputeOut)
    def post(self, request: Request, dispute_id: UUID) -> HttpResponseBase:
        """Withdraws an open dispute."""

        def work() -> Response:
            row = dispute_withdraw(actor=self.actor, dispute_id=dispute_id, now=self.now)
            return Response(dict(DisputeOut(row).data))

        return self.once(work)


class DisputeAnswers(OperatorView):
    """Answers of operators."""

    area = Area.DISPUTES

    @described(
        "answer_dispute",
        "Accept or decline a dispute (operators)",
        answer=DisputeOut,
        request=DisputeAnswer,
    )
    def post(self, request: Request, dispute_id: UUID) -> HttpResponseBase:
        """Answers an open dispute. A correction is written apart."""
        sent = self.sent(DisputeAnswer)

        def work() -> StatementDispute:
            return dispute_answer(
                operator=self.user,
                dispute_id=dispute_id,
                accept=sent["outcome"] == "accepted",
                answer=sent["answer"],
                now=self.now,
            )

        return self.operate(work, DisputeOut)
