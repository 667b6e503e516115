"""A site is decided shard by shard, with the bytes of one decision."""

from dataclasses import fields, replace
from typing import Any

from solver import Plan, Policy, Snapshot, encode, solve
from solver.cycle.solve import solve as solve_whole
from solver.model.ordering import in_order
from solver.sharding.shards import shards_of
from tests.bench.solver.crowded import site_of
from tests.solver.builders import an_ask
from tests.worlds.draw import world_draw
from tests.worlds.life import World

PLENTY = replace(Policy(1), neighbourhoods=10_000, exact_neighbourhoods=0)
"""Attempts to move others are counted for each shard, so that enough of them are the same."""


def unnumbered(plan: Plan) -> Plan:
    """The plan without the numbers that count the assignments of the whole cycle."""
    return replace(plan, assigns=tuple(replace(row, position=0) for row in plan.assigns))


def united(*sites: Snapshot) -> Snapshot:
    """One site of several, each with names of its own."""
    names = ("gpus", "held", "requests", "running", "limits", "used", "hosts", "blackouts")
    renamed = [_renamed(site, f"s{number}-") for number, site in enumerate(sites)]
    rows: dict[str, Any] = {
        name: tuple(row for site in renamed for row in getattr(site, name))
        for name in (*names, "extensions", "unneeded")
    }
    return replace(sites[0], **rows)


def _renamed(row: Any, prefix: str) -> Any:  # noqa: ANN401  any record in, the same out
    """The record with another name wherever it names a GPU, a class, a booking or an owner."""
    named = {"id", "gpu", "node", "rack", "gpu_class", "booking", "tenant", "project", "parent"}
    changes: dict[str, Any] = {}
    for each in fields(row):
        value = getattr(row, each.name)
        if each.name in (named | {"owner"}) and isinstance(value, str) and value:
            changes[each.name] = prefix + value
        elif each.name in ("classes", "pin"):
            changes[each.name] = tuple(prefix + name for name in value)
        elif each.name == "durations":
            changes[each.name] = tuple((prefix + name, length) for name, length in value)
        elif isinstance(value, tuple) and each.name not in ("models", "tiers", "granted"):
            changes[each.name] = tuple(
                _renamed(item, prefix) if hasattr(item, "__dataclass_fields__") else item for item in value
            )
        elif hasattr(value, "__dataclass_fields__"):
            changes[each.name] = _renamed(value, prefix)
    return replace(row, **changes)


def moments(seed: int) -> list[Snapshot]:
    """A dense world at some of its cycles."""
    world, found = World.of(seed), []
    for number, _ in enumerate(world.turns()):
        if number in (5, 20, 40, 60):
            found.append(world.snapshot())
        if number == 60:
            break
    return found


def test_dense_worlds_in_one_site_are_decided_as_if_in_one_cycle() -> None:
    for seed in (1, 4):
        drawn = world_draw(seed)
        for one, other in zip(moments(seed), moments(seed + 100), strict=False):
            site = united(one, replace(other, now=one.now, tiers=one.tiers))
            site = replace(site, tiers=drawn.tiers)
            shards = shards_of(in_order(site))
            assert len(shards) > 1
            whole = solve_whole(in_order(site), PLENTY)
            assert encode(unnumbered(solve(site, PLENTY, split_from=0))) == encode(unnumbered(whole))


def test_a_small_site_is_whole_so_that_refusals_name_other_classes() -> None:
    site = site_of(64, 30, 2, 0.5, split=True)
    assert encode(solve(site, PLENTY)) == encode(solve_whole(in_order(site), PLENTY))
    small = solve(site, PLENTY, split_from=len(site.held) + len(site.requests) + 1)
    assert encode(small) == encode(solve_whole(in_order(site), PLENTY))


def test_what_a_request_a_tenant_or_a_node_connects_is_one_shard() -> None:
    site = in_order(site_of(64, 30, 2, 0.5, split=True))
    assert len(shards_of(site)) == 2
    request = site.requests[0]
    either = replace(request, ask=an_ask(1, "h00", "h01"))
    assert len(shards_of(replace(site, requests=(*site.requests[1:], either)))) == 1
    tenants = {each.ask.classes[0]: each.tenant for each in site.requests}
    other = next(name for name in ("h00", "h01") if (name,) != request.ask.classes)
    lent = replace(request, tenant=tenants[other])
    assert len(shards_of(replace(site, requests=(*site.requests[1:], lent)))) == 1
    node = next(gpu.node for gpu in site.gpus if gpu.gpu_class == "h00")
    mixed = tuple(
        replace(gpu, node=node) if gpu.gpu_class == "h01" and gpu.index == 0 else gpu for gpu in site.gpus
    )
    assert len(shards_of(replace(site, gpus=mixed))) == 1
