"""Slices made ahead: which are expected, on which GPUs, and what is counted."""

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

import wire
from allocation.features.demand.models import DemandForecast, SliceAhead
from allocation.features.demand.slicing import LEAST_OTHERS, slicing_turn, slicing_uses
from allocation.models import Allocation, Booking, Gpu, GpuModel, Node, Occupancy
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.policy.policies import policy_check, policy_values
from allocation.services.publish.desired import desired_documents
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking, a_policy, an_allocation, an_ask
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)
AHEAD = 336


def now_() -> datetime:
    """The present second."""
    return timezone.now().replace(microsecond=0)


@pytest.fixture
def asked(site: Site) -> datetime:
    """Ten people asked for a 2g.20gb slice at this hour of past days, and the forecast expects more."""
    now = now_()
    ask = AskDocument.from_json(an_ask(1, hours=1).to_json() | {"profile": "2g.20gb"})
    for day in range(1, 11):
        at = now - timedelta(days=day)
        booking = a_booking(
            site.project,
            site.people["researcher"].pk,
            state=State.ENDED,
            ask=ask,
            starts=at,
            now=at,
            held="0",
        )
        assert booking.ask["profile"] == "2g.20gb"
    forecast(now, 1.0)
    with as_system():
        Node.objects.update(agent_version="0.7.0")
    return now


def forecast(now: datetime, high: float) -> None:
    """So many GPUs may be asked for in each hour."""
    hour = now.astimezone(UTC).replace(minute=0, second=0)
    with as_system():
        DemandForecast.objects.filter(at=hour).delete()
        for kind in ("requested", "wanted", "in_use"):
            DemandForecast.objects.create(
                gpu_class_id="h100",
                kind=kind,
                at=hour,
                low=[0.0] * AHEAD,
                middle=[0.0] * AHEAD,
                high=[high] * AHEAD,
                hits={},
            )


def turned(now: datetime) -> list[SliceAhead]:
    """What is ordered after a turn."""
    with as_system():
        slicing_turn(now)
        return list(SliceAhead.objects.filter(closed=None).select_related("gpu"))


def prepared() -> dict[str, tuple[wire.DesiredSlice, ...]]:
    """What stands in the documents of nodes, by GPU."""
    with as_system():
        nodes = list(Node.objects.order_by("name"))
        documents = desired_documents(nodes, 1)
    return {gpu.uuid: gpu.prepared for each in documents for gpu in each.gpus if gpu.prepared}


def test_nothing_is_sliced_ahead_before_the_policy_says_so(asked: datetime) -> None:
    assert turned(asked) == []
    a_policy(slice_ahead={"h100": 0})
    assert turned(asked) == []
    assert prepared() == {}


def test_an_empty_gpu_gets_the_slice_that_is_expected_and_the_node_is_told(asked: datetime) -> None:
    a_policy(slice_ahead={"h100": 1})
    with as_system():
        before = Node.objects.get().generation
    (row,) = turned(asked)
    assert (row.profile, row.profile_id, row.size) == ("2g.20gb", 14, 2)
    with as_system():
        assert Node.objects.get().generation > before
    assert prepared() == {row.gpu.uuid: (wire.DesiredSlice(profile_id=14, slot=row.start, size=2),)}
    with as_system():
        generation = Node.objects.get().generation
    assert [each.id for each in turned(asked + MINUTE)] == [row.id], "it stays"
    with as_system():
        assert Node.objects.get().generation == generation
        Node.objects.update(agent_version="0.6.0")
    assert prepared() == {}, "an older agent would refuse its document"


def test_without_a_forecast_of_it_and_with_few_requests_nothing_is_made(site: Site, asked: datetime) -> None:
    a_policy(slice_ahead={"h100": 1})
    forecast(asked, 0.0)
    assert turned(asked) == []
    forecast(asked, 1.0)
    assert turned(asked + timedelta(hours=2)) == [], "another hour of the day"
    assert len(turned(asked)) == 1


