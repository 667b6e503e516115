"""Zones, storage, host cores and memory that no nodes have: refused at once, with what they do have."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from django.db.models import Q

from allocation.models import Zone
from allocation.queries.fleet.catalogue import class_gigabytes, class_labels, host_classes
from allocation.rules.ask import AskDocument
from allocation.services.record.refusals import refusal
from allocation.services.snapshot.demands import solver_ask
from allocation.services.snapshot.hardware import gpus_read, hosts_read, models_read
from allocation.words.refusals import refusal_text
from allocation.words.where import where_words
from solver.fleet.mig_geometry import WHOLE_MASK
from solver.fleet.pool import Pool, pools_of
from solver.model.demand import Demand
from solver.model.sites.nodes import Host
from solver.placement.gang import most_together
from solver.timeline.host_calendar import Free
from tenants.platform.errors import invalid

ANYWHERE: dict[str, Any] = {"zones": [], "not_zones": [], "storage": None, "scratch": 0}
"""The fields of a request that name neither zones nor storage."""


def host_settle(ask: AskDocument) -> AskDocument:
    """Returns a request for host cores as it is placed: on one node, with the memory of so many cores.

    Whether a request is for cores is decided by its classes.

    Raises:
        Refused: `cores_or_gpus` for GPUs and cores in one request, and `host_cores_only` for what cores
            do not have.
    """
    hosts = [name for name in ask.all_classes if name in host_classes()]
    if not hosts:
        return replace(ask, host=False)
    if ask.groups or len(hosts) < len(ask.classes):
        others = [name for name in ask.all_classes if name not in hosts]
        each = [{"gpu_class": name, "groups": []} for name in (*hosts, *others)] if ask.groups else []
        remedies = each or [{"gpu_class": name} for name in ask.classes]
        refused = invalid("cores_or_gpus", refusal_text("cores_or_gpus"), "request")
        raise replace(refused, alternatives=remedies)
    given = [name for name in ("cores", "profile", "share", "workload") if getattr(ask, name)]
    if given:
        refused = invalid("host_cores_only", refusal_text("host_cores_only", field=given[0]), "request")
        # Who gives cores of a GPU means so many cores.
        meant = {"count": ask.cores, "cores": 0} if ask.count == 1 and ask.cores else {"cores": 0}
        raise replace(refused, alternatives=[meant | {"profile": None}])
    # What a class has by core is the share of its node's memory that no other core is promised.
    by_core = min((class_gigabytes().get(name, 1) for name in hosts), default=1)
    together = replace(ask, together="node", required=True) if ask.together == "any" else ask
    return replace(together, host=True, memory=ask.memory or max(1, by_core))


def where_check(ask: AskDocument) -> None:
    """Raises Refused `no_such_zone`, `where_elsewhere` or `where_too_small`."""
    if solver_ask(ask).where is None:
        return
    _zones_check(ask)
    for part in ask.parts:
        most = _most_there(part)
        if not most:
            labels = class_labels()
            classes = " or ".join(labels.get(name, name) for name in part.classes)
            text = refusal_text("where_elsewhere", classes=classes, where=where_words(ask))
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


def _most_there(ask: AskDocument) -> int:
    """The most of the shape in one zone, or in one group of what must be together; 0: there are none."""
    pools = pools_of(gpus_read(Q(gpu_class__in=ask.classes)), models_read())
    return max((_most_of(pool, ask) for pool in pools.values()), default=0)


def _most_of(pool: Pool, ask: AskDocument) -> int:
    able = pool.suits(ask.shape) & pool.allowed((), solver_ask(ask).where)
    level = ask.together if ask.required and ask.count > 1 else "any"
    return pool.most_of(np.asarray(able), ask.shape, level)


def host_check(ask: AskDocument) -> None:
    """Raises Refused `host_too_small` for cores or memory that the nodes do not have for so many.

    Without them the request must be possible; if it is not, another rule refuses it.
    """
    for part in ask.parts:
        if not (part.cores or part.memory):
            continue
        nodes = _Nodes.read(part)
        if nodes.serve(0, 0) and not nodes.serve(part.cores, part.memory):
            remedies = [group_remedy(ask, part, each) for each in nodes.offers()]
            _refuse(part, nodes, remedies)


def group_remedy(ask: AskDocument, part: AskDocument, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes of one group as a change of the request: of a mixed one, all of its groups."""
    if not ask.groups:
        return dict(changes)
    rows = [
        {**asdict(each), **(changes if each.gpu_class == part.classes[0] else {})} for each in ask.every_group
    ]
    return {"groups": [row for row in rows if row["count"]]}


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The nodes of each class of a request of one group, all idle."""

    ask: AskDocument
    pools: Mapping[str, Pool]
    hosts: Mapping[str, Host]

    @classmethod
    def read(cls, ask: AskDocument) -> "_Nodes":
        gpus = gpus_read(Q(gpu_class__in=ask.classes))
        return cls(ask, pools_of(gpus, models_read()), {each.id: each for each in hosts_read()})

    def most(self, cores: int, memory: int) -> int:
        """The most devices that the nodes of one class have with so much for each."""
        counts = (self._most_of(pool, cores, memory) for pool in self.pools.values())
        return max(counts, default=0)

    def serve(self, cores: int, memory: int) -> bool:
        """Whether there are enough."""
        return self.most(cores, memory) >= self.ask.count

    def offers(self) -> Iterator[dict[str, int]]:
        """Yields what would do: fewer cores, less memory, both, and fewer devices."""
        ask = self.ask
        cores = _largest(ask.cores, lambda each: self.serve(each, ask.memory))
        memory = _largest(ask.memory, lambda each: self.serve(ask.cores, each))
        if cores:
            yield {"cores": cores}
        if memory:
            yield {"memory": memory}
        if not cores and not memory:
            memory = _largest(ask.memory, lambda each: self.serve(0, each)) or 0
            cores = _largest(ask.cores, lambda each: self.serve(each, memory)) or 0
            yield {"cores": cores, "memory": memory}
        if fewer := self.most(ask.cores, ask.memory):
            yield {"count": fewer}

    def _most_of(self, pool: Pool, cores: int, memory: int) -> int:
        ask = self.ask
        demand = Demand(
            pool.gpu_class,
            ask.profile,
            ask.count,
            ask.together if ask.required else "any",
            0,
            (),
            share=ask.share,
            cores=cores * 1_000,
            memory=memory * 1_024,
            pin=ask.pin,
            where=solver_ask(ask).where,
        )
        if not pool.serves(demand.shape):
            return 0
        taken = np.zeros(len(pool), dtype=np.uint16)
        if demand.is_bound:
            taken[~pool.allowed(demand.pin, demand.where)] = WHOLE_MASK
        rows = [self.hosts.get(node) for node in pool.nodes]
        free = Free(
            np.array([row.cores if row else 0 for row in rows], dtype=np.int64),
            np.array([row.memory if row else 0 for row in rows], dtype=np.int64),
        )
        return most_together(pool, demand, taken, free if cores or memory else None)


def _largest(asked: int, does: Callable[[int], bool]) -> int | None:
    """The largest number below `asked` that does; None if not even 0 does."""
    if not asked or not does(0):
        return None
    low, high = 0, asked
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if does(middle) else (low, middle)
    return low


def _refuse(part: AskDocument, nodes: _Nodes, remedies: list[dict[str, Any]]) -> None:
    facts = {
        "asked": part.count,
        "cores": part.cores,
        "memory": part.memory,
        "most": nodes.most(part.cores, part.memory),
        "gpu_class": " or ".join(part.classes),
    }
    raise refusal(
        "host_too_small",
        refusal_text("host_too_small", **facts),
        "invalid",
        "request",
        numbers=facts,
        alternatives=remedies,
    )
