"""Nodes: their state and history, and the actions of operators on them."""

from collections.abc import Callable
from typing import Any

from django.db.models import Count
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from allocation.api.operators import OperatorView
from allocation.models import Gpu, GpuEvent, Node
from allocation.queries.fleet.nodes import engines_now, examination_of, no_new_work_reason
from allocation.rules.nodes.node_policy import NODE_POLICY_MAX
from allocation.services.nodes.fleet import node_approve, node_key_rotate, node_revoke
from allocation.services.nodes.unbooked_use import escalation_follow_policy, escalation_set
from allocation.services.operate.drain import hardware_fence, node_drain
from allocation.words.refusals import refusal_text
from tenants.api.base import ApiView, list_response
from tenants.platform.errors import invalid, missing
from tenants.platform.rest.fields import Instant, Strict, Text, Whole
from tenants.platform.rest.pagination import PageQuery, page_of
from tenants.platform.rest.schema import described, page
from tenants.rules.operator_roles import Area

_MAX_SECONDS = NODE_POLICY_MAX["unbooked_end_after"]


class NodeOut(serializers.Serializer[Any]):
    """A machine with GPUs and an agent."""

    name = serializers.CharField()
    rack = serializers.CharField(source="rack.name")
    zone = serializers.CharField(source="rack.zone_id", allow_null=True, help_text="Of its rack.")
    state = serializers.CharField()
    state_reason = serializers.CharField(source="state_words")
    drain_by = serializers.DateTimeField(allow_null=True)
    gpus = serializers.IntegerField(source="gpu_count")
    cores = serializers.IntegerField()
    memory_mb = serializers.IntegerField()
    storage = serializers.CharField(
        allow_blank=True, help_text="`local` (NVMe), `shared`, `none`; empty: not known."
    )
    scratch_gb = serializers.IntegerField(help_text="Local space in GB.")
    storage_by_operator = serializers.BooleanField(help_text="False: what its agent found counts.")
    reported_storage = serializers.CharField(
        allow_blank=True, help_text="What its agent found; empty: no agent has looked."
    )
    reported_scratch_gb = serializers.IntegerField(help_text="Local space that its agent found, in GB.")
    host_limits = serializers.CharField(
        help_text="Whether the node enforces host cores and memory: `counted` or `enforced`."
    )
    host_note = serializers.CharField(help_text="Why the limits are only counted.")
    driver = serializers.CharField()
    engine = serializers.CharField(
        help_text="Who gives its GPUs to bookings: `device`, the agent itself, `slurm` or `kubernetes`."
    )
    engine_agent = serializers.CharField(
        source="engine_agent_id",
        allow_null=True,
        help_text="The engine whose identity serves it with other nodes. Null: an agent of its own.",
    )
    agent_version = serializers.CharField()
    generation = serializers.IntegerField(help_text="Generation of the newest assignment.")
    observed_generation = serializers.IntegerField(help_text="Generation that the agent has applied.")
    last_seen = serializers.DateTimeField(allow_null=True)
    takes_work = serializers.BooleanField(help_text="True if new bookings can be placed here.")
    no_new_work_reason = serializers.SerializerMethodField(
        help_text="Why a node in the state `ready` takes no work. Empty if it does."
    )
    unreachable_since = serializers.DateTimeField(
        allow_null=True, help_text="Its last answer, while it does not answer."
    )
    differences = serializers.ListField(
        child=serializers.CharField(),
        source="difference_words",
        help_text="Changes that need an operator's approval.",
    )
    clock_skew_seconds = serializers.IntegerField(
        allow_null=True,
        help_text="The node's clock minus the portal's. Null before the first heartbeat.",
    )
    restored = serializers.SerializerMethodField(
        help_text="True if the node has a newer assignment than the portal, which was restored "
        "from a backup. See `manage.py epoch_raise`."
    )
    stale_dropped = serializers.IntegerField(help_text="Number of outdated messages dropped.")
    refused = serializers.IntegerField(help_text="Number of invalid messages rejected.")
    throttled = serializers.IntegerField(help_text="Seconds of rate limiting.")
    implausible = serializers.IntegerField(
        help_text="Number of contradictory readings. Charges never depend on readings."
    )

    def get_no_new_work_reason(self, node: Node) -> str:
        """The reason in words."""
        return no_new_work_reason(node)

    def get_restored(self, node: Node) -> bool:
        """Whether the agent is ahead of this database."""
        return node.ahead_epoch is not None


