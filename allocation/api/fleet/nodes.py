"""One node for operators, and what it does about use without a booking."""

from typing import Any

from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.fleet.fleet import NodeOut, node_by_name
from allocation.queries.fleet.examinations import examination_of
from allocation.rules.nodes.node_policy import NODE_POLICY_MAX
from allocation.services.nodes.unbooked_use import escalation_follow_policy, escalation_set
from tenants.api.base import ApiView
from tenants.models import User
from tenants.platform.errors import invalid
from tenants.platform.fields import Strict, Whole
from tenants.platform.schema import described
from tenants.platform.wall import operator_tx

_MOST = NODE_POLICY_MAX["strangers_end_after"]


class NodeCheckOut(serializers.Serializer[Any]):
    """One check of `doctor`."""

    name = serializers.CharField()
    state = serializers.ChoiceField(choices=["ok", "warn", "fail", "unknown"])
    seen = serializers.CharField(help_text="As the node says it.")
    do = serializers.CharField(help_text="What to do, empty for what is fine.")
    essential = serializers.BooleanField(
        help_text="A node on which it begins to fail is quarantined until an operator approves it."
    )


class ExaminationOut(serializers.Serializer[Any]):
    """What `doctor` found on the node when its agent was begun last."""

    at = serializers.DateTimeField()
    checks = NodeCheckOut(many=True)


class NodeOneOut(NodeOut):
    """A node with what works on it, and what it does about use without a booking: seconds after
    which somebody is warned and ended, null for never."""

    examination = serializers.SerializerMethodField(
        help_text="Null until its agent has examined the node."
    )

    strangers_by = serializers.SerializerMethodField(
        help_text="`policy`, or `node` when it was said of this node alone."
    )
    strangers_warn_after = serializers.IntegerField(source="unbooked_warn_after", allow_null=True)
    strangers_end_after = serializers.IntegerField(source="unbooked_end_after", allow_null=True)

    @extend_schema_field(ExaminationOut(allow_null=True))
    def get_examination(self, node: Any) -> Any:  # noqa: ANN401 (as the framework passes it)
        """What works on it."""
        found = examination_of(node.id)
        return None if found is None else ExaminationOut(found).data

    def get_strangers_by(self, node: Any) -> str:  # noqa: ANN401 (as the framework passes it)
        """Who says so."""
        return "node" if node.unbooked_override else "policy"


class NodeIn(Strict):
    """What this node does about use without a booking."""

    strangers_by = serializers.ChoiceField(
        choices=["policy", "node"], help_text="With `policy` nothing else is said."
    )
    strangers_warn_after = Whole(required=False, allow_null=True, min_value=0, max_value=_MOST)
    strangers_end_after = Whole(required=False, allow_null=True, min_value=0, max_value=_MOST)


class NodeOne(ApiView):
    """One node."""

    @described("get_node", "A node of the fleet (operators)", answer=NodeOneOut)
    def get(self, request: Request, name: str) -> Response:
        """The node."""
        self.require_operator()
        with operator_tx():
            return Response(NodeOneOut(node_by_name(name)).data)

    @described(
        "update_node",
        "Say what a node does about use without a booking (operators)",
        answer=NodeOneOut,
        request=NodeIn,
    )
    def put(self, request: Request, name: str) -> HttpResponseBase:
        """The node; what was said stands in its history."""
        sent = self.sent(NodeIn)
        times = {key: sent[key] for key in sent if key != "strangers_by"}
        if times and sent["strangers_by"] == "policy":
            raise invalid("said_twice", "The policy has its own times.", "strangers_by")

        def work() -> Response:
            self.require_operator()
            with operator_tx():
                operator = User.objects.get(id=self.actor.user_id)
                if sent["strangers_by"] == "policy":
                    escalation_follow_policy(
                        operator=operator, node=node_by_name(name), now=self.now
                    )
                else:
                    escalation_set(
                        operator=operator,
                        node=node_by_name(name),
                        warn_after=times.get("strangers_warn_after"),
                        end_after=times.get("strangers_end_after"),
                        now=self.now,
                    )
                return Response(NodeOneOut(node_by_name(name)).data)

        return self.once(work)
