"""Work on classes of different speed: how long, for how much, and on which."""

from datetime import timedelta
from decimal import Decimal

import pytest

from allocation.models import Booking, Decision, Gpu, WorkSpeed
from allocation.rules.ask import AskDocument
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.cycle import cycle_run
from allocation.services.decide.replay import decision_replay
from allocation.services.plans.restraints import restraints_apply, restraints_due
from allocation.services.quotes.quotes import quote_make
from allocation.services.record.workloads import durations_of, speeds_set
from allocation.services.snapshot.snapshot import snapshot_take
from billing.services import Rung, ladder_set
from tenants.models import AuditEntry
from tenants.platform.errors import Refused
from tenants.platform.wall import operator_tx, tenant_tx
from tests.builders import a_gpu_class, a_quota, an_operator
from tests.builders_allocation import (
    HOUR,
    NOW,
    Lab,
    a_booking,
    a_booking_request,
    a_lab,
    a_model,
    a_node,
    an_allocation,
)
from tests.prices import price_book_publish
from tests.roles import as_owner, as_system
from tests.servers.servers import Servers
from tests.services.paused import story
from tests.services.plant import fresh

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)
LATER = NOW + HOUR + MINUTE


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    """One H100 at 8 an hour and one L40S at 2, on which training takes three times as long."""
    lab = a_lab("helix")
    slow = a_model("l40s-48gb", product="NVIDIA L40S", enrolled=False)
    node = a_node("gpu-c1-01", gpus=1)
    a_quota(lab.tenant, a_gpu_class("l40s"), guaranteed=4, limit=4)
    with as_system():
        Gpu.objects.filter(node=node).update(model=slow, gpu_class=slow.gpu_class)
        prices = {("h100", "standard"): Decimal(8), ("l40s", "standard"): Decimal(2)}
        price_book_publish(actor_id=None, valid_from=NOW + HOUR, prices=prices, now=NOW)
        for name, thousandths in (("h100", 1000), ("l40s", 333)):
            WorkSpeed.objects.create(workload="training", gpu_class_id=name, thousandths=thousandths)
    return lab


def training(hours: float = 2, **more: object) -> AskDocument:
    values: dict[str, object] = {
        "count": 1,
        "classes": ("h100", "l40s"),
        "profile": None,
        "together": "any",
        "required": False,
        "duration": int(hours * 3600),
        "workload": "training",
    }
    return AskDocument(**{**values, **more})  # type: ignore[arg-type]


def booked(lab: Lab, ask: AskDocument) -> Booking:
    with tenant_tx(lab.tenant_id):
        found = booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=LATER)
    with as_system():
        assert cycle_run(LATER).outcome == "decided"
    return fresh(found)


def busy(lab: Lab, hours: float) -> None:
    """The H100 is taken until then."""
    booking = a_booking(lab.project, lab.actor.user_id, state="active", hours=hours + 1.1)
    with as_system():
        gpu = Gpu.objects.get(gpu_class="h100")
    an_allocation(booking, gpu, ends=LATER + hours * HOUR, state="active")


def test_the_length_on_each_class_follows_from_its_speed(lab: Lab) -> None:
    with as_system():
        assert durations_of(training(), lab.project.id) == {"h100": 7200, "l40s": 21_660}, "up to the minute"
        assert durations_of(training(classes=("l40s",)), lab.project.id) == {"l40s": 7200, "h100": 2400}
        assert durations_of(training(workload=None), lab.project.id) == {}


def test_work_goes_where_it_ends_first_and_costs_what_that_class_costs(lab: Lab) -> None:
    booking = booked(lab, training())
    assert booking.planned_class == "h100"
    assert booking.duration_seconds == 7200
    assert booking.hold_amount == Decimal(16), "the most expensive way to have it"
    assert booking.class_durations == [["l40s", 21_660], ["h100", 7200]], "in order of cost"


def test_on_a_slower_class_it_is_given_longer_at_that_price(lab: Lab) -> None:
    busy(lab, hours=9)
    booking = booked(lab, training())
    assert booking.planned_class == "l40s"
    assert booking.planned_starts is not None
    assert booking.planned_ends == booking.planned_starts + timedelta(seconds=21_660)
    assert (booking.price_per_hour, booking.duration_seconds) == (Decimal(2), 21_660)
    assert booking.hold_amount == Decimal(16)


def test_with_a_deadline_the_cheapest_class_that_meets_it_is_taken(lab: Lab) -> None:
    assert booked(lab, training(deadline=LATER + 7 * HOUR)).planned_class == "l40s"
    assert booked(lab, training(deadline=LATER + 5 * HOUR)).planned_class == "h100"


