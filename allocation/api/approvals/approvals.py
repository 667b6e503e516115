"""Requests for approval: list, retrieve and decide them, and the rules that ask for them."""

from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.access import access_approval
from allocation.api.approvals.answers import CounterOut
from allocation.models import Approval
from allocation.queries.bookings.approvals import approvals_to_decide, approvals_visible
from allocation.services.approvals.briefings import briefing_of
from allocation.services.approvals.effects import effect_seen
from allocation.services.bookings.approval.decisions import Decision, Verdict, approval_decide
from allocation.services.bookings.approval.facts import booking_as_asked
from tenants.access import Actor
from tenants.api.base import ApiView, list_response
from tenants.platform.costly import costly
from tenants.platform.rest.fields import Money, Strict, Text
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page


class ApprovalStepOut(serializers.Serializer[Any]):
    """A step: how many people of a role decide within how many hours."""

    role = serializers.CharField(help_text="`lead` of the project or `admin` of the tenant.")
    needed = serializers.IntegerField()
    hours = serializers.IntegerField()
    escalates = serializers.BooleanField(help_text="Whether it goes to the admins after that.")


class ApprovalRuleRef(serializers.Serializer[Any]):
    """A rule that the booking meets."""

    id = serializers.UUIDField()
    name = serializers.CharField()


class ApprovalOut(serializers.Serializer[Any]):
    """A booking's request for an approval."""

    id = serializers.UUIDField()
    booking = serializers.CharField(source="booking.label")
    series = serializers.UUIDField(
        source="series_id", allow_null=True, help_text="All of its dates are decided together."
    )
    project = serializers.CharField(source="project.slug")
    asker = serializers.CharField(source="asker.get_username")
    state = serializers.ChoiceField(choices=Approval.State.values)
    hash = serializers.CharField(
        source="digest", help_text="Names exactly what is approved. Send it with the decision."
    )
    change = serializers.UUIDField(
        source="change_id", allow_null=True, help_text="The change that it is for; null: all of it."
    )
    cost = serializers.SerializerMethodField(help_text="Of the booking as it is to be approved.")
    currency = serializers.CharField(source="booking.currency")
    rules = ApprovalRuleRef(many=True)
    steps = ApprovalStepOut(many=True)
    step = serializers.IntegerField(help_text="The present step, from 1 on.")
    asked = serializers.DateTimeField()
    decide_by = serializers.DateTimeField()
    decided = serializers.DateTimeField(allow_null=True)
    decided_by = serializers.CharField(source="decided_by.get_username", default=None, allow_null=True)
    reason = serializers.CharField()

    @extend_schema_field(Money(max_digits=20))
    def get_cost(self, approval: Approval) -> str:
        """The most that the booking may cost once it is approved."""
        booking, change = approval.booking, approval.change
        asked = booking_as_asked(booking, change) if change is not None else booking
        return str(asked.hold_amount)


class DelayOut(serializers.Serializer[Any]):
    """A booking of your organisation that would start later."""

    booking = serializers.CharField(source="label", help_text="Empty: of a project that you do not see.")
    before = serializers.DateTimeField()
    after = serializers.DateTimeField(allow_null=True, help_text="Null: no planned start.")


class ApprovalEffectOut(serializers.Serializer[Any]):
    """What would happen if it was approved now."""

    starts = serializers.DateTimeField(allow_null=True, help_text="Null: no start yet.")
    delays = DelayOut(many=True)
    pauses = serializers.ListField(
        child=serializers.CharField(),
        help_text="Running bookings of your organisation that get notice; empty texts for those of "
        "projects that you do not see.",
    )


class AlternativeOut(serializers.Serializer[Any]):
    """What needs no approval."""

    request = serializers.CharField()
    tier = serializers.CharField()
    cost = Money(max_digits=20)
    currency = serializers.CharField()


class HistoryOut(serializers.Serializer[Any]):
    """The asker's last 90 days in the project."""

    bookings = serializers.IntegerField(help_text="That ran, of those submitted in these days.")
    charged = Money(max_digits=20, help_text="With corrections and refunds, also of what runs now.")
    gpu_hours = serializers.DecimalField(
        source="use.hours",
        max_digits=20,
        decimal_places=2,
        help_text="That its bookings had until now, of whole GPUs.",
    )
    measured_gpu_hours = serializers.DecimalField(
        source="use.measured",
        max_digits=20,
        decimal_places=2,
        help_text="Of them with readings of the nodes.",
    )
    idle_gpu_hours = serializers.DecimalField(
        source="use.unused",
        max_digits=20,
        decimal_places=2,
        help_text="Of the measured ones, without a process or less than 5 % busy.",
    )
    no_shows = serializers.IntegerField()
    declined = serializers.IntegerField()


