"""A worker publishes the prices of a version whose time has come, and no others."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from allocation.models import PolicyActivation, PolicyVersion
from allocation.services.decide.cycle import tick_run
from allocation.services.policy.activations import policy_rollback
from billing.models import Price, PriceBook
from billing.services import price_book_publish
from tests.api.builders import Site, a_site
from tests.features.policy_lab.test_scenarios import HOUR, NOW, activated, drafted, scenario_of, values
from tests.roles import as_owner, as_system

PRICES = {("h100", tier): Decimal(1) for tier in ("standard", "spot")}


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


def book(**changed: Any) -> PriceBook:  # noqa: ANN401 (columns)
    """A copy of the latest book, in force from NOW on."""
    latest = PriceBook.objects.order_by("-version")[0]
    terms = {"currency": latest.currency, "setup_fees": latest.setup_fees, "valid_from": NOW}
    return PriceBook.objects.create(
        **{"version": latest.version + 1, "published_at": NOW, **terms, **changed}
    )


def price(**changed: Any) -> Price:  # noqa: ANN401 (columns)
    """A book with the price that the version sets, or another one."""
    made = book()
    terms = {"gpu_class_id": "h100", "tier_id": "standard", "per_gpu_hour": Decimal("9.50"), **changed}
    return Price.objects.create(book=made, **terms)


def is_refused(act: Callable[[], object]) -> bool:
    with as_system(), pytest.raises(DatabaseError, match="workers"), transaction.atomic():
        act()
    return True


def test_a_worker_publishes_nothing_by_itself(site: Site) -> None:
    assert is_refused(book)
    assert is_refused(lambda: price_book_publish(actor_id=None, valid_from=NOW, prices=PRICES, now=NOW))
    with as_owner():
        latest = PriceBook.objects.order_by("-version")[0]
    assert is_refused(
        lambda: Price.objects.create(book=latest, gpu_class_id="h100", tier_id="free", per_gpu_hour=0)
    )


def test_a_worker_neither_writes_a_scenario_nor_asks_for_one(site: Site) -> None:
    number = drafted(site, scenario_of(site))
    asked = {"kind": "activation", "asked_at": NOW - timedelta(days=2), "starts": NOW, "due_at": NOW}
    assert is_refused(lambda: PolicyActivation.objects.create(version_id=number, waiver="Mine.", **asked))
    assert is_refused(
        lambda: PolicyVersion.objects.create(
            number=9, document={}, scenario=scenario_of(site), state="draft", created=NOW
        )
    )


def test_what_an_operator_planned_is_published_and_taken_back_by_workers(site: Site) -> None:
    before = values(site)
    number = drafted(site, scenario_of(site))
    activated(site, number, starts=NOW + HOUR)
    with as_system():
        tick_run(NOW + HOUR)
    assert values(site) == (77, 7, 0, Decimal("9.5"))
    with as_system():
        policy_rollback(now=NOW + 2 * HOUR, operator_id=None, reason="Guard: late.", is_by_guard=True)
    assert values(site) == before


@pytest.mark.parametrize(
    "act",
    [
        lambda: book(setup_fees={"spot": "1.0000"}),
        lambda: book(version=7),
        lambda: book(valid_from=NOW - HOUR),
        lambda: book(peak_weekly=[[0, 0, 24]]),
        lambda: price(per_gpu_hour=Decimal("0.01")),
        lambda: price(tier_id="spot"),
        lambda: price(profile="1g.10gb"),
        lambda: price(peak_per_gpu_hour=Decimal("9.60")),
    ],
)
def test_a_version_that_is_due_lets_through_its_own_prices_only(
    site: Site, act: Callable[[], object]
) -> None:
    number = drafted(site, scenario_of(site))
    with as_owner():
        PolicyActivation.objects.create(
            version_id=number, kind="activation", asked_at=NOW, starts=NOW, due_at=NOW
        )
        PolicyVersion.objects.filter(state="live").update(state="retired")
        PolicyVersion.objects.filter(number=number).update(state="live")
    with as_system(), transaction.atomic():
        price()
        transaction.set_rollback(True)
    assert is_refused(act)