def test_plain_time_with_a_deadline_takes_the_cheapest_class_too(lab: Lab) -> None:
    plain = training(workload=None, deadline=LATER + 5 * HOUR)
    assert booked(lab, plain).planned_class == "l40s"
    assert booked(lab, training(workload=None)).planned_class == "h100", "else the asker's order"


def test_a_decision_about_work_replays_to_the_same_bytes(lab: Lab) -> None:
    booking = booked(lab, training(deadline=LATER + 7 * HOUR))
    with as_system():
        assert booking.decision_id is not None
        assert decision_replay(Decision.objects.get(id=booking.decision_id)).is_equal


def test_work_that_has_begun_goes_on_where_it_was_for_what_is_left(lab: Lab) -> None:
    booking = booked(lab, training())
    with as_system():
        booking.allocations.update(state="superseded")
        rows = Booking.objects.filter(id=booking.id)
        rows.update(state="queued", duration_seconds=1800, hardware_lost_at=LATER)
        (anew,) = snapshot_take(LATER).requests
        assert (anew.ask.classes, anew.durations, anew.duration) == (("h100",), (), 1800)
        assert cycle_run(LATER + MINUTE).outcome == "decided"
    again = fresh(booking)
    assert (again.planned_class, again.duration_seconds) == ("h100", 1800)


def test_work_that_lost_its_place_before_it_began_may_go_to_any_of_its_classes(lab: Lab) -> None:
    booking = booked(lab, training())
    with as_system():
        booking.allocations.update(state="superseded")
        Booking.objects.filter(id=booking.id).update(state="queued")
        (again,) = snapshot_take(LATER).requests
    assert again.durations == (("l40s", 21_660), ("h100", 7200))
    assert again.duration == 7200


def test_a_quote_offers_work_on_other_classes_for_longer(lab: Lab) -> None:
    with tenant_tx(lab.tenant_id):
        request = a_booking_request(lab.project, training(classes=("h100",)))
        quote = quote_make(actor=lab.actor, request=request, now=LATER)
        (other,) = (each for each in quote.options if each.kind == "other_class")
        assert (other.ends - other.starts, other.speed) == (timedelta(seconds=21_660), 332)
        assert other.price == Decimal("12.033333")
        assert other.request == "1 l40s 6h1m kind:training"
        assert "about 0.33 times as fast" in other.notes
        both = a_booking_request(lab.project, training(deadline=LATER + 9 * HOUR))
        best = quote_make(actor=lab.actor, request=both, now=LATER).options[0]
    assert (best.gpu_class, best.kind) == ("l40s", "as_asked"), "as the cycle would decide"
    assert best.speed == 332, "relative to the first class"


def test_work_on_a_class_nobody_has_timed_is_refused_with_the_rule(lab: Lab) -> None:
    with pytest.raises(Refused) as refused:
        booked(lab, training(workload="cooking"))
    assert (refused.value.code, refused.value.rule) == ("no_speed", "R70")
    assert "training" in refused.value.sentence


def test_a_class_without_a_speed_is_left_out(lab: Lab) -> None:
    with as_owner():
        WorkSpeed.objects.filter(gpu_class="l40s").delete()
    assert booked(lab, training()).class_durations == [["h100", 7200]]


def test_new_speeds_are_logged_and_leave_bookings_as_they_were(lab: Lab) -> None:
    booking = booked(lab, training())
    with operator_tx():
        operator = an_operator()
        speeds_set(operator=operator, workload="training", speeds={"h100": 500}, now=LATER)
        speeds_set(operator=operator, workload="training", speeds={"h100": 500}, now=LATER)
        for speeds, code in (({"h100": 0}, "bad_speed"), ({"b300": 1}, "not_found")):
            with pytest.raises(Refused, match=code):
                speeds_set(operator=operator, workload="training", speeds=speeds, now=LATER)
    assert fresh(booking).class_durations == booking.class_durations
    with as_system():
        assert AuditEntry.objects.filter(action="workload.set").exclude(tenant=None).count() == 1
        assert WorkSpeed.objects.count() == 1


def test_a_ladder_takes_the_cheapest_class_until_its_share_is_lower(lab: Lab) -> None:
    busy(lab, hours=1)
    booking, at = booked(lab, training()), LATER + MINUTE

    def laddered(*rungs: Rung) -> Booking:
        with as_system():
            ladder_set(actor_id=None, budget=lab.budget, rungs=rungs, now=at)
            assert restraints_due(at).exists()
            assert restraints_apply(at) == 1
            assert not restraints_due(at).exists()
        return fresh(booking)

    assert booking.planned_class == "h100"
    assert laddered(Rung("committed", 1, "cheaper")).on_cheapest
    assert not laddered().on_cheapest
    assert story(booking)[-1] == "cheapest_no_more"
    laddered(Rung("committed", 1, "cheaper"))
    with as_system():
        cycle_run(at)
    assert fresh(booking).planned_class == "l40s"
