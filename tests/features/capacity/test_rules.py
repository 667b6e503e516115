"""Paid periods, costs and the choice of an offer. Pure."""

from dataclasses import replace
from decimal import Decimal

import pytest

from allocation.features.capacity.rules import Offer, best_offer, paid_seconds
from allocation.rules.pools import class_of, is_pooled, pooled
from allocation.services.decide.cycle import plan_of_classes
from solver import solve
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_limit,
    a_request,
    a_snapshot,
    an_ask,
    gpus,
)

OFFER = Offer(
    "cloud", "big", "h100", 8, Decimal(24), "EUR", 60, 3600, 600, "z", interruptible=False, size="s"
)
SMALL = replace(OFFER, name="small", gpus=2, price=Decimal(8))


@pytest.mark.parametrize(
    ("kept", "paid"),
    [(0, 3600), (3600, 3600), (3600.5, 4200), (4200, 4200), (4201, 4800)],
)
def test_the_least_time_is_paid_and_then_each_begun_period(kept: float, paid: int) -> None:
    assert paid_seconds(kept, 3600, 600) == paid


def test_the_cheapest_offer_that_has_the_gpus_is_taken() -> None:
    offers = [OFFER, SMALL, replace(SMALL, gpu_class="l40s", price=Decimal(1))]
    assert best_offer(offers, "h100", 2, 0) == SMALL
    # Four small machines cost more than a big one.
    assert best_offer(offers, "h100", 8, 0) == OFFER
    assert best_offer(offers, "h100", 2, 0, per_machine=4) == OFFER
    assert best_offer(offers, "b200", 1, 0) is None


def test_a_pool_is_in_the_name_of_a_class_and_can_be_taken_out() -> None:
    assert (pooled("h100", ""), pooled("h100", "plan-1")) == ("h100", "h100@plan-1")
    assert (class_of("h100@plan-1"), class_of("h100")) == ("h100", "h100")
    assert (is_pooled("h100@plan-1"), is_pooled("h100")) == (True, False)


def test_nobody_else_is_planned_on_a_pool_and_no_quota_counts_it() -> None:
    """The site's own two GPUs are taken, and the project may use one."""
    name = pooled("h100", "plan-1")
    own, rented = gpus(2), gpus(4, name, node="cloud-1", rack="cloud")
    held = tuple(a_held(each.id, ends=20 * HOUR) for each in own)
    limits = (a_limit("lab", 1), a_limit("other", 2), a_limit("folding", 1, parent="lab"))
    others = a_request("others", an_ask(2), tenant="other", project="else", priority=90)
    asked = (others, a_request("first", an_ask(3, name)), a_request("second", an_ask(3, name)))
    plan = plan_of_classes(solve(a_snapshot(*asked, fleet=(*own, *rented), held=held, limits=limits), POLICY))
    (assigned,) = plan.assigns
    assert (assigned.booking, assigned.gpu_class) == ("first", "h100")
    assert {place.gpu for place in assigned.places} <= {each.id for each in rented}
    waits = {each.booking: (each.gpu_class, each.starts - NOON) for each in plan.waits}
    assert waits == {"second": ("h100", HOUR), "others": ("h100", 20 * HOUR)}


def test_what_is_offered_instead_names_no_pool_and_nobody_elses_machines() -> None:
    """A window that is busy and a late change: in the fleet only rented GPUs are free."""
    name = pooled("h100", "plan-1")
    own, rented = gpus(2), gpus(4, name, node="cloud-1", rack="cloud")
    held = tuple(a_held(each.id, ends=20 * HOUR) for each in own)
    busy = a_request("busy", an_ask(1), fixed=True, earliest=HOUR)
    too_many = a_request("many", an_ask(2, name), fixed=True, earliest=HOUR)
    for at in (HOUR, 2 * HOUR):
        held += tuple(a_held(each.id, booking="other", starts=at, ends=at + HOUR) for each in rented[:3])
    fleet = (*own, *rented)
    plan = plan_of_classes(solve(a_snapshot(busy, too_many, fleet=fleet, held=held), POLICY))
    offered = {
        each.booking: [(other.gpu_class, other.starts - NOON) for other in each.alternatives]
        for each in plan.refusals
    }
    assert offered["busy"] == [("h100", 20 * HOUR)]
    assert {name for name, _ in offered["many"]} == {"h100"}
