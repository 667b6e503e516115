"""Quotes on what is published of others: no start earlier than the one that the cycle gives.

What `services.snapshot.published` reads is made here from whole snapshots: others' work as rows that
are nobody's, their guarantees as one sum.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from solver import Availability, Held, Limit, Place, Request, Snapshot, solve
from tests.solver import truth
from tests.solver.cycle.test_quote_pauses import as_asked, is_still, without_its_own_weight
from tests.solver.preemption.test_preemption_properties import cycles
from tests.solver.world import an_arrival, running_requests


def published(site: Snapshot, tenant: str) -> Snapshot:
    """The site as a tenant's quote sees it."""
    return replace(
        site,
        held=(*(row for row in site.held if row.tenant == tenant), *_busy(site, tenant)),
        requests=tuple(each for each in site.requests if each.tenant == tenant),
        running=tuple(each for each in site.running if each.tenant == tenant),
        limits=(
            *(row for row in site.limits if tenant in (row.owner, row.parent)),
            *_others_limits(site, tenant),
        ),
    )


def _busy(site: Snapshot, tenant: str) -> Iterator[Held]:
    taken: list[tuple[Place, int, int, int, int]] = [
        (row.place, row.starts, row.ends, row.cores, row.memory) for row in site.held if row.tenant != tenant
    ]
    for each in site.requests:
        if each.tenant != tenant and each.planned is not None:
            kept = (each.planned.starts, each.planned.ends, each.ask.cores, each.ask.memory)
            taken += [(place, *kept) for place in each.planned.places]
    for number, (place, starts, ends, cores, memory) in enumerate(taken):
        yield Held(
            id=f"busy-{number}",
            booking=f"busy-{number}",
            tenant="others",
            project="others",
            place=place,
            starts=starts,
            ends=ends,
            started=starts <= site.now,
            tier="",
            cores=cores,
            memory=memory,
            owner="others",
        )


def _others_limits(site: Snapshot, tenant: str) -> Iterator[Limit]:
    rows = [row for row in site.limits if row.parent is None and row.owner != tenant]
    for gpu_class in sorted({row.gpu_class for row in rows}):
        mine = [row for row in rows if row.gpu_class == gpu_class]
        sure = sum(row.guaranteed for row in mine)
        lent = sum(row.guaranteed if row.lend is None else min(row.guaranteed, row.lend) for row in mine)
        yield Limit("others", None, gpu_class, sure, None, lent)


def compared(seed: int, arrivals: int) -> Iterator[str]:
    """For each quote on a site at rest: how it compares to what the cycle gives."""
    chance = Random(seed)  # noqa: S311  made-up requests
    for world, _, _ in cycles(seed, arrivals):
        site = replace(world.site, running=tuple(running_requests(world.site)))
        if chance.random() > 0.4 or not is_still(site, solve(site, world.policy)):
            continue
        new: Request = replace(an_arrival(chance, 99, site.now), submitted=site.now)
        with without_its_own_weight("b99"):
            plan = solve(replace(site, requests=(*site.requests, new)), world.policy)
        given = [row.starts for row in truth.given_by(plan) if row.booking == "b99"]
        quoted = as_asked(Availability(published(site, new.tenant), world.policy), new)
        assert not quoted or (given and given[0] <= quoted[0].starts), (seed, new)
        same = [option.starts for option in quoted] == given
        yield "same" if same else "later" if quoted else "none"


def test_what_is_quoted_is_never_earlier_than_what_the_cycle_gives() -> None:
    seen = Counter(how for seed in (0, 1, 2, 3, 4, 5) for how in compared(seed, 7))
    assert seen["same"] > 15
    assert seen["later"] + seen["none"], "nobody is asked to leave: this shows nothing"
