"""Refusals that cite a rule of the catalogue."""

from typing import Any

from solver.reasons.catalogue import BY_CODE
from tenants.platform.errors import Kind, Refused


def refusal(
    code: str,
    sentence: str,
    kind: Kind,
    param: str | None = None,
    owner: str | None = None,
    **more: Any,  # noqa: ANN401 (the other fields of Refused)
) -> Refused:
    """A refusal with the rule of its code and the rule's owner."""
    rule = BY_CODE[code]
    return Refused(code, sentence, kind, param, rule=rule.id, owner=owner or rule.owner, **more)
