"""REST of requests for more than a limit allows, and of the exceptions that were granted."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework import serializers

from allocation.features.overrides.amounts import amount_shown
from allocation.features.overrides.decisions import (
    GrantTerms,
    Owner,
    RefusalTerms,
    override_decline,
    override_end,
    override_give,
    override_grant,
    override_withdraw,
)
from allocation.features.overrides.requests import (
    AMOUNT,
    OverrideTerms,
    access_override,
    override_ask,
    overrides_visible,
)
from allocation.models import Override
from tenants.access import PlatformActor
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.platform.rest.pagination import PageQuery
from tenants.platform.rest.terms import Slug
from tenants.platform.wall import operator_tx
from tenants.rules.operator_roles import Area

rest = Endpoints(Scope.BOOK, in_project=True)
owners = Endpoints(Scope.ADMIN, area=Area.RULES)


class OverrideOut(serializers.Serializer[Any]):
    """A request for more than a limit allows, and its decision."""

    id = serializers.UUIDField()
    kind = serializers.ChoiceField(choices=Override.Kind.values)
    state = serializers.ChoiceField(choices=Override.State.values)
    project = Slug(help_text="Whose limit it is; null for that of the organisation.")
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
    amount = serializers.SerializerMethodField(help_text=AMOUNT)
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


class OverridesQuery(PageQuery):
    """Which requests."""

    state = serializers.ChoiceField(choices=Override.State.values, required=False)


@rest.list(
    "overrides",
    "List requests for more and overrides",
    OverrideOut,
    order=("-asked", "-id"),
    query=OverridesQuery,
)
def list_overrides(call: ApiView) -> QuerySet[Override]:
    """Lists your own, those of your projects, and with their role those to decide."""
    rows = overrides_visible(call.actor)
    return rows.filter(state=call.query["state"]) if "state" in call.query else rows


@rest.post(
    "overrides",
    "Ask the owner of a limit for more, or give it",
    OverrideOut,
    terms=OverrideTerms,
    status=201,
)
def create_override(call: ApiView, terms: OverrideTerms) -> Override:
    """Asks for more. With `give` the owner of the limit grants it unasked."""
    give = override_give if terms.give else override_ask
    return give(actor=call.actor, terms=terms, now=call.now)


@rest.get("overrides/<uuid:override_id>", "Retrieve a request for more", OverrideOut)
def get_override(call: ApiView, override_id: UUID) -> Override:
    """Returns one that you may see."""
    return access_override(call.actor, override_id)


@rest.post("overrides/<uuid:override_id>/withdraw", "Withdraw your request for more", OverrideOut)
def withdraw_override(call: ApiView, override_id: UUID) -> Override:
    """Withdraws a request that you made."""
    return override_withdraw(actor=call.actor, override_id=override_id, now=call.now)


@owners.post("overrides/<uuid:override_id>/grant", "Grant a request for more", OverrideOut, terms=GrantTerms)
def grant_override(call: ApiView, terms: GrantTerms, override_id: UUID) -> Override:
    """Grants what was asked, or less, or more. Nobody decides their own request: 403."""
    with _owner(call, override_id) as actor:
        return override_grant(actor=actor, override_id=override_id, terms=terms, now=call.now)


@owners.post(
    "overrides/<uuid:override_id>/decline",
    "Decline a request for more",
    OverrideOut,
    terms=RefusalTerms,
)
def decline_override(call: ApiView, terms: RefusalTerms, override_id: UUID) -> Override:
    """Declines with a reason that the person reads."""
    with _owner(call, override_id) as actor:
        return override_decline(actor=actor, override_id=override_id, terms=terms, now=call.now)


@owners.post("overrides/<uuid:override_id>/end", "End an override before its time", OverrideOut)
def end_override(call: ApiView, override_id: UUID) -> Override:
    """Ends it now. Running work stays; planned starts are judged anew."""
    with _owner(call, override_id) as actor:
        return override_end(actor=actor, override_id=override_id, now=call.now)


@contextmanager
def _owner(call: ApiView, override_id: UUID) -> Iterator[Owner]:
    """Who acts on a request: an operator on what operators decide, else the caller as a member."""
    if call.caller.is_operator:
        with operator_tx():
            if Override.objects.filter(id=override_id, decider=Override.Decider.OPERATOR).exists():
                call.require_operator()
                yield PlatformActor.of(call.user)
                return
    yield call.actor


urlpatterns = [*rest.urls, *owners.urls]
