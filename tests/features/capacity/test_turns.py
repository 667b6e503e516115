"""Machines from the plan to the settled cost: joined, used by the project alone, and given back."""

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from allocation.features.capacity.models import CapacityMachine, CapacityPlan, CapacitySpend
from allocation.features.capacity.services import PlanTerms, plan_approve, plan_cancel, plan_create
from allocation.models import Allocation, Booking, Gpu, Node
from allocation.queries.bookings.money.statements import StatementOf, statement_lines
from allocation.rules.pools import pooled
from allocation.rules.states import State
from allocation.services.snapshot.hardware import gpus_read
from allocation.services.snapshot.snapshot import requests_of
from billing.queries import reference_totals
from billing.rules import month_of
from tenants.access import Actor
from tenants.models import KnownPerson, Membership, Project, Role, Tenant
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_tenant_admin, an_actor
from tests.builders_allocation import HOUR, NOW, Lab, a_booking, an_allocation, an_ask
from tests.features.capacity.builders import (
    FILE,
    FakeCloud,
    joined,
    machines,
    providers_file,
    states,
    turned,
)
from tests.roles import as_owner, as_system

MINUTE = timedelta(minutes=1)
NOTHING = (Decimal(0), Decimal(0))


@pytest.fixture
def cloud(settings: Any, tmp_path: Path) -> FakeCloud:  # noqa: ANN401 (pytest-django's)
    providers_file(settings, tmp_path)
    return FakeCloud()


@pytest.fixture
def lead(lab: Lab) -> Actor:
    return an_actor(a_member(lab.project, Role.LEAD))


def planned(
    lab: Lab,
    actor: Actor,
    *,
    count: int = 4,
    most: str = "60",
    hours: float = 8,
    starts: datetime | None = None,
) -> CapacityPlan:
    terms = PlanTerms(
        project=lab.project.slug,
        gpu_class="h100",
        count=count,
        starts=starts,
        until=NOW + timedelta(hours=hours),
        most_cost=Decimal(most),
    )
    with tenant_tx(lab.tenant_id):
        return plan_create(actor=actor, terms=terms, now=NOW)


def fresh(plan: CapacityPlan) -> CapacityPlan:
    with as_system():
        return CapacityPlan.objects.get(id=plan.id)


def queued(lab: Lab, *, hours: float = 1, gpus: int = 2) -> Booking:
    """A flexible booking that waits for two days."""
    booking = a_booking(
        lab.project, lab.actor.user_id, state=State.QUEUED, hours=hours, ask=an_ask(gpus, hours=hours)
    )
    with as_owner():
        Booking.objects.filter(id=booking.id).update(
            starts=None,
            planned_starts=NOW + 48 * HOUR,
            planned_ends=NOW + (48 + hours) * HOUR,
            planned_strength="expected",
            announced_from=NOW + 48 * HOUR,
            announced_until=NOW + 49 * HOUR,
        )
    return booking


def money(lab: Lab, plan: CapacityPlan) -> tuple[Decimal, Decimal]:
    """What is held and what was charged."""
    with as_system():
        return reference_totals(tenant_id=lab.tenant_id, reference=plan.id)


def charged(lab: Lab) -> list[tuple[str, Decimal, str, str]]:
    """The lines of the organisation's statement: fee, amount, project, booking."""
    with tenant_tx(lab.tenant_id):
        lines = list(statement_lines(StatementOf(lab.tenant_id, month_of(NOW.date()))))
    return [(each.fee, each.exact, each.project, each.booking) for each in lines]


def statement_text(lab: Lab) -> str:
    """The page of the month's sums by person, as an admin reads it."""
    client = Client()
    client.force_login(a_tenant_admin(lab.project.tenant).user)
    page = client.get(f"/t/{lab.project.tenant.slug}/statements", {"month": f"{NOW:%Y-%m}", "by": "person"})
    return page.content.decode()


def came(cloud: FakeCloud, lab: Lab, lead: Actor, **terms: Any) -> tuple[CapacityPlan, CapacityMachine]:  # noqa: ANN401
    """A plan with a machine that is ready."""
    plan = planned(lab, lead, **terms)
    turned(cloud, NOW)
    (machine,) = machines()
    joined(cloud, machine, NOW + MINUTE)
    turned(cloud, NOW + MINUTE)
    assert states() == ["ready"]
    return plan, machines()[0]


