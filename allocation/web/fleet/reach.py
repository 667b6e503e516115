"""Pages of nodes that are not among those of the operator's roles."""

from django.db.models import QuerySet
from django.http import HttpRequest

from allocation.models import Node
from allocation.services.nodes.reach import nodes_refusal
from tenants.models import User
from tenants.queries import rights_of_operator
from tenants.rules.operator_roles import Area
from tenants.web.frame import page_reach_set


def page_nodes(request: HttpRequest, operator: User, nodes: QuerySet[Node]) -> None:
    """Disables the acts of the page for an operator who acts on other nodes only."""
    rights = rights_of_operator(operator.pk)
    refusal = nodes_refusal(rights, nodes) if rights.may(Area.NODES, act=True) else None
    if refusal is not None:
        page_reach_set(request, refusal.sentence)