class NodeCheckOut(serializers.Serializer[Any]):
    """One check of `gpu-agent doctor`."""

    name = serializers.CharField()
    state = serializers.ChoiceField(choices=["ok", "warn", "fail", "unknown"])
    seen = serializers.CharField(source="seen_text", help_text="The finding.")
    do = serializers.CharField(source="do_text", help_text="The remedy. Empty if the check passed.")
    essential = serializers.BooleanField(
        help_text="True if a failure quarantines the node until an operator approves it."
    )


class ExaminationOut(serializers.Serializer[Any]):
    """The checks that ran when the agent last started."""

    at = serializers.DateTimeField()
    checks = NodeCheckOut(many=True)


class NodeOneOut(NodeOut):
    """A node with its latest examination and its rules for unbooked processes. The times are
    seconds since a process was first seen. Null means never."""

    examination = serializers.SerializerMethodField(help_text="Null before the first examination.")
    unbooked_rules_from = serializers.SerializerMethodField(
        help_text="`policy`, or `node` if this node has rules of its own."
    )
    unbooked_warn_after = serializers.IntegerField(allow_null=True)
    unbooked_end_after = serializers.IntegerField(allow_null=True)

    @extend_schema_field(ExaminationOut(allow_null=True))
    def get_examination(self, node: Any) -> Any:  # noqa: ANN401 (as the framework passes it)
        """The latest examination."""
        found = examination_of(node.id)
        return None if found is None else ExaminationOut(found).data

    def get_unbooked_rules_from(self, node: Any) -> str:  # noqa: ANN401 (as the framework passes it)
        """The source of the rules."""
        return "node" if node.unbooked_override else "policy"


class NodeIn(Strict):
    """The node's rules for unbooked processes."""

    unbooked_rules_from = serializers.ChoiceField(
        choices=["policy", "node"], help_text="With `policy`, omit the other fields."
    )
    unbooked_warn_after = Whole(required=False, allow_null=True, min_value=0, max_value=_MAX_SECONDS)
    unbooked_end_after = Whole(required=False, allow_null=True, min_value=0, max_value=_MAX_SECONDS)


class DrainIn(Strict):
    """The reason and the deadline of a drain."""

    reason = Text(max_length=120)
    by = Instant(
        required=False,
        help_text="When running bookings are interrupted. By default they run to their end.",
    )


class FenceIn(Strict):
    """The hardware that is switched off."""

    note = Text(max_length=120, help_text="Shown in the node's history.")
    gpu = Whole(required=False, max_value=63, help_text="Index of one GPU. Default: the node.")


class FencedOut(serializers.Serializer[Any]):
    """The number of allocations that ended."""

    node = serializers.CharField()
    closed = serializers.IntegerField()


class GpuEventOut(serializers.Serializer[Any]):
    """One event in a node's history. `until` is null for open and for momentary events."""

    at = serializers.DateTimeField()
    gpu = serializers.IntegerField(source="gpu.index", allow_null=True, default=None)
    kind = serializers.CharField()
    code = serializers.IntegerField(allow_null=True)
    instance = serializers.CharField()
    slot = serializers.IntegerField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True)
    sentence = serializers.CharField(source="words")


class NodesQuery(PageQuery):
    """The parameters of the list of nodes."""

    zone = Text(max_length=40, required=False, help_text="Nodes of this zone only.")


