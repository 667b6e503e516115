"""Which nodes are an operator's, whose role is limited to GPU classes, or to racks and pools."""

from typing import TypeAlias

from django.db.models import Exists, OuterRef, Q, QuerySet

from allocation.models import Gpu, Node
from allocation.words.refusals import refusal_text
from tenants.access import PlatformActor
from tenants.models import User
from tenants.platform.errors import Refused
from tenants.queries import rights_of_operator, site_operators
from tenants.rules.operator_roles import CLASS, POOL, Rights, role_words

Operator: TypeAlias = User | PlatformActor
"""An operator, as pages and services have them."""


def id_of(operator: Operator | None) -> int | None:
    """Returns the account of an operator; None: the portal."""
    return operator.user_id if isinstance(operator, PlatformActor) else operator.pk if operator else None


def nodes_check(operator: Operator | None, nodes: QuerySet[Node]) -> None:
    """Raises Refused `not_your_nodes` unless the operator may act on each of the nodes."""
    operator_id = id_of(operator)
    refusal = None if operator_id is None else nodes_refusal(rights_of_operator(operator_id), nodes)
    if refusal is not None:
        raise refusal


def nodes_refusal(rights: Rights, nodes: QuerySet[Node]) -> Refused | None:
    """Why an operator with these rights may not act on each of the nodes; None: they may."""
    grants = rights.node_names
    if grants is None:
        return None
    reached = Q(pk=None)
    for each in grants:
        if each.role == CLASS:
            gpus = Gpu.objects.filter(node=OuterRef("pk"))
            others = gpus.exclude(gpu_class__in=each.names)
            reached |= Q(Exists(gpus)) & ~Q(Exists(others))
        elif each.role == POOL:
            reached |= Q(rack__name__in=each.names) | Q(pool__in=each.names)
    first = nodes.exclude(reached).order_by("name").first()
    if first is None:
        return None
    people = ", ".join(each.display_name for each in site_operators()[:3])
    own = role_words(grants) or "none"
    text = refusal_text("not_your_nodes", node=first.name, own=own, people=people)
    return Refused("not_your_nodes", text, "denied")
