"""Workers decide shards with the same bytes, and one that is killed costs only time."""

from functools import partial

from allocation.services.decide.shard_workers import ShardWorkers
from allocation.solver import Policy, encode
from allocation.solver import solve as solve_any
from tests.bench.solver.crowded import one_more, site_of, the_next

solve = partial(solve_any, split_from=0)


def test_workers_return_the_same_bytes_and_a_dead_one_costs_only_time() -> None:
    site = site_of(64, 60, 4, 0.5, split=True)
    settled = the_next(site, solve(site, Policy(1)))
    workers = ShardWorkers(2)
    try:
        for each in (site, one_more(settled, 4, is_first=True, split=True)):
            assert encode(solve(each, Policy(1), workers.decide)) == encode(solve(each, Policy(1)))
        assert workers._pool is not None
        for process in (workers._pool._processes or {}).values():
            process.kill()
        assert encode(solve(site, Policy(1), workers.decide)) == encode(solve(site, Policy(1)))
    finally:
        workers.close()