class Nodes(ApiView):
    """The nodes of the fleet."""

    queries = {"GET": NodesQuery}

    @described("list_nodes", "List nodes", answer=page(NodeOut), query=NodesQuery)
    def get(self, request: Request) -> Response:
        """Returns the nodes of the fleet by name."""
        zone = self.query.get("zone")
        nodes_in = Node.objects.select_related("rack")
        nodes_in = nodes_in if zone is None else nodes_in.filter(rack__zone=zone)
        with self.tx():
            nodes, next_cursor = page_of(
                nodes_in.annotate(gpu_count=Count("gpus")),
                keys=("name",),
                query=self.query,
                scope=f"nodes {zone or ''}",
            )
            return list_response(NodeOut(nodes, many=True).data, next_cursor)


class EngineAgentOut(serializers.Serializer[Any]):
    """An agent that serves many nodes with one identity."""

    name = serializers.CharField()
    nodes = serializers.ListField(child=serializers.CharField())


class EngineOut(serializers.Serializer[Any]):
    """Who gives the GPUs of its nodes to bookings."""

    name = serializers.CharField(
        help_text="`device`: an agent on each node; `slurm`: Slurm, by jobs; `kubernetes`: Kueue, by queues."
    )
    granularity = serializers.CharField(
        help_text="`device`: a booking has the GPUs that the portal names; `node`: the engine chooses "
        "among those of the node; `pool`: the engine chooses the host, too."
    )
    versions = serializers.ListField(
        child=serializers.CharField(), help_text="Of the drivers, or of the scheduler."
    )
    nodes = serializers.ListField(child=serializers.CharField())
    gpus = serializers.IntegerField()
    withheld = serializers.IntegerField(help_text="GPUs on which the engine starts nothing new.")
    agents = EngineAgentOut(
        many=True, help_text="Those that serve many nodes with one identity. Other nodes have their own."
    )


class Engines(ApiView):
    """The engines of the fleet."""

    @described("list_engines", "List engines", answer=page(EngineOut))
    def get(self, request: Request) -> Response:
        """Returns who gives GPUs to bookings, and on which nodes."""
        with self.tx():
            return list_response(EngineOut(engines_now(), many=True).data)


class NodeOne(OperatorView):
    """One node."""

    area = Area.NODES

    @described("get_node", "Retrieve a node (operators)", answer=NodeOneOut)
    def get(self, request: Request, name: str) -> Response:
        """Returns a node with its latest examination."""
        with self.operator_tx():
            return Response(NodeOneOut(_node(name)).data)

    @described(
        "update_node",
        "Set a node's rules for unbooked processes (operators)",
        answer=NodeOneOut,
        request=NodeIn,
    )
    def put(self, request: Request, name: str) -> HttpResponseBase:
        """Sets when unbooked processes are warned and ended on this node, and returns the node. The
        change is recorded in its history."""
        sent = self.sent(NodeIn)
        by_policy = sent["unbooked_rules_from"] == "policy"
        if by_policy and len(sent) > 1:
            raise invalid("said_twice", refusal_text("unbooked_times_twice"), "unbooked_rules_from")

        def work() -> Node:
            if by_policy:
                escalation_follow_policy(operator=self.user, node=_node(name), now=self.now)
            else:
                escalation_set(
                    operator=self.user,
                    node=_node(name),
                    warn_after=sent.get("unbooked_warn_after"),
                    end_after=sent.get("unbooked_end_after"),
                    now=self.now,
                )
            return _node(name)

        return self.operate(work, NodeOneOut)


class NodeDrain(OperatorView):
    """Drains a node."""

    area = Area.NODES

    @described("act_drain_node", "Drain a node (operators)", answer=NodeOut, request=DrainIn)
    def post(self, request: Request, name: str) -> HttpResponseBase:
        """Takes a node out of planning and returns it. Running bookings continue to their end, or
        until `by`."""
        sent = self.sent(DrainIn)

        def work() -> Node:
            node_drain(
                operator=self.user,
                node=_node(name),
                reason=sent["reason"],
                now=self.now,
                by=sent.get("by"),
            )
            return _node(name)

        return self.operate(work, NodeOut)


