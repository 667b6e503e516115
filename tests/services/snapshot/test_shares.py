"""Shares of a GPU in the database: at most a whole GPU, and never with whole or sliced use."""

import psycopg
import pytest
from django.db import IntegrityError, transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from allocation.models import Allocation, Gpu, Node, Occupancy
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.invariants import invariants_check
from allocation.services.quotes.quotes import quote_make
from allocation.services.snapshot.published import published_snapshot
from allocation.services.snapshot.snapshot import snapshot_take
from solver import Policy
from tenants.platform.wall import tenant_tx
from tests.builders_allocation import (
    HOUR,
    NOW,
    PRICE,
    Lab,
    a_booking,
    a_booking_request,
    a_lab,
    a_policy,
    a_row,
    a_share_row,
    an_ask,
)
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.plant import Plant, fresh


def given(lab: Lab, *rows: tuple[int, float, float]) -> list[bool]:
    """Which of the rows (thousandths, from hour, until hour) the database took, one by one."""
    return [write(lab, *row) for row in rows]


def write(lab: Lab, share: int, since: float, until: float) -> bool:
    booking = a_booking(lab.project, lab.actor.user_id)
    window = {"starts": NOW + since * HOUR, "ends": NOW + until * HOUR}
    with as_system():
        gpu = Gpu.objects.get()
        row = a_share_row(booking, gpu, share, **window)
        Allocation.objects.bulk_create([row], ignore_conflicts=True)
        return Allocation.objects.filter(id=row.id).exists()


def broken() -> list[str]:
    with as_system():
        return [each.name for each in invariants_check() if each.promise in ("P1", "P2")]


def test_shares_lie_beside_each_other_up_to_a_whole_gpu_at_every_instant(lab: Lab) -> None:
    assert given(lab, (600, 0, 2), (400, 0, 1), (400, 1, 2), (1, 0, 2)) == [True, True, True, False]
    assert given(lab, (999, 2, 3), (1, 2, 4), (1, 2, 3)) == [True, True, False]


