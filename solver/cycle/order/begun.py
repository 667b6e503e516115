"""Paused work of a tier that is never paused any more."""

from dataclasses import replace

from solver.model.demand import demands_of
from solver.model.inputs import Request
from solver.state.cycle_state import CycleState


def as_begun(state: CycleState, request: Request) -> Request:
    """The request, which may borrow as it did at its start if its guarantees can never hold it.

    Else paused work whose tier was made never pausable would be refused for what it had.
    """
    if not request.paused or request.within:
        return request
    tier, quota = request.quota_tier, state.quota
    for demand in demands_of(request):
        if demand.gpu_class not in state.pools:
            continue
        block = quota.never(state.use(demand), demand.duration)
        if block is None or block.kind != "guarantee" or not quota.stays_inside(tier, demand.duration):
            return request
    return replace(request, begun=True)