class _NodeAction(OperatorView):
    """An action on a node that takes no parameters."""

    area = Area.NODES

    def act(self, name: str, action: Callable[..., object]) -> HttpResponseBase:
        """Runs the action and answers with the node: `require_operator()` comes first."""

        def work() -> Node:
            action(operator=self.user, node=_node(name), now=self.now)
            return _node(name)

        return self.operate(work, NodeOut)


class NodeReady(_NodeAction):
    """Returns a node to service."""

    @described(
        "act_ready_node",
        "Return a drained or quarantined node to service (operators)",
        answer=NodeOut,
        request=None,
    )
    def post(self, request: Request, name: str) -> HttpResponseBase:
        """Approves the node's reported changes, returns it to planning, and returns it."""
        return self.act(name, node_approve)


class NodeRevoke(_NodeAction):
    """Revokes the credentials of a node's agent."""

    @described(
        "act_revoke_node",
        "Revoke the credentials of a node's agent (operators)",
        answer=NodeOut,
        request=None,
    )
    def post(self, request: Request, name: str) -> HttpResponseBase:
        """Revokes the agent's credentials and returns the node, now in quarantine. The agent needs
        a new enrolment."""
        return self.act(name, node_revoke)


class NodeKeyRotate(_NodeAction):
    """Rotates the signing key of a node's agent."""

    @described(
        "act_rotate_node_key",
        "Rotate the signing key of a node's agent (operators)",
        answer=NodeOut,
        request=None,
    )
    def post(self, request: Request, name: str) -> HttpResponseBase:
        """Issues a new signing key and returns the node. The old key stays valid until the agent
        uses the new one."""
        return self.act(name, node_key_rotate)


class NodeFence(OperatorView):
    """Declares that hardware is switched off."""

    area = Area.NODES

    @described(
        "act_fence_node",
        "Declare a node or a GPU switched off (operators)",
        answer=FencedOut,
        request=FenceIn,
    )
    def post(self, request: Request, name: str) -> HttpResponseBase:
        """Ends all allocations on the hardware, so that its bookings start elsewhere. Use this only
        if the hardware is really off: otherwise two bookings can use one GPU."""
        sent = self.sent(FenceIn)

        def work() -> dict[str, Any]:
            node = _node(name)
            closed = hardware_fence(
                operator=self.user,
                node=node,
                gpu=_gpu(node, sent.get("gpu")),
                note=sent["note"],
                now=self.now,
            )
            return {"node": name, "closed": closed}

        return self.operate(work, FencedOut)


class NodeEvents(OperatorView):
    """The hardware history of a node."""

    area = Area.NODES
    queries = {"GET": PageQuery}

    @described(
        "list_node_events",
        "List the hardware events of a node (operators)",
        answer=page(GpuEventOut),
        query=PageQuery,
    )
    def get(self, request: Request, name: str) -> Response:
        """Returns the hardware events of a node, newest first."""
        with self.operator_tx():
            rows, next_cursor = page_of(
                GpuEvent.objects.filter(node=_node(name)).select_related("gpu"),
                keys=("-id",),
                query=self.query,
                scope="node-events",
            )
            return list_response(GpuEventOut(rows, many=True).data, next_cursor)


def _node(name: str) -> Node:
    """The node with its rack and its number of GPUs. Raises Refused `not_found`."""
    node = Node.objects.filter(name=name).select_related("rack").annotate(gpu_count=Count("gpus")).first()
    if node is None:
        raise missing("node")
    return node


def _gpu(node: Node, index: int | None) -> Gpu | None:
    if index is None:
        return None
    gpu = Gpu.objects.select_related("node").filter(node=node, index=index).first()
    if gpu is None:
        raise missing("GPU", "gpu")
    return gpu
