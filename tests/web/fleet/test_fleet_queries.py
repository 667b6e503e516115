"""The fleet at one instant: who sees what, and what counts as measured, dark or free."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection

from allocation.models import Gpu, Node
from allocation.queries.fleet.fleet import NodeNow, Totals, fleet_now, totals_of
from allocation.queries.fleet.telemetry import utilisation_traces
from allocation.services.quotes.free_times import MIN_FREE_TIME, free_times_read
from allocation.web.fleet.tiles import Geometry, geometry, node_tile
from tenants.models import Membership
from tenants.platform.wall import operator_tx, tenant_tx
from tests.builders import a_member, a_project, a_tenant
from tests.roles import as_system
from tests.web.fleet_builders import a_booking, a_node, a_place, measured

NOW = datetime(2026, 11, 17, 10, tzinfo=UTC)

pytestmark = pytest.mark.django_db


def _totals(member: Membership) -> Totals:
    with tenant_tx(member.tenant_id):
        free = free_times_read(is_operator=False, since=NOW, until=NOW + MIN_FREE_TIME, now=NOW)
    return totals_of(_seen_by(member), free.during(NOW, NOW + MIN_FREE_TIME))


def _seen_by(member: Membership, now: datetime = NOW) -> list[NodeNow]:
    with tenant_tx(member.tenant_id):
        return fleet_now(tenant_id=member.tenant_id, now=now)


def _geometry(*profiles: tuple[str, int]) -> Geometry:
    """The geometry of a GPU with these profiles at these slots, all of one tenant."""
    member, node = a_member(a_project()), a_node(now=NOW)
    gpu = node.gpus.all()[0]
    for profile, start in profiles:
        a_place(a_booking(member, now=NOW, profile=profile), gpu, profile=profile, start=start)
    return geometry(_seen_by(member)[0].gpus[0])


def test_a_tenant_sees_its_own_booking_by_name_and_others_only_as_busy() -> None:
    mine, theirs = a_member(a_project()), a_member(a_project(a_tenant()))
    node = a_node(now=NOW, gpus=2)
    own, foreign = node.gpus.all()
    booking = a_booking(mine, now=NOW, name="ablation")
    a_place(booking, own)
    measured(a_place(a_booking(theirs, now=NOW, name="secret"), foreign), [90], now=NOW)

    found = _seen_by(mine)[0].gpus
    assert [block.label for block in found[0].blocks] == [booking.label]
    (hidden,) = found[1].blocks
    assert (hidden.label, hidden.title, hidden.tenant, hidden.busy) == ("", "", "", None)
    assert hidden.allocation is None


def test_an_operator_sees_whose_booking_it_is_and_how_busy() -> None:
    member = a_member(a_project(a_tenant(name="Helix Institute")))
    node = a_node(now=NOW, gpus=1)
    measured(a_place(a_booking(member, now=NOW), node.gpus.all()[0]), [90], now=NOW)
    with operator_tx():
        (block,) = fleet_now(tenant_id=None, now=NOW)[0].gpus[0].blocks
    assert (block.tenant, block.busy, block.mine) == ("Helix Institute", 90, False)


def test_use_that_nobody_measured_is_unknown_and_not_zero() -> None:
    member, node = a_member(a_project()), a_node(now=NOW)
    first, second = node.gpus.all()
    a_place(a_booking(member, now=NOW), first)
    measured(a_place(a_booking(member, now=NOW), second), [None, None], now=NOW)
    totals = _totals(member)
    assert totals.booked == 2
    assert totals.measured == 0
    assert totals.busy is None
    assert totals.unused == 0


def test_an_old_reading_says_nothing_about_now() -> None:
    member, node = a_member(a_project()), a_node(now=NOW)
    place = a_place(a_booking(member, now=NOW), node.gpus.all()[0])
    measured(place, [80], now=NOW - timedelta(minutes=5))
    assert _totals(member).busy is None


@pytest.mark.parametrize(
    ("values", "is_dark"),
    [
        pytest.param([0] * 15, True, id="watched for a quarter of an hour and never busy"),
        pytest.param([0] * 14 + [40], False, id="busy again just now"),
        pytest.param([40] + [0] * 13, False, id="busy once in the window"),
        pytest.param([0] * 3, False, id="watched for two minutes only"),
        pytest.param([None] * 15, False, id="never measured"),
    ],
)
def test_dark_means_watched_and_idle(values: list[int | None], is_dark: bool) -> None:  # noqa: FBT001
    member, node = a_member(a_project()), a_node(now=NOW)
    measured(a_place(a_booking(member, now=NOW), node.gpus.all()[0]), values, now=NOW)
    assert (_totals(member).unused == 1) is is_dark


def test_the_mean_is_weighted_by_the_size_of_what_was_booked() -> None:
    member, node = a_member(a_project()), a_node(now=NOW)
    first, second = node.gpus.all()
    measured(a_place(a_booking(member, now=NOW), first), [100], now=NOW)
    small = a_place(a_booking(member, now=NOW, profile="3g.40gb"), second, profile="3g.40gb")
    measured(small, [10], now=NOW)
    totals = _totals(member)
    assert totals.booked == 1.5
    assert totals.busy == 70


def test_free_counts_whole_gpus_and_left_over_slots_that_may_be_booked() -> None:
    member, node = a_member(a_project()), a_node(now=NOW, gpus=3)
    sliced, _, lost = node.gpus.all()
    a_place(a_booking(member, now=NOW, profile="3g.40gb"), sliced, profile="3g.40gb", start=4)
    with as_system():
        Gpu.objects.filter(id=lost.id).update(health=Gpu.Health.LOST)
    a_node("gpu-a1-02", now=NOW, gpus=1, state=Node.State.DRAINING)
    totals = _totals(member)
    assert (totals.gpus, totals.in_service) == (4, 2)
    assert (totals.free_whole, totals.free_slots) == (1, 4)


def test_a_booking_of_tomorrow_does_not_book_anything_now() -> None:
    member, node = a_member(a_project()), a_node(now=NOW)
    later = a_booking(member, now=NOW, starts_in=timedelta(days=1))
    a_place(later, node.gpus.all()[0])
    assert _totals(member).booked == 0


@pytest.mark.parametrize(
    ("changes", "state", "tone"),
    [
        ({}, "Healthy", "ok"),
        ({"last_seen": NOW - timedelta(seconds=31)}, "Unreachable", "wait"),
        ({"state": Node.State.DRAINING}, "Draining", "info"),
        ({"state": Node.State.QUARANTINED}, "Quarantined", "risk"),
        ({"state": Node.State.EXPECTED, "last_seen": None}, "Waiting for agent", "wait"),
    ],
)
def test_a_node_says_how_it_is(changes: dict[str, object], state: str, tone: str) -> None:
    node = a_node(now=NOW)
    with as_system():
        Node.objects.filter(id=node.id).update(**changes)
    tile = node_tile(_seen_by(a_member(a_project()))[0], NOW)
    assert (tile.state, tile.tone) == (state, tone)


def test_a_node_that_has_not_acted_on_its_document_says_how_far_it_is_behind() -> None:
    node = a_node(now=NOW)
    with as_system():
        Node.objects.filter(id=node.id).update(generation=5, observed_generation=3)
    tile = node_tile(_seen_by(a_member(a_project()))[0], NOW)
    assert tile.step == "2 changes behind"


def test_a_3g_instance_at_slot_0_strands_compute_slice_3() -> None:
    found = _geometry(("3g.40gb", 0))
    assert [(cell.span, cell.kind) for cell in found.compute[:2]] == [(3, "na mine"), (1, "x")]
    assert found.stranded == 1
    assert "1 compute slice without memory" in found.text


def test_a_3g_instance_at_slot_4_strands_nothing_because_there_are_seven_slices() -> None:
    found = _geometry(("3g.40gb", 4))
    assert found.stranded == 0
    assert [cell.kind for cell in found.compute][-2:] == ["na mine", "none"]


def test_double_memory_slices_strand_what_their_memory_took() -> None:
    found = _geometry(*(("1g.20gb", start) for start in (0, 2, 4, 6)))
    assert found.stranded == 3
    assert sum(cell.span for cell in found.memory) == 8
    assert sum(cell.span for cell in found.compute) == 8


def test_a_foreign_block_whose_place_leaves_its_compute_open_is_not_guessed() -> None:
    member, theirs = a_member(a_project()), a_member(a_project(a_tenant()))
    gpu = a_node(now=NOW).gpus.all()[0]
    a_place(a_booking(theirs, now=NOW, profile="4g.40gb"), gpu, profile="4g.40gb", start=0)
    (block,) = _seen_by(member)[0].gpus[0].blocks
    assert block.compute is None
    assert geometry(_seen_by(member)[0].gpus[0]).compute[0].text == "not known"


def test_a_trace_has_gaps_where_nothing_was_measured() -> None:
    member, node = a_member(a_project()), a_node(now=NOW)
    place = a_place(a_booking(member, now=NOW), node.gpus.all()[0])
    measured(place, [20, None, 40], now=NOW)
    with tenant_tx(member.tenant_id):
        found = utilisation_traces(
            allocations=[place.id],
            now=NOW,
            span=timedelta(minutes=4),
            step=timedelta(minutes=1),
        )[place.id]
    assert [busy for _, busy in found.points] == [None, 20, None, 40]


def test_the_door_to_other_tenants_time_tells_nothing_but_place_and_period() -> None:
    with tenant_tx(a_tenant().id), connection.cursor() as cursor:
        cursor.execute("SELECT * FROM portal_busy(%s, %s)", [NOW, NOW + timedelta(days=1)])
        columns = [column.name for column in cursor.description or ()]
    assert columns == [
        "gpu_id",
        "mode",
        "start",
        "size",
        "period_start",
        "period_end",
        "mine",
    ]


def test_what_the_nodes_have_booked_adds_up_to_the_sum_above_them() -> None:
    """Two slices on two GPUs of one node are a part of each, as they are in the sum."""
    member, node, other = a_member(a_project()), a_node(now=NOW), a_node("gpu-a1-02", now=NOW, gpus=1)
    first, second = node.gpus.all()
    for gpu, profile in ((first, "1g.10gb"), (second, "3g.40gb")):
        a_place(a_booking(member, now=NOW, profile=profile), gpu, profile=profile)
    a_place(a_booking(member, now=NOW), other.gpus.all()[0])
    with operator_tx():
        nodes = fleet_now(tenant_id=None, now=NOW)
    assert [each.booked_text for each in nodes] == ["0.625", "1"]
    totals = totals_of(nodes, ())
    assert totals.booked_text == "1.625"
    assert sum(Decimal(each.booked_text) for each in nodes) == Decimal(totals.booked_text)
