"""Refusals that cite a rule of the catalogue."""

from typing import Any

from allocation.models import Override
from solver.reasons.catalogue import BY_CODE
from tenants.platform.errors import Kind, Refused

_IN_SECONDS = (Override.Kind.LENGTH, Override.Kind.SHORTER, Override.Kind.NOTICE)


def refusal(
    code: str,
    sentence: str,
    kind: Kind,
    param: str | None = None,
    owner: str | None = None,
    **more: Any,  # noqa: ANN401 (the other fields of Refused)
) -> Refused:
    """A refusal with the rule of its code and the rule's owner. It names no exception that is larger
    than one can ask for."""
    rule = BY_CODE[code]
    asked = more.get("more") or {}
    if asked.get("kind") in _IN_SECONDS and int(asked["amount"]) > Override.MOST[asked["kind"]]:
        more["more"] = {}
    return Refused(code, sentence, kind, param, rule=rule.id, owner=owner or rule.owner, **more)
