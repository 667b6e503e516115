"""Requests for more than a limit allows, and the exceptions that were granted."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.access import access_override, overrides_visible
from allocation.models import Override
from allocation.services.overrides.amounts import amount_of, amount_shown
from allocation.services.overrides.decisions import (
    Grant,
    override_decline,
    override_decline_by_operator,
    override_end,
    override_end_by_operator,
    override_give,
    override_grant,
    override_grant_by_operator,
    override_withdraw,
)
from allocation.services.overrides.requests import Wanted, kind_read, override_ask
from tenants.api.base import ApiView, list_response
from tenants.platform.rest.fields import Flag, Instant, Strict, Text
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area

_AMOUNT = "On top of the limit: GPUs, GPU-hours, money, seconds or bookings."


class OverrideOut(serializers.Serializer[Any]):
    """A request for more than a limit allows, and its decision."""

    id = serializers.UUIDField()
    kind = serializers.ChoiceField(choices=Override.Kind.values)
    state = serializers.ChoiceField(choices=Override.State.values)
    project = serializers.CharField(
        source="project.slug",
        default=None,
        allow_null=True,
        help_text="Whose limit it is; null for that of the organisation.",
    )
    gpu_class = serializers.CharField(source="gpu_class_id", allow_null=True)
    tier = serializers.CharField(source="tier_id", allow_null=True)
    budget = serializers.UUIDField(source="budget_id", allow_null=True)
    booking = serializers.CharField(source="booking.label", default=None, allow_null=True)
    person = serializers.CharField(
        source="person.get_username",
        default=None,
        allow_null=True,
        help_text="The only person that it is for; null for everybody.",
    )
    amount = serializers.SerializerMethodField(help_text=_AMOUNT)
    once = serializers.BooleanField(source="is_once", help_text="For one booking.")
    starts = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True)
    asked = serializers.DateTimeField()
    asked_by = serializers.CharField(source="asked_by.get_username", default=None, allow_null=True)
    reason = serializers.CharField()
    decider = serializers.ChoiceField(choices=Override.Decider.values)
    decided = serializers.DateTimeField(allow_null=True)
    answer = serializers.CharField()

    def get_amount(self, row: Override) -> str:
        """Returns the amount in the unit that people use."""
        return amount_shown(row)


class OverrideIn(Strict):
    """What is asked for. A refusal has these fields filled in as `ask_for_more`."""

    kind = Text(max_length=16)
    amount = Text(max_length=20, help_text=_AMOUNT)
    project = Text(required=False, max_length=40, default="")
    gpu_class = Text(required=False, max_length=40, default="")
    tier = Text(required=False, max_length=40, default="")
    budget = serializers.UUIDField(required=False, allow_null=True, default=None)
    booking = Text(required=False, max_length=40, default="", help_text="Only for this booking.")
    once = Flag(required=False, default=False, help_text="For one booking of this length.")
    until = Instant(required=False, allow_null=True, default=None)
    reason = Text(required=False, max_length=200, allow_blank=True, default="")
    give = Flag(required=False, default=False, help_text="Grants it at once; for the owner of the limit.")


class GrantIn(Strict):
    """A grant. Without `amount` and `until` as asked; without any end for 30 days."""

    amount = Text(required=False, max_length=20, allow_null=True, default=None)
    until = Instant(required=False, allow_null=True, default=None)
    reason = Text(required=False, max_length=200, allow_blank=True, default="")


class RefusalIn(Strict):
    """Why it is declined."""

    reason = Text(max_length=200)


class OverridesQuery(PageQuery):
    """Which requests."""

    state = serializers.ChoiceField(choices=Override.State.values, required=False)


class Overrides(ApiView):
    """Requests for more, and what was granted."""

    queries = {"GET": OverridesQuery}

    @described("list_overrides", "List requests for more and overrides", answer=page(OverrideOut))
    def get(self, request: Request) -> Response:
        """Lists your own, those of your projects, and with their role those to decide."""
        with self.tx():
            rows = overrides_visible(self.actor)
            if "state" in self.query:
                rows = rows.filter(state=self.query["state"])
            found, following = page_of(
                rows,
                keys=("-asked", "-id"),
                query=self.query,
                scope=f"overrides:{self.actor.tenant_id}:{self.actor.user_id}",
            )
            return list_response(OverrideOut(found, many=True).data, following)

    @described(
        "create_override",
        "Ask the owner of a limit for more, or give it",
        answer=OverrideOut,
        request=OverrideIn,
        status=201,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Asks for more. With `give` the owner of the limit grants it unasked."""
        sent = self.sent(OverrideIn)
        kind = kind_read(sent["kind"])
        give = override_give if sent.pop("give") else override_ask
        amount, is_once = amount_of(kind, sent.pop("amount")), sent.pop("once")
        wanted = Wanted(amount=amount, is_once=is_once, **sent)

        def work() -> Response:
            row = give(actor=self.actor, wanted=wanted, now=self.now)
            return Response(OverrideOut(row).data, status=201)

        return self.once(work)


