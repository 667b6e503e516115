"""Quota through the services: input of a cycle, refusals, and notices to owners."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection

from allocation.models import Booking, BookingEvent, Gpu
from allocation.queries.bookings.money.projects import quota_of
from allocation.rules.ask import AskDocument
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.decide.cycle import cycle_run
from allocation.services.policy.activations import policy_publish
from allocation.services.quotes.quotes import quote_make
from allocation.services.snapshot.cap_rows import caps_of
from allocation.services.snapshot.limits_in_time import GPU_HOUR
from allocation.services.snapshot.quota_rows import quotas_read, used_read
from billing.models import PriceBook
from tenants.models import Quota, Tenant
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import UNITS_PER_GPU, a_project, a_quota, a_tier
from tests.builders_allocation import (
    HOUR,
    NOW,
    Lab,
    a_booking,
    a_booking_request,
    a_lab,
    an_allocation,
    an_ask,
)
from tests.prices import price_add
from tests.roles import as_system
from tests.servers.servers import Servers

pytestmark = pytest.mark.turn

DAY = timedelta(days=1)
MIDNIGHT = NOW.replace(hour=0, minute=0)


def fresh(booking: Booking) -> Booking:
    with as_system():
        return Booking.objects.get(id=booking.id)


def requested_booking(lab: Lab, ask: AskDocument, tier: str = "standard", now: datetime = NOW) -> Booking:
    """Asked for, not decided yet."""
    request = a_booking_request(lab.project, ask, tier=tier)
    with tenant_tx(lab.tenant_id):
        return booking_request(actor=lab.actor, request=request, now=now)


def refused(lab: Lab, ask: AskDocument, tier: str = "standard") -> Refused:
    with pytest.raises(Refused) as found:
        requested_booking(lab, ask, tier)
    return found.value


def flex_tier() -> None:
    """A tier that may be paused, with a price in the first book."""
    tier = a_tier("flex", pausable=True)
    with as_system():
        price_add(book=PriceBook.objects.get(), gpu_class_id="h100", tier=tier, per_gpu_hour=Decimal(3))


def used(lab: Lab, gpu: Gpu, since: datetime, hours: float) -> None:
    """A GPU that the lab had for so long."""
    booking = a_booking(lab.project, lab.actor.user_id, state="ended", starts=since, hours=hours)
    ends = since + timedelta(hours=hours)
    an_allocation(booking, gpu, starts=since, ends=ends + HOUR, state="ended")
    with as_system():
        Booking.objects.filter(id=booking.id).update(ready_at=since, released_at=ends)


@pytest.mark.django_db
class TestHistory:
    def test_use_is_read_by_day_from_ready_to_release(self, lab: Lab) -> None:
        gpu = Gpu.objects.get()
        used(lab, gpu, MIDNIGHT - 2 * HOUR, 5)
        used(lab, gpu, MIDNIGHT - 90 * DAY, 5)
        with as_system():
            rows = used_read(NOW)
        days = [(row.day, row.unit_seconds) for row in rows]
        midnight = int(MIDNIGHT.timestamp())
        assert days == [(midnight - 86_400, 2 * GPU_HOUR), (midnight, 3 * GPU_HOUR)]
        assert (rows[0].tenant, rows[0].project) == (str(lab.tenant_id), str(lab.project.id))

    def test_a_month_carries_over_what_the_one_before_left(self, lab: Lab) -> None:
        last_month = MIDNIGHT.replace(day=1) - 3 * DAY
        used(lab, Gpu.objects.get(), last_month, 6)
        with as_system():
            Quota.objects.update(cap_gpu_hours=10, cap_carries=True)
            this, following, *_ = caps_of(quotas_read(), used_read(NOW), NOW)
        assert this.most == 14 * GPU_HOUR
        assert following.most == 10 * GPU_HOUR
        assert datetime.fromtimestamp(this.starts, UTC) == MIDNIGHT.replace(day=1)
        assert this.ends == following.starts


@pytest.mark.django_db
class TestAdmission:
    def test_a_tier_that_is_never_paused_is_told_that_it_cant_borrow(self, lab: Lab) -> None:
        flex_tier()
        with as_system():
            Quota.objects.update(guaranteed_units=UNITS_PER_GPU, borrow_limit_units=None)
        found = refused(lab, an_ask(2))
        assert (found.code, found.rule, found.kind) == ("guarantee_only", "R41", "quota")
        assert "Your organisation is guaranteed 1 h100; this needs 2" in found.sentence
        assert found.alternatives == [
            {"tier": "flex", "name": "Flex"},
            {"count": 1, "gpu_class": "h100"},
        ]
        assert found.owner == "operator", "its organisation is guaranteed no more"
        assert requested_booking(lab, an_ask(2), "flex").state == "requested"

    def test_the_refusal_names_the_organisation_whose_guarantee_a_project_can_have(self, lab: Lab) -> None:
        flex_tier()
        with as_system():
            Quota.objects.update(guaranteed_units=3 * UNITS_PER_GPU, borrow_limit_units=None)
        a_quota(lab.tenant, project=lab.project, guaranteed=1)
        assert "Your organisation is guaranteed 3 h100; this needs 4" in refused(lab, an_ask(4)).sentence

    def test_a_project_is_sure_of_what_other_projects_do_not_keep(self, lab: Lab) -> None:
        other = a_project(lab.tenant)
        row = a_quota(lab.tenant, project=other, guaranteed=5)
        assert requested_booking(lab, an_ask(4)).state == "requested", "lent by the other project"
        with as_system():
            Quota.objects.filter(pk=row.pk).update(lend_limit_units=0)
        assert requested_booking(lab, an_ask(3)).state == "requested"
        found = refused(lab, an_ask(4))
        assert (found.code, found.owner) == ("project_quota", "tenant_admin")
        assert "may use 3 h100 at once; this needs 4" in found.sentence

    def test_more_hours_than_a_cap_are_refused_at_once(self, lab: Lab) -> None:
        with as_system():
            Quota.objects.update(cap_gpu_hours=4, cap_days=7)
        assert requested_booking(lab, an_ask(hours=4)).state == "requested"
        found = refused(lab, an_ask(hours=5))
        assert (found.code, found.owner) == ("gpu_hours", "operator")
        assert "4 GPU-hours of h100 in any 7 days; this needs 5" in found.sentence
        assert (found.numbers["asked"], found.numbers["limit"]) == (5, 4), "both in GPU-hours"


def two_labs() -> tuple[Lab, Lab]:
    """Four GPUs, two guaranteed to each; the first may borrow two."""
    helix, north = a_lab("helix", gpus=4), a_lab("northlab")
    flex_tier()
    two = 2 * UNITS_PER_GPU
    with as_system():
        Quota.objects.update(guaranteed_units=two, borrow_limit_units=two)
    return helix, north


def cycle(now: datetime) -> None:
    with as_system():
        assert cycle_run(now).outcome in ("decided", "unchanged")


def test_a_borrower_is_told_when_the_lender_asks_and_when_that_is_over(real_db: Servers) -> None:
    helix, north = two_labs()
    borrower = requested_booking(helix, an_ask(4, hours=8), "flex")
    cycle(NOW)
    borrower = fresh(borrower)
    assert (borrower.borrowed_units, borrower.at_risk_from) == (2 * UNITS_PER_GPU, None)

    lender = requested_booking(north, an_ask(2, not_before=NOW + 100 * timedelta(minutes=1)))
    cycle(NOW + timedelta(minutes=1))
    borrower, lender = fresh(borrower), fresh(lender)
    assert borrower.at_risk_from == lender.reclaims_from == NOW + timedelta(minutes=100)
    with as_system():
        event = BookingEvent.objects.get(booking=borrower, kind="at_risk")
    assert event.sentence.startswith("The owner of 2 borrowed GPUs needs them")
    assert event.at_risk_from == borrower.at_risk_from

    with tenant_tx(helix.tenant_id):
        request = a_booking_request(helix.project, an_ask(3, hours=1), tier="flex")
        later = quote_make(actor=helix.actor, request=request, now=NOW + timedelta(minutes=1))
        (line,) = quota_of(project=helix.project, now=NOW + timedelta(minutes=2))
    assert later.options[0].notes[0] == "1 of 3 borrowed: the owner can call that back"
    assert (line.used, line.borrowed) == (4 * UNITS_PER_GPU, 2 * UNITS_PER_GPU)

    with tenant_tx(north.tenant_id):
        (lent,) = quota_of(project=north.project, now=NOW + timedelta(minutes=2))
        booking_cancel(actor=north.actor, booking=fresh(lender), now=NOW + timedelta(minutes=3))
    assert lent.lent == 2 * UNITS_PER_GPU
    cycle(NOW + timedelta(minutes=4))
    assert fresh(borrower).at_risk_from is None


def test_who_is_asked_at_once_is_told_once(real_db: Servers) -> None:
    helix, north = two_labs()
    borrower = requested_booking(helix, an_ask(4, hours=8), "flex")
    cycle(NOW)
    requested_booking(north, an_ask(2))
    minute = timedelta(minutes=1)
    cycle(NOW + minute)
    with as_system():
        outcomes = [cycle_run(NOW + minutes * minute).outcome for minutes in (2, 3, 4)]
        notices = BookingEvent.objects.filter(booking=borrower, kind="at_risk").count()
    assert notices == 1
    assert outcomes == ["unchanged"] * 3


def test_a_quote_says_what_is_borrowed_and_offers_the_tier_that_may(real_db: Servers) -> None:
    helix, _ = two_labs()
    with tenant_tx(helix.tenant_id):
        request = a_booking_request(helix.project, an_ask(2), tier="standard")
        found = quote_make(actor=helix.actor, request=request, now=NOW)
        assert [(o.tier, o.notes) for o in found.options if o.kind == "as_asked"] == [
            ("standard", ()),
            ("flex", ("may be paused",)),
        ]
        request = a_booking_request(helix.project, an_ask(4), tier="flex")
        found = quote_make(actor=helix.actor, request=request, now=NOW)
        assert [(o.tier, o.notes) for o in found.options if o.kind == "as_asked"] == [
            ("flex", ("2 of 4 borrowed: the owner can call that back",))
        ], "what is never paused is not offered what would be borrowed"


def test_a_quote_says_that_a_loan_that_nobody_can_pause_ends_at_its_time(real_db: Servers) -> None:
    helix, _ = two_labs()
    with as_system():
        policy_publish(document={"borrow_windows": {"standard": 4 * 3_600}}, now=NOW)
    with tenant_tx(helix.tenant_id):
        request = a_booking_request(helix.project, an_ask(4, hours=4), tier="standard")
        (option, *_) = quote_make(actor=helix.actor, request=request, now=NOW).options
    assert option.notes == (
        "2 of 4 borrowed",
        "never paused, so it ends at its time; this tier borrows for at most 4 h in all, extensions included",
    )
    loan = requested_booking(helix, an_ask(4, hours=4), "standard")
    cycle(NOW)
    assert (fresh(loan).state, fresh(loan).borrowed_units) == ("starting", 2 * UNITS_PER_GPU)


def test_others_guarantees_are_one_sum_by_class(real_db: Servers) -> None:
    helix, north = two_labs()
    a_lab("third", gpus=0)
    with as_system():
        Quota.objects.filter(tenant=north.tenant_id).update(lend_limit_units=UNITS_PER_GPU)
        names = list(Tenant.objects.order_by("slug").values_list("slug", flat=True))
    assert names == ["helix", "northlab", "third"]
    with tenant_tx(helix.tenant_id), connection.cursor() as cursor:
        cursor.execute("SELECT * FROM portal_lenders()")
        assert cursor.fetchall() == [("h100", 10 * UNITS_PER_GPU, 9 * UNITS_PER_GPU)]
