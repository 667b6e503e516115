"""Policy documents: the solver's tunables as the operator versions them."""

from dataclasses import fields

from allocation.models import PolicyVersion
from allocation.solver import Policy

TUNABLES = tuple(field.name for field in fields(Policy) if field.name != "version")


def policy_of(version: PolicyVersion) -> Policy:
    """The policy that a version's document says; what it leaves out has its default.

    Raises:
        ValueError: an unknown name, or a value that is not a whole number above zero.
    """
    document = version.document
    for name, value in document.items():
        if name not in TUNABLES or type(value) is not int or value <= 0:
            raise ValueError(f"policy {version.number} has a bad entry {name}: {value!r}")
    return Policy(version=version.number, **document)
