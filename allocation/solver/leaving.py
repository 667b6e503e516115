"""Host cores and memory when some of those who may be paused have left."""

from collections.abc import Sequence

from allocation.solver.hosts import Free
from allocation.solver.placement import Want
from allocation.solver.running import Runner
from allocation.solver.working import Found, Working


def free_without(working: Working, want: Want, starts: int, gone: Sequence[Runner]) -> Free | None:
    """What nodes can have free in the want's window; None: it asks for nothing of them."""
    running, hosts = working.running, working.hosts
    free = working.free_of_firm(want, starts)
    if free is None:
        return None
    nodes = {node: at for at, node in enumerate(working.pools[want.gpu_class].nodes)}
    leaving = {runner.booking for runner in gone}
    for name in running.classes:
        for runner in running.there(name):
            if runner.booking in leaving or running.ends(runner) <= starts:
                continue
            for node in map(hosts.node_of, runner.places):
                if node in nodes and any(runner.of_host):
                    free = free.less(nodes[node], *runner.of_host)
    return free


def has_beside(working: Working, found: Found, gone: Sequence[Runner]) -> bool:
    """True when the places' nodes have the cores and memory once these have left."""
    free = free_without(working, found.want, found.starts, gone)
    if free is None:
        return True
    pool = working.pools[found.want.gpu_class]
    nodes = pool.groups("node")[[pool.column[place.gpu] for place in found.places]]
    most = free.devices(*found.want.of_host)
    return all(int((nodes == node).sum()) <= most[node] for node in nodes.tolist())
