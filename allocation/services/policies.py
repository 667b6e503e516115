"""Policy documents: the solver's tunables as the operator versions them."""

from dataclasses import fields

from allocation.models import PolicyVersion
from allocation.rules.node_policy import NODE_ENTRIES, NodePolicy, node_policy_of
from allocation.solver import Policy

TUNABLES = tuple(field.name for field in fields(Policy) if field.name != "version")


def policy_of(version: PolicyVersion) -> Policy:
    """The policy that a version's document says; what it leaves out has its default.

    Raises:
        ValueError: an unknown name, or a value that is not a whole number above zero.
    """
    document = version.document
    for name, value in document.items():
        if name not in (*TUNABLES, *NODE_ENTRIES) or type(value) is not int or value <= 0:
            raise ValueError(f"policy {version.number} has a bad entry {name}: {value!r}")
    solvers = {name: value for name, value in document.items() if name in TUNABLES}
    return Policy(version=version.number, **solvers)


def node_policy() -> NodePolicy:
    """What the live policy says of nodes; the defaults before there is one."""
    live = PolicyVersion.objects.filter(state=PolicyVersion.State.LIVE)
    return node_policy_of(live.values_list("document", flat=True).first() or {})