class ApprovalOneOut(ApprovalOut):
    """A request for an approval, with what its approver needs to know."""

    place_until = serializers.DateTimeField(
        source="booking.place_until", allow_null=True, help_text="How long its place is kept."
    )
    effect = ApprovalEffectOut(
        allow_null=True, help_text="Null: over, or not computed: a later end, or a large site."
    )
    alternative = AlternativeOut(allow_null=True)
    history = HistoryOut()
    counter = CounterOut(allow_null=True, help_text="The open counter-offer.")


def approval_data(approval: Approval, actor: Actor, now: datetime) -> dict[str, Any]:
    """Returns a request with what its approver needs to know. In the tenant's transaction."""
    seen = briefing_of(approval, now)
    seen = replace(seen, effect=effect_seen(actor, seen.effect))
    for name in ("effect", "alternative", "history", "counter"):
        setattr(approval, name, getattr(seen, name))
    return dict(ApprovalOneOut(approval).data)


class ApprovalQuery(PageQuery):
    """Filters for a list of requests for approval."""

    state = serializers.ChoiceField(choices=Approval.State.values, required=False)
    show = serializers.ChoiceField(
        choices=["to_decide", "mine"],
        required=False,
        help_text="`to_decide`: what you may decide now. `mine`: what you asked for.",
    )


class DecisionIn(Strict):
    """The decision on exactly what the hash names."""

    hash = Text(max_length=64, help_text="As the request has it.")
    reason = Text(required=False, max_length=200, help_text="Required to decline.")


class Approvals(ApiView):
    """Requests for approval."""

    queries = {"GET": ApprovalQuery}

    @described(
        "list_approvals",
        "List requests for approval",
        answer=page(ApprovalOut),
        query=ApprovalQuery,
    )
    def get(self, request: Request) -> Response:
        """Returns your own requests and those of projects that you lead, newest first. Tenant
        admins see every project."""
        with self.tx():
            rows = approvals_visible(self.actor, self.now)
            if self.query.get("show") == "to_decide":
                rows = approvals_to_decide(self.actor, self.now).order_by()
            elif self.query.get("show") == "mine":
                rows = rows.filter(asker=self.actor.user_id)
            if "state" in self.query:
                rows = rows.filter(state=self.query["state"])
            found, next_cursor = page_of(
                rows,
                keys=("-asked", "-id"),
                query=self.query,
                scope=f"approvals:{self.actor.tenant_id}:{self.actor.user_id}",
            )
            return list_response(ApprovalOut(found, many=True).data, next_cursor)


@costly("preview")
class ApprovalOne(ApiView):
    """One request for approval."""

    @described("get_approval", "Retrieve a request for approval", answer=ApprovalOneOut)
    def get(self, request: Request, approval_id: UUID) -> Response:
        """Returns a request that you made or that is of a project that you lead."""
        with self.tx():
            found = access_approval(self.actor, approval_id, self.now)
            return Response(approval_data(found, self.actor, self.now))


class _ApprovalDecision(ApiView):
    """A decision on a request."""

    def decide(self, approval_id: UUID, verdict: Verdict) -> HttpResponseBase:
        """Decides once per idempotency key and answers with the request."""
        sent = self.sent(DecisionIn)

        def work() -> Response:
            decision = Decision(verdict, sent["hash"], sent.get("reason", ""))
            approval_decide(actor=self.actor, approval_id=approval_id, decision=decision, now=self.now)
            found = access_approval(self.actor, approval_id, self.now)
            return Response(approval_data(found, self.actor, self.now))

        return self.once(work)


class ApprovalApprove(_ApprovalDecision):
    """Approves a booking."""

    @described("act_approve_booking", "Approve a booking", answer=ApprovalOut, request=DecisionIn)
    def post(self, request: Request, approval_id: UUID) -> HttpResponseBase:
        """Approves the present step. After the last one the booking is `requested`, at the place of
        its first submission. Nobody approves their own request: 403."""
        return self.decide(approval_id, "approve")


class ApprovalDecline(_ApprovalDecision):
    """Declines a booking."""

    @described("act_decline_booking", "Decline a booking", answer=ApprovalOut, request=DecisionIn)
    def post(self, request: Request, approval_id: UUID) -> HttpResponseBase:
        """Declines the booking with a reason and releases its money. It is then `rejected`."""
        return self.decide(approval_id, "decline")
