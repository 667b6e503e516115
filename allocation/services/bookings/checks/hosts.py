"""Host cores and memory that no nodes have: refused at once, with what the nodes do have."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from django.db.models import Q

from allocation.rules.ask import AskDocument
from allocation.services.record.refusals import refusal
from allocation.services.snapshot.demands import solver_ask
from allocation.services.snapshot.hardware import gpus_read, hosts_read, models_read
from allocation.words.refusals import refusal_text
from solver.fleet.mig_geometry import WHOLE_MASK
from solver.fleet.pool import Pool, pools_of
from solver.model.demand import Demand
from solver.model.nodes import Host
from solver.placement.gang import most_together
from solver.timeline.host_calendar import Free


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
