"""A planned outage of the portal: work on lease outlives it, and is never in two places."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from io import StringIO
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.utils import timezone

import wire
from agent.act.leases import MARGIN_S, Leases
from allocation.models import Node, PortalMode
from allocation.queries.fleet.portal_modes import mode_in_force
from allocation.rules.nodes.leases import (
    GRACE_SECONDS,
    LEASE_EXPIRY_SECONDS,
    LONGEST_OUTAGE,
    MARGIN_SECONDS,
    TTL_SECONDS,
    LongLeases,
    lease_seconds,
)
from allocation.services.decide.invariants import invariants_check
from allocation.services.inbox import consumer
from allocation.services.inbox.batch import StreamMessage, messages_apply
from allocation.services.inbox.consumer import Reader
from allocation.services.nodes.leases import long_leases_end
from allocation.services.operate.portal_modes import (
    FREEZE,
    OUTAGE,
    NodeLease,
    leases_of_nodes,
    mode_end,
    outage_begin,
    outage_close,
)
from tenants.models import AuditEntry, User
from tenants.platform.errors import Refused
from tests.builders import an_operator
from tests.builders_allocation import NOW, Lab, a_lab
from tests.roles import as_system
from tests.services.nodes.test_leases import OTHER, on_lease, watched
from tests.services.plant import NAME, Plant, Steady, fresh, rows_of

pytestmark = pytest.mark.turn

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


@pytest.fixture
def lab(plant: Plant) -> Lab:
    return a_lab("helix", gpus=0)


@pytest.fixture
def operator(plant: Plant) -> User:
    return an_operator()


def announced(plant: Plant, operator: User, length: timedelta) -> PortalMode:
    """An outage whose longer leases every agent has."""
    with as_system():
        mode = outage_begin(operator=operator, length=length, reason="0.7", now=plant.now)
    for _ in range(2):
        plant.later(SECOND * 5)
    return mode


def leases(plant: Plant, mode: PortalMode) -> dict[str, NodeLease]:
    with as_system():
        return {each.node: each for each in leases_of_nodes(mode, plant.now)}


def stopped(plant: Plant, length: timedelta) -> None:
    """No program of the portal runs, and the node continues alone; then another reader starts."""
    for _ in range(int(length / (SECOND * 5))):
        plant.agent.wait_s()
        plant.now += SECOND * 5
        plant.node_works()
    plant.reader = Reader("the new one", clock=lambda: plant.now, steady=Steady(plant))
    plant.round()


def long_lease() -> int:
    with as_system():
        return Node.objects.get(name=NAME).outage_lease_seconds


def test_no_run_ends_while_the_portal_is_upgraded(plant: Plant, lab: Lab, operator: User) -> None:
    booking = on_lease(plant, lab)
    mode = announced(plant, operator, MINUTE * 20)
    lease = leases(plant, mode)[NAME]
    assert (lease.state, lease.holds_work, lease.is_safe) == ("confirmed", True, True)
    stopped(plant, MINUTE * 19)
    plant.later(SECOND * 5)
    assert fresh(booking).state == "active"
    assert (fresh(booking).replacement_count, fresh(booking).pause_count) == (0, 0)
    assert len(rows_of(booking)) == 1
    with as_system():
        assert Node.objects.get(name=NAME).conflicts == 0
        assert invariants_check() == []


def test_without_one_the_same_outage_ends_it(plant: Plant, lab: Lab) -> None:
    """The negative control."""
    booking = on_lease(plant, lab)
    stopped(plant, SECOND * 30)
    plant.later(SECOND * 5)
    assert fresh(booking).replacement_count == 1


def test_a_portal_that_was_away_blames_no_node_for_it(plant: Plant, lab: Lab) -> None:
    """Not even for minutes, though all that its agent said meanwhile is read at one time."""
    booking = on_lease(plant, lab)
    said: list[tuple[datetime, wire.Envelope]] = []
    for _ in range(36):
        plant.agent.wait_s()
        plant.now += SECOND * 5
        before = len(plant.line.said)
        plant.node_works()
        said += [(plant.now, envelope) for envelope in plant.line.said[before:]]
    with as_system():
        messages_apply([StreamMessage(NAME, each, plant.now - at) for at, each in said], plant.now)
        assert Node.objects.get(name=NAME).conflicts == 0
    assert fresh(booking).replacement_count == 1


@pytest.mark.long
def test_usual_leases_come_back_when_it_is_over_though_nobody_ends_it(
    plant: Plant, lab: Lab, operator: User
) -> None:
    booking = on_lease(plant, lab)
    announced(plant, operator, MINUTE)
    assert long_lease() >= 60
    for _ in range(15):
        plant.later(SECOND * 5)
    with as_system():
        assert mode_in_force(OUTAGE, plant.now) is None
    # What was granted may still run: it is counted until it can't any more.
    assert long_lease() >= 60
    for _ in range(20):
        plant.later(SECOND * 5)
    assert long_lease() == 0
    stopped(plant, SECOND * 30)
    plant.later(SECOND * 5)
    assert fresh(booking).replacement_count == 1


def test_a_long_lease_that_was_granted_again_is_not_forgotten(plant: Plant, lab: Lab, operator: User) -> None:
    on_lease(plant, lab)
    announced(plant, operator, MINUTE)
    plant.later(10 * SECOND)
    with as_system():
        node = Node.objects.get(name=NAME)
        long_leases_end({node.id: node.outage_lease_seq - 1})
    assert long_lease() >= 60
    with as_system():
        long_leases_end({node.id: node.outage_lease_seq})
    assert long_lease() == 0


@pytest.mark.long
def test_work_of_a_node_that_is_lost_waits_for_its_longer_lease(
    plant: Plant, lab: Lab, operator: User
) -> None:
    booking = on_lease(plant, lab)
    announced(plant, operator, MINUTE)
    plant.line.can_send = plant.line.can_receive = False
    # The reader that comes back knows of it by the database alone.
    plant.reader = Reader("the new one", clock=lambda: plant.now, steady=Steady(plant))
    for _ in range(12):
        plant.later(SECOND * 5)
    seen = watched(plant, booking, TTL_SECONDS + MARGIN_SECONDS + GRACE_SECONDS + 8)
    assert seen[0].here
    assert seen[-1].elsewhere
    assert not [second for second in seen if second.here and second.elsewhere]


def test_counted_as_usual_it_would_run_twice(
    plant: Plant, lab: Lab, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: a reader that knows of no longer leases."""

    def none() -> Mapping[UUID, tuple[int, int]]:
        return {}

    monkeypatch.setattr(consumer, "long_leases", none)
    booking = on_lease(plant, lab)
    announced(plant, operator, MINUTE)
    plant.line.can_send = plant.line.can_receive = False
    seen = watched(plant, booking, LEASE_EXPIRY_SECONDS + 8)
    assert [second for second in seen if second.here and second.elsewhere]


