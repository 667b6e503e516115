"""Enrolment of agents: the operator's one-time token, the endpoints that accept it, and what engines say
of their hosts."""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

import wire
from allocation.api.operators import OperatorView
from allocation.services.nodes.engines import SCHEDULERS, engine_enrol, engine_hosts_take
from allocation.services.nodes.fleet import TOKEN_LIFETIME, enrolment_token_create, node_enrol
from tenants.access import client_address
from tenants.api.base import ApiView
from tenants.platform.rest.fields import Strict, Text, Whole
from tenants.platform.rest.schema import described
from tenants.rules.operator_roles import Area
from tenants.services.sign_in.rate_limits import call_limit_check


class EnrolmentIn(Strict):
    """The machine to enrol."""

    node = serializers.RegexField(r"^[a-z0-9][a-z0-9-]{0,59}$")
    rack = serializers.RegexField(r"^[a-z0-9][a-z0-9-]{0,39}$")


class EnrolmentOut(serializers.Serializer[Any]):
    """A token for one agent. It works once, within 15 minutes."""

    node = serializers.CharField()
    token = serializers.CharField(
        allow_null=True, help_text="Returned once. Null when an Idempotency-Key is replayed."
    )
    expires_at = serializers.DateTimeField()


class Enrolments(OperatorView):
    """One-time tokens for agents."""

    area = Area.FLEET

    @described(
        "create_enrolment",
        "Create an agent's enrolment token (operators)",
        answer=EnrolmentOut,
        status=201,
        request=EnrolmentIn,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Returns the token, which is shown only this once."""
        sent = self.sent(EnrolmentIn)

        def work() -> dict[str, Any]:
            token = enrolment_token_create(
                node_name=sent["node"],
                rack_name=sent["rack"],
                now=self.now,
                operator=self.user,
                made_with=self.caller.token_id,
            )
            return {"node": sent["node"], "token": token, "expires_at": self.now + TOKEN_LIFETIME}

        return self.operate(work, EnrolmentOut, status=201, secret=("token",))


class AgentIn(Strict):
    """An agent's one-time token and the hardware inventory of its machine."""

    token = Text(max_length=200)
    inventory = serializers.DictField()


class AgentOut(serializers.Serializer[Any]):
    """The agent's name, key and message broker."""

    node = serializers.CharField()
    key = serializers.CharField()
    key_version = serializers.IntegerField()
    epoch = serializers.IntegerField()
    redis_url = serializers.CharField()


class AgentEnrol(ApiView):
    """Enrols an agent. The one-time token is the only credential."""

    authentication_classes = ()
    permission_classes = ()

    @described(
        "create_agent",
        "Enrol a node's agent (called by the agent)",
        answer=AgentOut,
        status=201,
        request=AgentIn,
        public=True,
    )
    def post(self, request: Request) -> Response:
        """Returns the node's name, its signing key and the address of the message broker."""
        call_limit_check("enrol", client_address(request.META), self.now)
        sent = self.sent(AgentIn)
        return Response(
            node_enrol(token=sent["token"], inventory=sent["inventory"], now=self.now), status=201
        )


class EngineAgentIn(Strict):
    """An engine's one-time token, and what it is."""

    token = Text(max_length=200)
    engine = serializers.ChoiceField(
        choices=SCHEDULERS,
        help_text="`slurm`, `kubernetes` with Kueue, `volcano`, or `quota`: Kubernetes without both.",
    )
    agent = Text(max_length=40, help_text="Version of the agent.")


class EngineIdentityOut(serializers.Serializer[Any]):
    """The engine's name, key and message broker."""

    engine = serializers.CharField()
    key = serializers.CharField()
    key_version = serializers.IntegerField()
    epoch = serializers.IntegerField()
    redis_url = serializers.CharField()


class EngineEnrol(ApiView):
    """Enrols an engine. The one-time token is the only credential."""

    authentication_classes = ()
    permission_classes = ()

    @described(
        "create_engine_agent",
        "Enrol an engine (called by the agent)",
        answer=EngineIdentityOut,
        status=201,
        request=EngineAgentIn,
        public=True,
    )
    def post(self, request: Request) -> Response:
        """Returns the engine's name, its signing key and the address of the message broker. Its hosts get
        keys of their own when an operator has approved them."""
        call_limit_check("enrol", client_address(request.META), self.now)
        sent = self.sent(EngineAgentIn)
        found = engine_enrol(token=sent["token"], scheduler=sent["engine"], agent=sent["agent"], now=self.now)
        return Response(found, status=201)


class EnvelopeIn(Strict):
    """A signed message of an engine, with the password of its account."""

    password = Text(max_length=100)
    body = serializers.CharField(trim_whitespace=False, max_length=wire.MAX_BYTES)
    key = Whole(min_value=1, max_value=(1 << 31) - 1)
    mac = Text(max_length=64)


class EnvelopeOut(serializers.Serializer[Any]):
    """A signed message."""

    body = serializers.CharField()
    key = serializers.IntegerField(help_text="Version of the key that signed it.")
    mac = serializers.CharField()


class EngineHosts(ApiView):
    """Takes in which hosts an engine has. Its account and its signature are the credentials."""

    authentication_classes = ()
    permission_classes = ()

    @described(
        "act_report_engine_hosts",
        "Report an engine's hosts (called by the agent)",
        answer=EnvelopeOut,
        request=EnvelopeIn,
        public=True,
    )
    def post(self, request: Request) -> Response:
        """Returns, signed by the portal, which hosts are the engine's, with their keys hidden under its own.
        409 `engine_locked_out`: enrol again."""
        call_limit_check("enrol", client_address(request.META), self.now)
        sent = self.sent(EnvelopeIn)
        envelope = wire.Envelope(sent["body"].encode(), sent["key"], sent["mac"])
        answer = engine_hosts_take(password=sent["password"], envelope=envelope, now=self.now)
        return Response({"body": answer.body.decode(), "key": answer.key_version, "mac": answer.mac})
