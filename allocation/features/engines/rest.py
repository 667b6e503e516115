"""REST of engines, for operators. What agents call is in `allocation/api/fleet/enrolment.py`."""

from typing import Any

from rest_framework import serializers

from allocation.features.engines.services import (
    EngineTerms,
    EngineToken,
    EngineView,
    HostsTerms,
    access_revoke,
    engine_enrolment,
    engine_view,
    engines_view,
    hosts_approve,
    keys_rotate,
)
from tenants.access import PlatformActor
from tenants.api.base import ApiView
from tenants.api.endpoints import Endpoints
from tenants.models import Scope
from tenants.rules.operator_roles import Area

rest = Endpoints(Scope.ADMIN, for_operators=True, area=Area.FLEET)


class HostOut(serializers.Serializer[Any]):
    """A host that an engine has reported."""

    name = serializers.CharField()
    state = serializers.CharField(
        help_text="`waiting` for approval, `refused` with `why`, `served`, or `gone` from the cluster."
    )
    kind = serializers.CharField(help_text="Its GPUs, as `4 × NVIDIA L40S`.")
    since = serializers.DateTimeField(allow_null=True)
    why = serializers.CharField()
    node = serializers.CharField(help_text="Its name in the portal: capitals become small, and dots hyphens.")
    rack = serializers.CharField(help_text="Where it stands, or would.")


class EngineViewOut(serializers.Serializer[Any]):
    """One agent for many hosts, with one identity."""

    name = serializers.CharField()
    engine = serializers.CharField(
        source="scheduler",
        help_text="`slurm`, `kubernetes`, `quota` or `volcano`; empty before its enrolment.",
    )
    rack = serializers.CharField(help_text="Of hosts that join.")
    state = serializers.CharField(help_text="`expected`, `reporting`, `silent` or `locked_out`.")
    agent_version = serializers.CharField()
    last_seen = serializers.DateTimeField(allow_null=True)
    rotating = serializers.BooleanField(help_text="True while it takes a new key.")
    hosts = HostOut(many=True)
    waiting = serializers.SerializerMethodField()

    def get_waiting(self, engine: EngineView) -> list[dict[str, Any]]:
        """How many hosts of each kind wait."""
        return [{"kind": kind, "hosts": count} for kind, count in engine.waiting]


class EngineTokenOut(serializers.Serializer[Any]):
    """A token for one agent. It works once, within 15 minutes."""

    engine = serializers.CharField()
    token = serializers.CharField(
        allow_null=True, help_text="Returned once. Null when an Idempotency-Key is replayed."
    )
    expires_at = serializers.DateTimeField()


@rest.list("fleet/engines", "List engines with their hosts (operators)", EngineViewOut)
def list_fleet_engines(call: ApiView) -> list[EngineView]:
    """Returns the agents that serve many hosts with one identity, and these hosts."""
    return engines_view(call.now)


@rest.post(
    "fleet/engines",
    "Create an engine's enrolment token (operators)",
    EngineTokenOut,
    terms=EngineTerms,
    status=201,
    secret=("token",),
    operation="create_engine_enrolment",
)
def create_engine_enrolment(call: ApiView, terms: EngineTerms) -> EngineToken:
    """Returns the token with which one agent enrols as the engine, shown only this once."""
    actor = PlatformActor.of(call.user, call.caller.token_id)
    return engine_enrolment(actor=actor, terms=terms, now=call.now)


@rest.get("fleet/engines/<slug:name>", "Retrieve an engine with its hosts (operators)", EngineViewOut)
def get_engine(call: ApiView, name: str) -> EngineView:
    """Returns an engine with the hosts that it has reported."""
    return engine_view(name, call.now)


@rest.post(
    "fleet/engines/<slug:name>/approve",
    "Approve hosts of an engine (operators)",
    EngineViewOut,
    terms=HostsTerms,
)
def approve_engine_hosts(call: ApiView, terms: HostsTerms, name: str) -> EngineView:
    """Makes hosts nodes of the portal: those that are named, and all of a kind that wait."""
    return hosts_approve(actor=PlatformActor.of(call.user), terms=terms, now=call.now, name=name)


@rest.post("fleet/engines/<slug:name>/revoke", "Revoke an engine's credentials (operators)", EngineViewOut)
def revoke_engine(call: ApiView, name: str) -> EngineView:
    """Locks the engine out with all of its hosts, which are quarantined. It needs a new enrolment."""
    return access_revoke(actor=PlatformActor.of(call.user), now=call.now, name=name)


@rest.post("fleet/engines/<slug:name>/rotate-key", "Rotate an engine's keys (operators)", EngineViewOut)
def rotate_engine_keys(call: ApiView, name: str) -> EngineView:
    """Issues new signing keys for the engine and its hosts. Old ones stay valid until new ones are used."""
    return keys_rotate(actor=PlatformActor.of(call.user), now=call.now, name=name)


urlpatterns = rest.urls
