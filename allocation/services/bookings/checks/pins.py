"""Pins: nodes and GPUs by the names that people use."""

from dataclasses import replace
from uuid import UUID

from django.db.models import Q

from allocation.models import Gpu
from allocation.rules.ask import AskDocument
from allocation.rules.ask.line.text import pin_words
from allocation.services.record.refusals import refusal
from allocation.services.snapshot.hardware import gpus_read, models_read
from allocation.solver.fleet.pool import pools_of
from allocation.words.refusals import refusal_text


def pin_resolve(ask: AskDocument) -> AskDocument:
    """Returns the ask with nodes by name and GPUs as `node/index`, on the classes that they have.

    A GPU may also be named by its portal id or its UUID.

    Raises:
        Refused: `pin_elsewhere` or `pin_too_small`.
    """
    if not ask.pin:
        return ask
    names = tuple(sorted({_resolved(name) for name in ask.pin}))
    there = Q()
    for name in names:
        there |= _where(name)
    pools = pools_of(gpus_read(there), models_read())
    able = tuple(name for name in ask.classes if name in pools)
    if not able:
        raise refusal(
            "pin_elsewhere",
            refusal_text(
                "pin_elsewhere",
                classes=" or ".join(ask.classes),
                pins=pin_words(names),
                there=" and ".join(pools),
            ),
            "invalid",
            "request",
        )
    level = ask.together if ask.required and ask.count > 1 else "any"
    most = {name: pools[name].most(ask.shape, level) for name in able}
    fitting = tuple(name for name in able if most[name] >= ask.count)
    if not fitting:
        numbers = {"asked": ask.count, "most": max(most.values())}
        raise refusal(
            "pin_too_small",
            refusal_text("pin_too_small", pins=pin_words(names), **numbers),
            "invalid",
            "request",
            numbers=numbers,
        )
    return replace(ask, pin=names, classes=fitting)


def _resolved(name: str) -> str:
    """Returns the portal's name of a node or GPU. Raises Refused: `pin_elsewhere`."""
    found = Gpu.objects.filter(_where(name)).select_related("node").order_by("index").first()
    if found is None:
        raise refusal(
            "pin_elsewhere",
            refusal_text("pin_unknown", name=name),
            "invalid",
            "request",
        )
    if found.node.name.lower() == name.lower():
        return found.node.name
    return f"{found.node.name}/{found.index}"


def _where(name: str) -> Q:
    node, _, index = name.rpartition("/")
    if node:
        return Q(node__name__iexact=node, index=int(index) if index.isdecimal() else -1)
    found = Q(node__name__iexact=name) | Q(uuid__iexact=name)
    try:
        return found | Q(id=UUID(name))
    except ValueError:
        return found