def test_a_window_that_meets_two_others_one_after_the_other_is_judged_by_the_fuller(
    lab: Lab,
) -> None:
    assert given(lab, (300, 0, 1), (700, 1, 2), (400, 0, 2), (300, 0, 2)) == [
        True,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("profile", [None, "1g.10gb"])
def test_a_gpu_is_never_shared_beside_whole_or_sliced(lab: Lab, profile: str | None) -> None:
    assert write(lab, 100, 0, 1)
    booking = a_booking(lab.project, lab.actor.user_id)
    with as_system():
        row = a_row(booking, Gpu.objects.get(), profile=profile)
        Allocation.objects.bulk_create([row], ignore_conflicts=True)
        assert not Allocation.objects.filter(id=row.id).exists()


def test_a_share_that_would_be_prolonged_into_a_full_gpu_is_an_error(lab: Lab) -> None:
    assert given(lab, (600, 0, 1), (600, 1, 2)) == [True, True]
    with as_system():
        first = Allocation.objects.get(period__startswith=NOW)
        first.period = DateTimeTZRange(NOW, NOW + 2 * HOUR)
        with pytest.raises(IntegrityError, match="exceed the whole"), transaction.atomic():
            first.save()


def test_an_ended_share_is_out_of_the_sum(lab: Lab) -> None:
    assert write(lab, 900, 0, 1)
    with as_system():
        Allocation.objects.update(state=Allocation.State.SUPERSEDED)
    assert write(lab, 900, 0, 1)


def test_what_is_on_the_hardware_is_counted_like_what_is_planned(lab: Lab) -> None:
    rows = []
    for hour, share in ((0, 600), (2, 400), (4, 1)):
        assert write(lab, share, hour, hour + 1)
        with as_system():
            rows.append(Allocation.objects.latest("period"))
    with as_system():
        Occupancy.objects.bulk_create(
            [
                Occupancy(allocation=r, gpu_id=r.gpu_id, slots=r.slots, share=r.share, opened=NOW)
                for r in rows
            ],
            ignore_conflicts=True,
        )
        assert set(Occupancy.objects.values_list("share", flat=True)) == {600, 400}
        whole = Occupancy(allocation=rows[2], gpu_id=rows[2].gpu_id, slots=rows[2].slots, opened=NOW)
        Occupancy.objects.bulk_create([whole], ignore_conflicts=True)
        assert Occupancy.objects.count() == 2


def test_the_control_without_the_triggers_a_gpu_is_shared_beyond_the_whole(
    real_db: Servers,
) -> None:
    lab = a_lab("helix")
    assert given(lab, (600, 0, 2), (600, 1, 3)) == [True, False]
    assert broken() == []
    with psycopg.connect(real_db.owner_dsn) as owner:
        owner.execute("DROP TRIGGER shares_fit ON allocation_allocation")
    assert write(lab, 600, 1, 3)
    assert broken() == ["a GPU shared beyond the whole"]


def test_the_cycle_sees_shares_cores_and_memory(real_db: Servers) -> None:
    lab = a_lab("helix")
    ask = an_ask(share=250, cores=4, memory=16)
    booking = a_booking(lab.project, lab.actor.user_id, ask=ask, state="scheduled")
    with as_system():
        gpu = Gpu.objects.get()
        gpu.node.cores, gpu.node.memory_mb = 64, 262_144
        gpu.node.save()
        a_share_row(booking, gpu, 250).save(force_insert=True)
        snapshot = snapshot_take(NOW)
    (held,), (host,) = snapshot.held, snapshot.hosts
    assert (held.place.share, held.cores, held.memory) == (250, 4_000, 16_384)
    assert (host.cores, host.memory) == (64_000, 262_144)


def test_a_quote_of_a_share_knows_what_others_have_and_says_that_it_is_not_isolated(
    real_db: Servers,
) -> None:
    lab, other = a_lab("helix"), a_lab("orbit")
    a_policy(share_owners=2)
    assert write(other, 800, 0, 2)
    with tenant_tx(lab.tenant_id):
        shared = quote_make(
            actor=lab.actor, request=a_booking_request(lab.project, an_ask(share=200)), now=NOW
        )
        request = a_booking_request(lab.project, an_ask(share=250))
        later = quote_make(actor=lab.actor, request=request, now=NOW)
        assert [row.place.share for row in published_snapshot(NOW, Policy(1)).held] == [800]
    assert shared.options[0].starts == NOW
    assert "Shared with others, not isolated" in shared.options[0].notes
    assert shared.options[0].request.startswith("0.2 h100 2h")
    assert shared.options[0].price * 5 == later.options[0].price * 4
    assert later.options[0].starts == NOW + 2 * HOUR
    a_policy()
    with tenant_tx(lab.tenant_id):
        alone = quote_make(
            actor=lab.actor, request=a_booking_request(lab.project, an_ask(share=200)), now=NOW
        )
    assert alone.options[0].starts == NOW + 2 * HOUR


def test_two_shares_and_their_money_through_a_cycle(plant: Plant) -> None:
    lab = a_lab("helix", gpus=0)
    with as_system():
        request = a_booking_request(lab.project, an_ask(share=400, cores=2))
        one, two = (booking_request(actor=lab.actor, request=request, now=plant.now) for _ in range(2))
        assert one.hold_amount == 2 * PRICE * 4 / 10
    plant.cycle()
    with as_system():
        rows = list(Allocation.objects.filter(booking__in=[one, two]))
        assert {(row.mode, row.share, row.units) for row in rows} == {("shared", 400, 22_400)}
        assert len({row.gpu_id for row in rows}) == 1
        assert Occupancy.objects.filter(closed=None).count() == 2
    assert {fresh(one).state, fresh(two).state} == {"starting"}
    assert broken() == []
    plant.round()
    assert {fresh(one).state, fresh(two).state} == {"active"}
    with as_system():
        assert Gpu.objects.filter(mode="whole").count() == 2


def test_a_node_whose_agent_is_too_old_takes_no_shares_and_keeps_its_document(
    plant: Plant,
) -> None:
    lab = a_lab("helix", gpus=0)
    with as_system():
        Node.objects.update(agent_version="0.2.0")
        assert {gpu.shares for gpu in snapshot_take(plant.now).gpus} == {False}
        whole = booking_request(actor=lab.actor, request=a_booking_request(lab.project, an_ask()), now=NOW)
        Node.objects.update(agent_version="0.3.0")
        assert {gpu.shares for gpu in snapshot_take(plant.now).gpus} == {True}
        Node.objects.update(agent_version="0.2.0")
    plant.cycle()
    assert fresh(whole).state == "starting"
