"""Zones and storage that a request names: refused at once if no nodes of its classes are there."""

from typing import Any

import numpy as np
from django.db.models import Q

from allocation.models import Zone
from allocation.rules.ask import AskDocument
from allocation.services.record.refusals import refusal
from allocation.services.snapshot.demands import solver_ask
from allocation.services.snapshot.hardware import gpus_read, models_read
from allocation.words.refusals import refusal_text
from allocation.words.where import where_words
from solver.fleet.pool import Pool, pools_of
from tenants.platform.errors import invalid

ANYWHERE: dict[str, Any] = {"zones": [], "not_zones": [], "storage": None, "scratch": 0}
"""The fields of a request that name neither zones nor storage."""


def where_check(ask: AskDocument) -> None:
    """Raises Refused `no_such_zone`, `where_elsewhere` or `where_too_small`."""
    if solver_ask(ask).where is None:
        return
    _zones_check(ask)
    for part in ask.parts:
        most = _most(part)
        if not most:
            text = refusal_text("where_elsewhere", classes=" or ".join(part.classes), where=where_words(ask))
            raise refusal("where_elsewhere", text, "invalid", "request", alternatives=[ANYWHERE])
        if most < part.count:
            numbers = {"asked": part.count, "most": most}
            text = refusal_text("where_too_small", where=where_words(ask), **numbers)
            fewer = [] if ask.groups else [{"count": most}]
            raise refusal(
                "where_too_small",
                text,
                "invalid",
                "request",
                numbers=numbers,
                alternatives=[ANYWHERE, *fewer],
            )


def _zones_check(ask: AskDocument) -> None:
    named = {*ask.zones, *ask.not_zones}
    known = set(Zone.objects.filter(ended=None).values_list("slug", flat=True)) if named else set()
    for zone in sorted(named - known):
        param = "zones" if zone in ask.zones else "not_zones"
        raise invalid("no_such_zone", refusal_text("no_such_zone", zone=zone), param)


def _most(ask: AskDocument) -> int:
    """The most of the shape in one zone, or in one group of what must be together; 0: there are none."""
    pools = pools_of(gpus_read(Q(gpu_class__in=ask.classes)), models_read())
    return max((_most_of(pool, ask) for pool in pools.values()), default=0)


def _most_of(pool: Pool, ask: AskDocument) -> int:
    able = pool.suits(ask.shape) & pool.allowed((), solver_ask(ask).where)
    level = ask.together if ask.required and ask.count > 1 else "any"
    return pool.most_of(np.asarray(able), ask.shape, level)