def ran(booking: Booking, node: Node, ends_after: timedelta, *, paid: str) -> None:
    """The booking ran on two GPUs of the node, and was charged."""
    for gpu in Gpu.objects.filter(node=node).order_by("index")[:2]:
        an_allocation(booking, gpu, starts=NOW + 2 * MINUTE, ends=NOW + ends_after, state="ended")
    with as_owner():
        for state in (State.SCHEDULED, State.STARTING, State.ACTIVE, State.ENDING):
            Booking.objects.filter(id=booking.id).update(state=state, ready_at=NOW + 2 * MINUTE)
        Booking.objects.filter(id=booking.id).update(
            state=State.ENDED, ended_at=NOW + ends_after, charged=Decimal(paid)
        )


def test_a_machine_joins_serves_its_project_alone_and_goes_back(
    cloud: FakeCloud, lab: Lab, lead: Actor
) -> None:
    booking = queued(lab, hours=0.5)
    plan, machine = came(cloud, lab, lead)
    assert money(lab, plan) == (Decimal(60), Decimal(0))
    assert (machine.cost, fresh(plan).committed) == (Decimal(12), Decimal(12))
    with as_system():
        moved = Booking.objects.select_related("tier", "series").get(id=booking.id)
        node = Node.objects.get(name=machine.node)
        # The solver knows both by a class that nobody else's booking has.
        assert (moved.pool, node.pool, moved.planned_starts) == (plan.pool, plan.pool, None)
        (request,) = requests_of([moved], NOW)
        assert request.ask.classes == (pooled("h100", plan.pool),)
        assert {each.gpu_class for each in gpus_read() if each.node == machine.node} == {
            request.ask.classes[0]
        }
        assert {each.gpu_class for each in gpus_read() if each.node != machine.node} == {"h100"}
        ran(moved, node, HOUR, paid="5")
    # Nothing is planned on it when its paid hour ends.
    turned(cloud, NOW + 40 * MINUTE)
    assert states() == ["ready"]
    turned(cloud, NOW + 60 * MINUTE)
    assert states() == ["draining"]
    turned(cloud, NOW + 60 * MINUTE)
    assert (states(), len(cloud.machines)) == (["releasing"], 0)
    turned(cloud, NOW + 60 * MINUTE)
    assert states() == ["released"]
    with as_system():
        node.refresh_from_db()
        assert (node.state, node.link_digest) == (Node.State.EXPECTED, None)
    # The machine cost 12, of which the booking paid 5.
    assert (fresh(plan).committed, fresh(plan).charged) == (Decimal(12), Decimal(7))
    assert money(lab, plan) == (Decimal(48), Decimal(7))
    assert charged(lab) == [("burst", Decimal(7), lab.project.slug, "")]
    assert "Rented machines" in statement_text(lab)
    turned(cloud, NOW + 8 * HOUR)
    assert (fresh(plan).state, money(lab, plan)) == ("ended", (Decimal(0), Decimal(7)))


def test_a_worker_that_is_killed_after_the_request_finds_its_machine_again(
    cloud: FakeCloud, lab: Lab, lead: Actor
) -> None:
    planned(lab, lead)
    cloud.loses = True
    with pytest.raises(KeyboardInterrupt):
        turned(cloud, NOW)
    (machine,) = machines()
    assert (machine.state, machine.provider_id, len(cloud.machines)) == ("requested", "", 1)
    cloud.loses = False
    turned(cloud, NOW + MINUTE)
    (machine,) = machines()
    assert (machine.state, machine.provider_id, len(cloud.machines)) == ("booting", "id-1", 1)


