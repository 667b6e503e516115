"""Who is ahead of a waiting booking, by which key, and who has its GPUs until when."""

from dataclasses import replace
from datetime import UTC, timedelta
from uuid import UUID

import pytest

from allocation.models import Booking, MovedStart, QueuePlace
from allocation.queries.bookings.queue_ahead import queue_ahead
from allocation.rules.ask import AskDocument
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.decide.cycle import cycle_run
from allocation.services.decide.leading import queue_places
from allocation.services.quotes.why_waiting import WhyWaiting, waits_seen, why_waiting
from allocation.web.parts.planned_start import ahead_lines, holder_lines
from billing.models import PriceBook
from solver.model.policy import ORDER_KEYS
from tenants.models import Quota, Tier
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_project, a_tier, an_actor
from tests.builders_allocation import NOW, Lab, a_booking_request, a_budget, a_lab, an_ask
from tests.prices import price_add
from tests.roles import as_system
from tests.servers.servers import Servers

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)


@pytest.fixture
def labs(real_db: Servers) -> tuple[Lab, Lab]:
    """Two organisations that borrow two GPUs. What runs is protected for longer than it runs."""
    labs = a_lab("helix", gpus=2), a_lab("rivals", gpus=0)
    a_tier("urgent", priority=90)
    with as_system():
        Quota.objects.update(guaranteed_units=0, borrow_limit_units=None)
        Tier.objects.update(pausable=True, protected_seconds=86_400)
        book = PriceBook.objects.get()
        price_add(book=book, gpu_class_id="h100", tier_id="urgent", per_gpu_hour=5)
    return labs


def booked(lab: Lab, minute: int, tier: str = "standard", ask: AskDocument | None = None) -> Booking:
    request = a_booking_request(lab.project, ask or an_ask(2), tier=tier)
    with as_system():
        return booking_request(actor=lab.actor, request=request, now=NOW + minute * MINUTE)


def decided(minute: int) -> None:
    with as_system():
        assert cycle_run(NOW + minute * MINUTE).outcome == "decided"


def why(booking: Booking, minute: int) -> WhyWaiting:
    with tenant_tx(booking.tenant_id):
        return why_waiting(Booking.objects.get(id=booking.id), NOW + minute * MINUTE)


def assert_numbers_are_for_who_sees_the_project(lab: Lab, found: WhyWaiting) -> None:
    """A lead of another project, or a token of one, reads how many and until when."""

    def seen_with(roles: dict[UUID, str]) -> WhyWaiting:
        reader = replace(lab.actor, is_tenant_admin=False, roles=roles)
        with tenant_tx(lab.tenant_id):
            return waits_seen(reader, found)

    assert seen_with({lab.project.id: "viewer"}) == found
    seen = seen_with({a_project(lab.tenant, "elsewhere").id: "lead"})
    assert [each.count for each in seen.ahead] == [each.count for each in found.ahead]
    assert {each.labels for each in seen.ahead} == {()}
    assert [(each.label, each.is_own) for each in seen.holders] == [("", True)]
    assert "BK-" not in " ".join(ahead_lines(seen.ahead) + holder_lines(seen.holders, UTC, NOW))


def test_who_is_ahead_is_named_inside_the_organisation_only(labs: tuple[Lab, Lab]) -> None:
    lab, rival = labs
    first = booked(lab, 0, ask=an_ask(2, hours=4))
    decided(0)
    mine, urgent = booked(lab, 2), booked(lab, 3, "urgent")
    earlier, theirs = booked(lab, 1), booked(rival, 4)
    decided(5)

    found = why(mine, 5)
    ahead = {(each.rule, each.is_own): (each.count, each.labels) for each in found.ahead}
    assert ahead == {
        ("tier", True): (1, (urgent.label,)),
        # Its share counts what the same person has ahead, so no share is the criterion.
        ("age", True): (1, (earlier.label,)),
        ("share", False): (1, ()),
    }
    assert [each.sentence for each in found.ahead if not each.is_own] == [
        "1 booking of another organisation: their organisation has used less recently."
    ]
    assert [each.code for each in found.changes] == [
        "own",
        "higher_tier",
        "share",
        "early_end",
    ]
    assert found.changes[1].sentence == "A higher tier goes first: Urgent."
    assert [(each.label, each.is_own) for each in found.holders] == [(earlier.label, True)], (
        "the last on its GPUs before it"
    )
    assert {(each.rule, each.labels) for each in why(theirs, 5).ahead} == {("tier", ())}
    assert [each.label for each in why(urgent, 5).holders] == [first.label]
    assert_numbers_are_for_who_sees_the_project(lab, found)
    with as_system():
        row = Booking.objects.get(id=mine.id)
        (whole, *_), halves = row.planned_places, [{"start": 0, "size": 4}, {"start": 4, "size": 4}]
        row.planned_places = [{**whole, **each} for each in halves]
        row.save(update_fields=["planned_places"])
    assert [each.gpus for each in why(mine, 5).holders] == [1], "two slices are of one GPU"
    with tenant_tx(rival.tenant.id):
        assert queue_ahead(mine, ORDER_KEYS) == (), "another tenant's booking has no answer"


def test_places_follow_each_decision_and_go_with_their_bookings(labs: tuple[Lab, Lab]) -> None:
    lab, rival = labs
    booked(lab, 0, ask=an_ask(2, hours=4))
    decided(0)
    mine, theirs = booked(lab, 1), booked(rival, 2)
    decided(2)
    assert [each.count for each in why(mine, 2).ahead] == [1]
    with as_system():
        keys = dict(QueuePlace.objects.values_list("booking_id", "key"))
        booking_cancel(actor=rival.actor, booking=theirs, now=NOW + 3 * MINUTE)
    assert keys.keys() == {mine.id, theirs.id}
    assert why(mine, 3).ahead == (), "a cancelled booking is not ahead, before any decision"
    queue_places.forget()
    late = booked(lab, 4)
    decided(4)
    with as_system():
        assert set(QueuePlace.objects.values_list("booking_id", flat=True)) == {mine.id, late.id}


def test_a_receipt_names_the_own_booking_that_goes_first(labs: tuple[Lab, Lab]) -> None:
    lab, rival = labs
    booked(lab, 0, ask=an_ask(2, hours=4))
    decided(0)
    mine = booked(lab, 1)
    decided(1)
    theirs = booked(rival, 2)
    decided(2)
    urgent = booked(lab, 3, "urgent")
    decided(3)
    with as_system():
        receipts = MovedStart.objects.filter(booking=mine).order_by("id")
        assert [(row.overtaken_by, row.is_own, row.claimant_id) for row in receipts] == [
            ("share", False, None),
            ("tier", True, urgent.id),
        ]
        (other,) = MovedStart.objects.filter(booking=theirs)
    assert (other.overtaken_by, other.is_own, other.claimant_id) == ("tier", False, None)
    assert str(urgent.id) not in str(other.reason)


def test_another_person_of_the_organisation_goes_first_by_share(labs: tuple[Lab, Lab]) -> None:
    lab, _ = labs
    other = a_project(lab.tenant)
    booked(lab, 0, ask=an_ask(2, hours=4))
    decided(0)
    a_budget(other)
    actor = an_actor(a_member(other))
    mine = booked(replace(lab, project=other, actor=actor), 1)
    same = booked(lab, 2)
    decided(2)
    assert [(each.rule, each.labels) for each in why(same, 2).ahead] == [("share", (mine.label,))]
