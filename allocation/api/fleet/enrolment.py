"""How agents are let in: the operator's one-time token, and the door at which it is shown."""

from typing import Any

from django.http.response import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.services.nodes.fleet import TOKEN_LIFETIME, enrolment_token_create, node_enrol
from tenants.access import client_address
from tenants.api.base import ApiView
from tenants.models import User
from tenants.platform.fields import Strict, Text
from tenants.platform.schema import described
from tenants.platform.wall import operator_tx
from tenants.services.rate_limits import call_limit_check


class EnrolmentIn(Strict):
    """Which machine may come in."""

    node = serializers.RegexField(r"^[a-z0-9][a-z0-9-]{0,59}$")
    rack = serializers.RegexField(r"^[a-z0-9][a-z0-9-]{0,39}$")


class EnrolmentOut(serializers.Serializer[Any]):
    """A token for one agent, valid once within 15 minutes."""

    node = serializers.CharField()
    token = serializers.CharField(
        allow_null=True, help_text="Shown once; null when an Idempotency-Key is replayed."
    )
    expires_at = serializers.DateTimeField()


class Enrolments(ApiView):
    """Letting an agent in."""

    @described(
        "create_enrolment",
        "Make an agent's one-time token (operators)",
        answer=EnrolmentOut,
        status=201,
        request=EnrolmentIn,
    )
    def post(self, request: Request) -> HttpResponseBase:
        """The token, shown this once."""
        sent = self.sent(EnrolmentIn)

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                token = enrolment_token_create(
                    node_name=sent["node"],
                    rack_name=sent["rack"],
                    now=self.now,
                    operator=User.objects.get(id=self.actor.user_id),
                )
            made = {
                "node": sent["node"],
                "token": token,
                "expires_at": self.now + TOKEN_LIFETIME,
            }
            return Response(EnrolmentOut(made).data, status=201)

        return self.once(work, secret=("token",))


class AgentIn(Strict):
    """An agent's one-time token, and what it found on its machine."""

    token = Text(max_length=200)
    inventory = serializers.DictField()


class AgentOut(serializers.Serializer[Any]):
    """What the agent keeps: its name, its key, and where to listen."""

    node = serializers.CharField()
    key = serializers.CharField()
    key_version = serializers.IntegerField()
    epoch = serializers.IntegerField()
    redis_url = serializers.CharField()


class AgentEnrol(ApiView):
    """The agents' door: the one-time token is the only credential."""

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
        """The node's name, key and address."""
        call_limit_check("enrol", client_address(request.META), self.now)
        sent = self.sent(AgentIn)
        made = node_enrol(token=sent["token"], inventory=sent["inventory"], now=self.now)
        return Response(made, status=201)