def test_agents_that_are_too_old_to_confirm_get_the_longer_lease_too(
    plant: Plant, lab: Lab, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking = on_lease(plant, lab)

    def not_said(_: Leases, __: float) -> int:
        return 0

    monkeypatch.setattr(Leases, "remaining", not_said)
    with as_system():
        Node.objects.update(agent_version="0.5.0")
    mode = announced(plant, operator, MINUTE * 5)
    lease = leases(plant, mode)[NAME]
    assert (lease.state, lease.is_safe) == ("too_old", False)
    assert wire.Heartbeat(seq=1, observed_generation=1, sent_at=1).lease == 0
    stopped(plant, MINUTE * 4)
    assert fresh(booking).replacement_count == 0


def test_a_node_that_is_not_heard_is_named_with_what_that_means(
    plant: Plant, lab: Lab, operator: User
) -> None:
    on_lease(plant, lab)
    plant.line.can_send = False
    plant.now += SECOND * 16
    with as_system():
        mode = outage_begin(operator=operator, length=MINUTE * 5, reason="0.7", now=plant.now)
    lease = leases(plant, mode)[NAME]
    assert (lease.state, lease.is_safe) == ("not_heard", False)
    assert "starts again elsewhere" in lease.means


def test_the_command_waits_for_agents_and_says_who_has_not_confirmed(
    plant: Plant, lab: Lab, operator: User
) -> None:
    on_lease(plant, lab)
    plant.now = timezone.now()
    with pytest.raises(CommandError, match="Do not stop"), as_system():
        call_command("outage", "begin", operator=operator.username, wait=0, stdout=StringIO())
    with as_system():
        mode = mode_in_force(OUTAGE, timezone.now())
        assert mode is not None
        assert mode.closed_at is None
    said = StringIO()
    with as_system():
        call_command("outage", "begin", operator=operator.username, wait=0, anyway=True, stdout=said)
        assert f"{NAME} (has work on lease)" in said.getvalue()
        mode = mode_in_force(OUTAGE, timezone.now())
        assert mode is not None
        assert mode.closed_at is not None
        call_command("outage", "end", operator=operator.username, stdout=said)
        actions = AuditEntry.objects.filter(action__startswith="outage.").order_by("id")
        assert list(actions.values_list("action", "actor__username")) == [
            (f"outage.{what}", operator.username) for what in ("begun", "begun", "closed", "ended")
        ]
        with pytest.raises(CommandError, match="no planned outage"):
            call_command("outage", "end", operator=operator.username)
        with pytest.raises(CommandError, match="--operator must be"):
            call_command("outage", "end", operator="nobody")


@pytest.mark.parametrize("length", [SECOND * 59, LONGEST_OUTAGE + SECOND, -MINUTE])
@pytest.mark.django_db
def test_an_outage_has_a_sane_length(length: timedelta) -> None:
    with as_system(), pytest.raises(Refused) as refused:
        outage_begin(operator=an_operator(), length=length, reason="x", now=NOW)
    assert refused.value.code == "outage_length"


@pytest.mark.django_db
def test_there_is_one_of_each_kind_and_it_is_over_by_itself() -> None:
    operator = an_operator()
    with as_system():
        first = outage_begin(operator=operator, length=MINUTE, reason="x", now=NOW)
        second = outage_begin(operator=operator, length=MINUTE * 9, reason="y", now=NOW + SECOND)
        first.refresh_from_db()
        assert first.ended_at == NOW + SECOND
        assert mode_in_force(OUTAGE, NOW + MINUTE * 5) == second
        assert mode_in_force(OUTAGE, NOW + MINUTE * 10) is None
        with pytest.raises(Refused, match="no planned outage"):
            outage_close(operator=operator, now=NOW + MINUTE * 10)
        with pytest.raises(Refused, match="no freeze"):
            mode_end(kind=FREEZE, operator=operator, now=NOW)
        with pytest.raises(Refused, match="Enter a reason"):
            outage_begin(operator=operator, length=MINUTE, reason=" ", now=NOW)
        with pytest.raises(IntegrityError), transaction.atomic():
            PortalMode.objects.create(
                kind=OUTAGE, since=NOW, until=NOW + MINUTE, reason="z", begun_by=operator
            )


def test_a_lease_lasts_through_the_outage_whatever_the_clock_says() -> None:
    assert lease_seconds(None, NOW) == lease_seconds(NOW, NOW) == TTL_SECONDS
    assert lease_seconds(NOW + MINUTE, NOW) == 60 + TTL_SECONDS
    back = lease_seconds(NOW + MINUTE, NOW - timedelta(days=365))
    assert back == LONGEST_OUTAGE.total_seconds() + TTL_SECONDS
    assert TTL_SECONDS > MARGIN_S


def test_a_watcher_counts_longer_leases_from_what_it_has_seen_itself() -> None:
    watch: LongLeases[str] = LongLeases()
    assert watch.over({NAME: (7, 100), OTHER: (1, 10)}, 1000.0) == {}
    wait = 100 + MARGIN_SECONDS + GRACE_SECONDS
    assert watch.over({NAME: (7, 100), OTHER: (1, 10)}, 1000.0 + wait) == {OTHER: 1}
    assert watch.over({NAME: (8, 100)}, 1000.5 + wait) == {}
    assert watch.over({NAME: (8, 100)}, 1001.0 + 2 * wait) == {NAME: 8}