class OverrideOne(ApiView):
    """One request or override."""

    @described("get_override", "Retrieve a request for more", answer=OverrideOut)
    def get(self, request: Request, override_id: UUID) -> Response:
        """Returns one that you may see."""
        with self.tx():
            return Response(OverrideOut(access_override(self.actor, override_id)).data)


class _OverrideAct(ApiView):
    """An act on a request: by its owner in the organisation, or by an operator."""

    area = Area.RULES

    def act(
        self,
        override_id: UUID,
        by_actor: Callable[..., Override],
        by_operator: Callable[..., Override] | None,
        **given: object,
    ) -> HttpResponseBase:
        """Answers with the request after the act, once per idempotency key."""
        if by_operator is not None and self._is_operators(override_id):
            with operator_tx():
                operator = self.user
                row = by_operator(operator=operator, override_id=override_id, now=self.now, **given)
                return Response(OverrideOut(row).data)

        def work() -> Response:
            by_actor(actor=self.actor, override_id=override_id, now=self.now, **given)
            return Response(OverrideOut(access_override(self.actor, override_id)).data)

        return self.once(work)

    def _is_operators(self, override_id: UUID) -> bool:
        if not self.caller.is_operator:
            return False
        with operator_tx():
            found = Override.objects.filter(id=override_id, decider="operator").exists()
        if found:
            self.require_operator()
        return found


class OverrideGrant(_OverrideAct):
    """Grants a request."""

    area = Area.RULES

    @described("act_grant_override", "Grant a request for more", answer=OverrideOut, request=GrantIn)
    def post(self, request: Request, override_id: UUID) -> HttpResponseBase:
        """Grants what was asked, or less, or more. Nobody decides their own request: 403."""
        sent = self.sent(GrantIn)
        amount = None
        if sent["amount"] is not None:
            amount = amount_of(self._kind(override_id), sent["amount"])
        grant = Grant(amount, sent["until"], answer=sent["reason"])
        return self.act(override_id, override_grant, override_grant_by_operator, grant=grant)

    def _kind(self, override_id: UUID) -> Override.Kind:
        if self._is_operators(override_id):
            with operator_tx():
                return Override.Kind(Override.objects.get(id=override_id).kind)
        with self.tx():
            return Override.Kind(access_override(self.actor, override_id).kind)


class OverrideDecline(_OverrideAct):
    """Declines a request."""

    @described("act_decline_override", "Decline a request for more", answer=OverrideOut, request=RefusalIn)
    def post(self, request: Request, override_id: UUID) -> HttpResponseBase:
        """Declines with a reason that the person reads."""
        reason = self.sent(RefusalIn)["reason"]
        return self.act(override_id, override_decline, override_decline_by_operator, reason=reason)


class OverrideWithdraw(_OverrideAct):
    """Withdraws a request."""

    @described("act_withdraw_override", "Withdraw your request for more", answer=OverrideOut)
    def post(self, request: Request, override_id: UUID) -> HttpResponseBase:
        """Withdraws a request that you made."""
        return self.act(override_id, override_withdraw, None)


class OverrideEnd(_OverrideAct):
    """Ends an override."""

    @described("act_end_override", "End an override before its time", answer=OverrideOut)
    def post(self, request: Request, override_id: UUID) -> HttpResponseBase:
        """Ends it now. Running work stays; planned starts are judged anew."""
        return self.act(override_id, override_end, override_end_by_operator)
