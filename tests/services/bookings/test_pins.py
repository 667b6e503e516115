"""A booking that names its node or GPU: from the request to the row, and when the device dies."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from allocation.models import Allocation, Booking, BookingEvent, Gpu
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.decide.cycle import cycle_run
from allocation.services.quotes.earlier import Change, earlier_options, earlier_take
from allocation.services.quotes.quotes import Quote, quote_make
from allocation.services.snapshot.snapshot import snapshot_take
from allocation.words.reasons import stored_sentence
from solver.reasons.catalogue import BY_CODE
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, a_node, an_ask
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.plant import fresh

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)


@pytest.fixture
def site(real_db: Servers) -> Lab:
    """Two nodes: gpu-a1-01 with one GPU, gpu-a1-02 with two."""
    lab = a_lab("helix")
    a_node("gpu-a1-02", gpus=2)
    return lab


def pinned(*names: str, count: int = 1, not_before: datetime | None = None) -> AskDocument:
    return replace(an_ask(count, not_before=not_before), pin=names)


def asked(lab: Lab, ask: AskDocument, now: datetime = NOW) -> Booking:
    with tenant_tx(lab.tenant_id):
        return booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=now)


def quoted(lab: Lab, ask: AskDocument, now: datetime = NOW) -> Quote:
    with tenant_tx(lab.tenant_id):
        return quote_make(actor=lab.actor, request=a_booking_request(lab.project, ask), now=now)


def refused(lab: Lab, ask: AskDocument) -> Refused:
    with pytest.raises(Refused) as found:
        asked(lab, ask)
    return found.value


def cycled(now: datetime = NOW) -> None:
    with as_system():
        assert cycle_run(now).outcome in ("decided", "unchanged")


def place(booking: Booking) -> tuple[str, int, datetime]:
    with as_system():
        row = Allocation.objects.select_related("gpu__node").get(booking=booking, state__in=Allocation.LIVE)
        return row.gpu.node.name, row.gpu.index, row.period.lower


def fails(node: str, index: int) -> None:
    with as_system():
        gpus = Gpu.objects.filter(node__name=node, index=index)
        gpus.update(health=Gpu.Health.LOST, health_reason="Xid 79.")


def test_a_pin_is_stored_in_the_portals_own_names_whatever_it_was_called(site: Lab) -> None:
    with as_system():
        gpu = Gpu.objects.get(node__name="gpu-a1-02", index=1)
    for name in ("GPU-A1-02/1", gpu.uuid.lower(), str(gpu.id)):
        assert asked(site, pinned(name)).ask["pin"] == ["gpu-a1-02/1"]
    assert asked(site, pinned("Gpu-A1-02")).ask["pin"] == ["gpu-a1-02"]
    assert "pin" not in asked(site, an_ask()).ask


def test_it_is_promised_its_place_and_starts_there_as_soon_as_it_comes_free(site: Lab) -> None:
    first = asked(site, pinned("gpu-a1-02/1"))
    cycled()
    second = asked(site, pinned("gpu-a1-02/1"))
    cycled()
    assert place(first) == ("gpu-a1-02", 1, NOW)
    late = fresh(second)
    assert (late.state, late.planned_starts) == (State.QUEUED, NOW + 2 * HOUR)
    (why,) = late.reasons
    assert (why["rule"], why["code"]) == ("R78", "pinned")
    assert "other GPUs are free" in stored_sentence(why)
    with as_system():
        assert [row.pinned for row in snapshot_take(NOW + MINUTE).held] == [True]
        booking_cancel(actor=site.actor, booking=first, now=NOW + MINUTE)
    cycled(NOW + MINUTE)
    cleared = NOW + MINUTE + timedelta(seconds=5)
    assert place(second) == ("gpu-a1-02", 1, cleared)


def test_a_pinned_window_has_its_row_at_once_and_is_marked_as_not_to_be_moved(site: Lab) -> None:
    window = replace(pinned("gpu-a1-02/1"), starts=NOW + 3 * HOUR)
    booking = asked(site, window)
    cycled()
    assert fresh(booking).state == State.SCHEDULED
    with as_system():
        assert [row.pinned for row in snapshot_take(NOW + MINUTE).held] == [True]


def test_what_could_never_be_is_refused_with_its_rule_and_what_would_work(site: Lab) -> None:
    for ask, code, words in (
        (pinned("gpu-b9-99"), "pin_elsewhere", "no node or GPU called gpu-b9-99"),
        (pinned("gpu-a1-02/5"), "pin_elsewhere", "no node or GPU called gpu-a1-02/5"),
        (pinned("gpu-a1-02", count=3), "pin_too_small", "has room for 2 of them"),
        (pinned("gpu-a1-01", "gpu-a1-02/0", count=3), "pin_too_small", "has room for 2"),
    ):
        refusal = refused(site, ask)
        assert (refusal.code, refusal.rule) == (code, BY_CODE[code].id)
        assert words in refusal.sentence
        assert "pin" in refusal.sentence or "Name" in refusal.sentence
    with as_system():
        assert not Booking.objects.exists()


def test_a_quote_offers_the_start_there_and_the_one_without_the_pin(site: Lab) -> None:
    asked(site, pinned("gpu-a1-02/1"))
    cycled()
    options = quoted(site, pinned("gpu-a1-02/1"), NOW + MINUTE).options
    there, anywhere = options[:2]
    assert (there.kind, there.starts, there.nodes) == ("as_asked", NOW + 2 * HOUR, ("gpu-a1-02",))
    assert there.request == "1 h100 2h on gpu-a1-02/1"
    assert (anywhere.kind, anywhere.starts) == ("unpinned", NOW + MINUTE)
    assert anywhere.request == "1 h100 2h"
    assert "on any GPUs, without the pin" in anywhere.notes


@pytest.mark.long
def test_a_late_one_can_be_unpinned_in_one_step(site: Lab) -> None:
    asked(site, pinned("gpu-a1-02/1"))
    cycled()
    late = asked(site, pinned("gpu-a1-02/1"))
    cycled()
    with tenant_tx(site.tenant_id):
        booking = Booking.objects.select_related("project").get(id=late.id)
        (option,) = earlier_options(actor=site.actor, booking=booking, now=NOW + MINUTE)[0]
        change = Change(option.tier, option.request, option.starts)
        earlier_take(actor=site.actor, booking=booking, change=change, now=NOW + MINUTE)
    cycled(NOW + MINUTE)
    assert "pin" not in fresh(late).ask
    assert place(late)[2] == NOW + MINUTE


def test_who_is_pinned_to_a_device_that_dies_is_told_waits_for_it_and_may_be_unpinned(
    site: Lab,
) -> None:
    booking = asked(site, pinned("gpu-a1-02/1", not_before=NOW + 30 * MINUTE))
    cycled()
    fails("gpu-a1-02", 1)
    cycled(NOW + MINUTE)
    waiting = fresh(booking)
    assert waiting.state == State.QUEUED
    assert [each["code"] for each in waiting.reasons].count("pin_out") == 1
    with as_system():
        sentences = BookingEvent.objects.filter(booking=booking, kind="delayed").values_list(
            "sentence", flat=True
        )
        assert any("out of service" in sentence for sentence in sentences)
    with tenant_tx(site.tenant_id):
        row = Booking.objects.select_related("project").get(id=booking.id)
        options = earlier_options(actor=site.actor, booking=row, now=NOW + MINUTE)[0]
    assert [option.request for option in options][:1] == ["1 h100 2h from 2026-11-17 10:30"]
    with as_system():
        Gpu.objects.update(health=Gpu.Health.OK)
    cycled(NOW + 2 * MINUTE)
    assert fresh(booking).planned_starts == NOW + 30 * MINUTE
    cycled(NOW + 30 * MINUTE)
    assert place(booking) == ("gpu-a1-02", 1, NOW + 30 * MINUTE)