def test_a_machine_that_comes_twice_stays_or_is_forgotten_is_told(
    cloud: FakeCloud, lab: Lab, lead: Actor
) -> None:
    plan, machine = came(cloud, lab, lead)
    cloud.acquire(machine.name, None, "")  # type: ignore[arg-type]
    cloud.acquire(f"gpu-burst-portal-9-{'0' * 8}", None, "")  # type: ignore[arg-type]
    cloud.acquire("of-another-site", None, "")  # type: ignore[arg-type]
    turned(cloud, NOW + 2 * MINUTE)
    assert sorted(states()) == ["orphan", "orphan", "ready"]
    notes = {each.note for each in machines() if each.state == "orphan"}
    assert notes == {"No plan knows it.", "Its provider has two machines of this name."}
    # One stays at its provider after it was given back.
    cloud.keeps = {"id-1"}
    with tenant_tx(lab.tenant_id):
        plan_cancel(actor=lead, plan_id=plan.id, now=NOW + 3 * MINUTE)
    for minutes in (60, 60, 70):
        turned(cloud, NOW + minutes * MINUTE)
    (kept,) = [each for each in machines() if each.plan_id]
    assert (kept.state, "still there" in kept.note) == ("releasing", True)


def test_a_machine_that_never_comes_costs_nothing(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    plan = planned(lab, lead, hours=0.1)
    turned(cloud, NOW)
    assert fresh(plan).committed == 12
    cloud.machines.clear()
    turned(cloud, NOW + 8 * MINUTE)
    turned(cloud, NOW + 8 * MINUTE)
    turned(cloud, NOW + 8 * MINUTE)
    assert states() == ["released"]
    assert (fresh(plan).committed, fresh(plan).charged) == NOTHING
    assert money(lab, plan) == NOTHING


def test_a_node_that_doctor_refuses_takes_no_work_and_goes_back(
    cloud: FakeCloud, lab: Lab, lead: Actor
) -> None:
    planned(lab, lead)
    turned(cloud, NOW)
    (machine,) = machines()
    joined(cloud, machine, NOW + MINUTE, failed="driver's version")
    turned(cloud, NOW + MINUTE)
    (machine,) = machines()
    assert (machine.state, machine.ready) == ("draining", None)
    assert "takes no work" in machine.note


def test_a_machine_that_its_provider_takes_back_sends_its_booking_home(
    cloud: FakeCloud, lab: Lab, lead: Actor
) -> None:
    booking = queued(lab)
    plan, machine = came(cloud, lab, lead)
    with as_system():
        gpu = Gpu.objects.filter(node__name=machine.node).order_by("index").first()
        assert gpu is not None
        Booking.objects.filter(id=booking.id).update(state=State.SCHEDULED)
        Booking.objects.filter(id=booking.id).update(state=State.STARTING)
        Booking.objects.filter(id=booking.id).update(
            state=State.ACTIVE, ready_at=NOW + MINUTE, planned_starts=NOW + MINUTE, planned_ends=NOW + HOUR
        )
    an_allocation(booking, gpu, starts=NOW + MINUTE, ends=NOW + HOUR, state="active")
    cloud.machines.clear()
    turned(cloud, NOW + 5 * MINUTE)
    with as_system():
        booking.refresh_from_db()
        assert not Allocation.objects.filter(gpu=gpu, state__in=Allocation.LIVE).exists()
    assert (states(), booking.state, booking.pool) == (["lost"], State.QUEUED, "")
    assert fresh(plan).state == "active"


def test_neither_the_cap_of_machines_nor_money_is_exceeded(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    planned(lab, lead, count=16, most="100")
    turned(cloud, NOW)
    assert (len(cloud.machines), states()) == (2, ["booting", "booting"])
    (first, second) = machines()
    assert {first.slot, second.slot} == {1, 2}
    with as_system(), pytest.raises(IntegrityError), transaction.atomic():
        CapacityMachine.objects.create(
            tenant_id=lab.tenant_id, plan=first.plan, provider="cloud", name="x", slot=2, most=2,
            state="requested", requested=NOW,
        )  # fmt: skip
    with as_system(), pytest.raises(IntegrityError), transaction.atomic():
        CapacitySpend.objects.update(committed=Decimal(101))
    with as_system(), pytest.raises(IntegrityError), transaction.atomic():
        CapacityPlan.objects.update(committed=Decimal("100.01"))


def test_the_money_of_the_plan_and_of_the_month_is_a_limit(
    cloud: FakeCloud,
    lab: Lab,
    lead: Actor,
    settings: Any,  # noqa: ANN401 (pytest-django's)
    tmp_path: Path,
) -> None:
    providers_file(settings, tmp_path, FILE.replace('"100"', '"20"'))
    planned(lab, lead, count=8, most="60")
    turned(cloud, NOW)
    # A second machine would cost 24 in this month.
    assert states() == ["booting"]


def test_a_booking_that_the_plan_can_not_pay_for_stays_in_the_queue(
    cloud: FakeCloud, lab: Lab, lead: Actor
) -> None:
    booking = queued(lab, hours=5)
    came(cloud, lab, lead, most="30")
    with as_system():
        assert Booking.objects.get(id=booking.id).pool == ""


def test_a_provider_that_does_not_answer_loses_no_machine(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    came(cloud, lab, lead)
    cloud.is_down = True
    turned(cloud, NOW + 60 * MINUTE)
    assert states() == ["ready"]


def test_plans_are_asked_approved_and_refused(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    def refusal(**terms: Any) -> str:  # noqa: ANN401 (of any term)
        with pytest.raises(Refused) as found:
            planned(lab, lead, **terms)
        return found.value.code

    assert refusal(most="11") == "most_cost_too_little"
    assert refusal(hours=-1) == "bad_until"
    assert refusal(most="5000") == "budget_exceeded"
    plan = planned(lab, lab.actor)
    assert (plan.state, money(lab, plan)) == ("proposed", NOTHING)
    turned(cloud, NOW)
    assert machines() == []
    with tenant_tx(lab.tenant_id), pytest.raises(Refused, match="Only leads"):
        plan_approve(actor=lab.actor, plan_id=plan.id, now=NOW)
    with tenant_tx(lab.tenant_id):
        assert plan_approve(actor=lead, plan_id=plan.id, now=NOW).state == "active"
        assert plan_approve(actor=lead, plan_id=plan.id, now=NOW).state == "active"
    assert money(lab, plan) == (Decimal(60), Decimal(0))


def _project_closed(lab: Lab) -> None:
    Project.objects.filter(id=lab.project.id).update(is_open=False)


def _tenant_closed(lab: Lab) -> None:
    Tenant.objects.filter(id=lab.tenant_id).update(is_open=False)


def _maker_removed(lab: Lab) -> None:
    Membership.objects.filter(project=lab.project, role=Role.LEAD).delete()


def _maker_disabled(lab: Lab) -> None:
    KnownPerson.objects.filter(user__membership__role=Role.LEAD).update(disabled=NOW)


@pytest.mark.parametrize("way", [_project_closed, _tenant_closed, _maker_removed, _maker_disabled])
def test_nothing_is_rented_for_a_project_that_is_closed_or_by_who_has_left(
    cloud: FakeCloud, lab: Lab, lead: Actor, way: Callable[[Lab], None]
) -> None:
    """Neither what begins later nor what waits for an approval keeps money or rents a machine."""
    with tenant_tx(lab.tenant_id):
        KnownPerson.objects.get_or_create(tenant=lab.tenant, user_id=lead.user_id)
    later = planned(lab, lead, starts=NOW + HOUR)
    with as_system():
        way(lab)
    turned(cloud, NOW)
    turned(cloud, NOW + HOUR)
    assert (machines(), fresh(later).state, money(lab, later)) == ([], "cancelled", NOTHING)
    said = "The project is closed." if way is _project_closed else "Who made it has left."
    assert fresh(later).note == said


def test_a_plan_of_who_has_left_is_not_approved(cloud: FakeCloud, lab: Lab, lead: Actor) -> None:
    """Also before the turn that cancels it."""
    plan = planned(lab, lab.actor)
    with as_system():
        Membership.objects.filter(project=lab.project, user_id=lab.actor.user_id).delete()
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as refusal:
        plan_approve(actor=lead, plan_id=plan.id, now=NOW)
    assert (refusal.value.code, refusal.value.kind) == ("asker_left", "conflict")
    assert (fresh(plan).state, money(lab, plan)) == ("proposed", NOTHING)


def test_a_machine_of_who_has_left_is_given_back_after_what_it_paid_for(
    cloud: FakeCloud, lab: Lab, lead: Actor
) -> None:
    plan, _ = came(cloud, lab, lead)
    with as_system():
        _maker_removed(lab)
    turned(cloud, NOW + 2 * MINUTE)
    assert (fresh(plan).state, states()) == ("cancelled", ["ready"])
    for minutes in (60, 60, 60):
        turned(cloud, NOW + minutes * MINUTE)
    assert (states(), len(cloud.machines)) == (["released"], 0)