def test_a_gpu_with_a_start_soon_is_left_alone_and_a_layout_there_is_removed(
    site: Site, asked: datetime
) -> None:
    a_policy(slice_ahead={"h100": 8})
    (row,) = turned(asked)
    with as_system():
        Gpu.objects.filter(id=row.gpu_id).update(mode="sliced")
        gpus = list(Gpu.objects.order_by("number"))
    starts = asked + 20 * MINUTE
    for gpu in gpus:
        booking = a_booking(
            site.project, site.people["lead"].pk, state=State.SCHEDULED, starts=starts, held="0.01"
        )
        an_allocation(booking, gpu, starts=starts, ends=starts + 60 * MINUTE)
    assert turned(asked + 6 * MINUTE) == []
    with as_system():
        gone, gpu = SliceAhead.objects.get(), Gpu.objects.get(id=row.gpu_id)
    assert (gone.closed, gone.taken) == (asked + 6 * MINUTE, False)
    assert gpu.mode_wanted == "whole", "it is whole again before the start"
    assert prepared() == {}


def a_start(site: Site, row: SliceAhead, opened: datetime, took: float, *, start: int | None = None) -> None:
    """A booking that started on the GPU of a slice."""
    booking = a_booking(
        site.project, site.people["researcher"].pk, state=State.ACTIVE, starts=opened, held="0.01"
    )
    slot = row.start if start is None else start
    allocation = an_allocation(
        booking, row.gpu, profile=row.profile, start=slot, starts=opened, state="planned"
    )
    with as_system():
        Allocation.objects.filter(id=allocation.id).update(state="active")
        Booking.objects.filter(id=booking.id).update(ready_at=opened + timedelta(seconds=took))
        Occupancy.objects.create(allocation=allocation, gpu=row.gpu, slots=allocation.slots, opened=opened)


def test_hits_and_the_seconds_that_they_saved_are_counted(
    site: Site, asked: datetime, client: Client
) -> None:
    a_policy(slice_ahead={"h100": 1})
    (row,) = turned(asked)
    a_start(site, row, asked + 2 * MINUTE, 3)
    turned(asked + 3 * MINUTE)
    with as_system():
        hit = SliceAhead.objects.get(id=row.id)
        assert (hit.taken, hit.closed, hit.ready_seconds) == (True, asked + 2 * MINUTE, 3)
        (use,) = slicing_uses(asked + 3 * MINUTE)
    assert (use.gpu_class, use.hits, use.misses, use.seconds_saved) == ("h100", 1, 0, None)
    with as_system():
        others = list(Gpu.objects.order_by("number").exclude(id=row.gpu_id)[:LEAST_OTHERS])
    for gpu in others:
        a_start(site, SliceAhead(gpu=gpu, profile="2g.20gb", start=0), asked - MINUTE, 11)
    with as_system():
        (use,) = slicing_uses(asked + 3 * MINUTE)
    assert use.seconds_saved == 8
    (shown,) = said(site.operator.get("capacity/slices-ahead"))["items"]
    assert (shown["hits"], shown["seconds_saved"]) == (1, 8)
    assert site.admin.get("capacity/slices-ahead").status_code == 403
    client.force_login(site.people["operator"])
    page = flat(client.get("/ops/capacity").content.decode())
    assert "Slices made ahead" in page
    assert ">8 s<" in page


def test_a_start_before_the_slice_can_be_there_or_elsewhere_is_no_hit(site: Site, asked: datetime) -> None:
    a_policy(slice_ahead={"h100": 1})
    (row,) = turned(asked)
    a_start(site, row, asked + timedelta(seconds=30), 3)
    turned(asked + 3 * MINUTE)
    with as_system():
        early = SliceAhead.objects.get(id=row.id)
        assert (early.taken, early.closed) == (False, asked + timedelta(seconds=30))


def test_the_policy_names_classes_and_changes_no_decision(site: Site) -> None:
    with as_system():
        assert policy_check({"slice_ahead": {"h100": 2}}, now_()) == 0
    assert policy_values({})["slice_ahead"] == {}
    with as_owner():
        assert SliceAhead.objects.count() == 0


def by_reset() -> None:
    """The model of the GPUs changes its mode by a reset of 90 s, as an A100 does."""
    with as_owner():
        GpuModel.objects.update(mode_switch="reset", switch_seconds=90)


def modes(row: SliceAhead) -> tuple[str, str]:
    """The mode of a row's GPU, and the one that is requested."""
    with as_system():
        gpu = Gpu.objects.get(id=row.gpu_id)
    return gpu.mode, gpu.mode_wanted


