"""Pages of nodes that are not among those of the operator's roles."""

from django.db.models import QuerySet
from django.http import HttpRequest

from allocation.models import Node
from allocation.services.nodes.reach import nodes_refusal
from tenants.models import User
from tenants.queries import rights_of_operator
from tenants.web.frame import page_reach_set


def page_nodes(request: HttpRequest, operator: User, nodes: QuerySet[Node]) -> None:
    """Disables the acts of the page unless the operator may act on each of the nodes."""
    refusal = nodes_refusal(rights_of_operator(operator.pk), nodes)
    if refusal is not None:
        page_reach_set(request, refusal.sentence)
