"""What must hold of cores of hosts: a booking has cores of one node, and no booking of a GPU is decided
otherwise because of them."""

from collections.abc import Iterator
from dataclasses import replace

from solver import Policy, Snapshot, solve
from tests.solver.truth import given_by
from tests.worlds.cores import CPU, NODES
from tests.worlds.life import Turn

Given = tuple[str, int, tuple[str, ...]]
"""A booking, its start, and its devices."""


def cores_look(turn: Turn, policy: Policy) -> Iterator[str]:
    """Yields what is wrong with cores in one turn."""
    site = turn.site
    node_of = {gpu.id: gpu.node for gpu in site.gpus if gpu.gpu_class == CPU}
    if not node_of:
        return
    for given in given_by(turn.plan):
        nodes = {node_of[place.gpu] for place in given.places if place.gpu in node_of}
        if len(nodes) > 1 or (nodes and any(place.gpu not in node_of for place in given.places)):
            yield f"{site.now}: {given.booking} has cores of several nodes, or of a node and GPUs"
    with_them, without = (
        _for_gpus(site, plan_of(site, policy)),
        _for_gpus(site, plan_of(_alone(site), policy)),
    )
    if with_them != without:
        yield f"{site.now}: cores change what GPUs get: {sorted(with_them ^ without)[:2]}"


def plan_of(site: Snapshot, policy: Policy) -> list[Given]:
    """What each booking gets: its start and its places."""
    given = [(each.booking, each.starts, each.places) for each in given_by(solve(site, policy))]
    return [(name, starts, tuple(place.gpu for place in places)) for name, starts, places in given]


def _for_gpus(site: Snapshot, plan: list[Given]) -> set[Given]:
    cores = {gpu.id for gpu in site.gpus if gpu.gpu_class == CPU}
    return {row for row in plan if not cores & {*row[2]}}


def _alone(site: Snapshot) -> Snapshot:
    """The same site without its cores and their work."""
    cores = {gpu.id for gpu in site.gpus if gpu.gpu_class == CPU}
    theirs = {row.booking for row in site.held if row.place.gpu in cores}
    theirs |= {each.booking for each in (*site.requests, *site.running) if CPU in each.ask.classes}
    return replace(
        site,
        gpus=tuple(gpu for gpu in site.gpus if gpu.gpu_class != CPU),
        hosts=tuple(host for host in site.hosts if host.id not in NODES),
        limits=tuple(row for row in site.limits if row.gpu_class != CPU),
        held=tuple(row for row in site.held if row.booking not in theirs),
        requests=tuple(each for each in site.requests if each.booking not in theirs),
        running=tuple(each for each in site.running if each.booking not in theirs),
        extensions=tuple(each for each in site.extensions if each.booking not in theirs),
        unneeded=tuple(each for each in site.unneeded if each.booking not in theirs),
        notices=tuple(each for each in site.notices if each.booking not in theirs),
        idle=tuple(each for each in site.idle if each.booking not in theirs),
        blackouts=tuple(each for each in site.blackouts if each.gpu not in cores),
        quiet=tuple(name for name in site.quiet if name != CPU),
        used=tuple(each for each in site.used if each.gpu_class != CPU),
    )