def test_a_gpu_is_reset_hours_ahead_and_counts_as_made_after_its_reset(site: Site, asked: datetime) -> None:
    by_reset()
    a_policy(slice_ahead={"h100": 1})
    before = asked - timedelta(hours=3)
    forecast(before, 1.0)
    with as_system():
        # Asked for at the same hours, so that the average over four hours is one for each.
        assert turned(before - timedelta(hours=2)) == [], "five hours before"
    (row,) = turned(before)
    assert modes(row) == ("whole", "sliced")
    assert row.reset_seconds == 90
    assert [each.id for each in turned(before + MINUTE)] == [row.id], "a reset in progress stays"
    with as_system():
        Gpu.objects.filter(id=row.gpu_id).update(mode="sliced", mode_wanted="", mode_wanted_at=None)
    assert [each.id for each in turned(before + 5 * MINUTE)] == [row.id]
    a_start(site, row, before + 2 * MINUTE, 3)
    turned(before + 6 * MINUTE)
    with as_system():
        assert SliceAhead.objects.get(id=row.id).taken is False, "the reset and a minute were not over"


def test_no_gpu_is_reset_while_all_empty_ones_may_be_asked_for(site: Site, asked: datetime) -> None:
    by_reset()
    a_policy(slice_ahead={"h100": 1})
    with as_system():
        count = Gpu.objects.filter(gpu_class="h100").count()
    forecast(asked, float(count))
    assert turned(asked) == []
    forecast(asked, count - 1.0)
    (row,) = turned(asked)
    forecast(asked, float(count))
    assert [each.id for each in turned(asked + MINUTE)] == [row.id], "the reset is not taken back for it"


def test_a_gpu_that_was_reset_for_nothing_is_whole_again(site: Site, asked: datetime) -> None:
    by_reset()
    a_policy(slice_ahead={"h100": 1})
    (row,) = turned(asked)
    a_policy(slice_ahead={"h100": 0})
    assert turned(asked + MINUTE) == []
    assert modes(row) == ("whole", ""), "the reset had not begun"
    a_policy(slice_ahead={"h100": 1})
    (row,) = turned(asked + 2 * MINUTE)
    with as_system():
        Gpu.objects.filter(id=row.gpu_id).update(mode="sliced", mode_wanted="", mode_wanted_at=None)
    a_policy(slice_ahead={"h100": 0})
    assert turned(asked + 3 * MINUTE) == []
    assert modes(row) == ("sliced", "whole")


def test_a_whole_booking_on_the_gpu_ends_the_request_for_slices(site: Site, asked: datetime) -> None:
    by_reset()
    a_policy(slice_ahead={"h100": 1})
    (row,) = turned(asked)
    whole = SliceAhead(gpu=row.gpu, start=0)
    whole.profile = None  # type: ignore[assignment]
    a_start(site, whole, asked + MINUTE, 3)
    assert row.gpu_id not in {each.gpu_id for each in turned(asked + 2 * MINUTE)}
    assert modes(row) == ("whole", "")


def test_a_reset_ahead_saves_its_seconds_once_for_a_gpu(site: Site, asked: datetime) -> None:
    """Three slices of one reset were taken, and one of another; what nobody took saved nothing."""
    with as_system():
        gpus = list(Gpu.objects.order_by("number")[:3])
        rows = [
            (gpus[0], 0, True),
            (gpus[0], 2, True),
            (gpus[0], 4, True),
            (gpus[1], 0, True),
            (gpus[2], 0, False),
        ]
        for gpu, start, taken in rows:
            SliceAhead.objects.create(
                gpu=gpu,
                profile="2g.20gb",
                profile_id=14,
                start=start,
                size=2,
                ordered=asked,
                closed=asked + MINUTE,
                taken=taken,
                reset_seconds=90,
            )
    a_policy(slice_ahead={"h100": 1})
    (row,) = said(site.operator.get("capacity/slices-ahead"))["items"]
    assert (row["hits"], row["reset_seconds_saved"]) == (4, 180)
    client = Client()
    client.force_login(site.people["operator"])
    assert "and 180 s of resets" in flat(client.get("/ops/capacity").content.decode())
