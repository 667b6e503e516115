"""What is in place is read again when it changes, and only then."""

from solver.model.demand import Fit, demand_of
from solver.preemption.in_place import InPlace
from solver.state.cycle_state import CycleState
from tests.solver.builders import HOUR, NOON, POLICY, a_limit, an_ask, gpus, whole
from tests.solver.pausing import GRACE, a_site, running

LIMITS = (a_limit("lab", 4, borrow=0), a_limit("firm", 0, borrow=None))
STARTS = NOON + 2 * HOUR


def planned(state: CycleState, gpu: str, *victims: str) -> Fit:
    """A reserved start of the lab for which these have to leave."""
    demand = demand_of(an_ask(), "h100", HOUR, ("lab", "lab-p"), "standard", "lab-ann")
    found = Fit(demand, (whole(gpu),), STARTS, 0, victims)
    state.reserve(found)
    return found


def test_a_claim_is_in_place_once_the_last_of_its_victims_has_notice() -> None:
    held = (*running("old", whole("n1-0")), *running("young", whole("n1-1"), tenant="other"))
    site = a_site(held=held, fleet=gpus(4), limits=LIMITS)
    state = CycleState(site, POLICY)
    in_place = InPlace(state, site)
    planned(state, "n1-0", "old")

    def units(*, planned: bool) -> int:
        return sum(each.use.units for each in in_place.at("lab", "h100", STARTS, planned=planned).blocks)

    assert (units(planned=False), units(planned=True)) == (0, 56_000)
    # The notice is given for another claim, so only this says that the first one is certain.
    state.notify("old", STARTS - GRACE)
    assert (units(planned=False), units(planned=True)) == (56_000, 56_000)


def test_a_change_on_one_class_leaves_what_is_known_of_another() -> None:
    fleet = (*gpus(2), *gpus(2, "l4", node="n2"))
    held = (*running("old", whole("n1-0")), *running("young", whole("n2-0")))
    state = CycleState(a_site(held=held, fleet=fleet, limits=LIMITS), POLICY)
    before = [state.running.version("firm", name) for name in ("h100", "l4")]
    state.notify("old", STARTS)
    after = [state.running.version("firm", name) for name in ("h100", "l4")]
    assert (after[0] > before[0], after[1]) == (True, before[1])
    assert state.running.changes("l4") == 0 < state.running.changes("h100")
