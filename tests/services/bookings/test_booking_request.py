"""What a request writes when it is taken in, and that a refused one writes nothing."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest

from allocation.models import Booking, BookingEvent
from allocation.rules.changes import Target
from allocation.services.bookings.checks.terms import stronger_terms
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.requests import BookingRequest
from allocation.services.quotes.quotes import quote_make
from billing.models import Budget
from billing.queries import budget_figures, reference_totals
from billing.rates import peak_hours
from billing.services import Peaks
from tenants.access import Actor
from tenants.models import AuditEntry, OutboxMessage, Project, Quota, Role, Tier
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.api.builders import row_counts
from tests.builders import a_gpu_class, a_member, a_project, a_quota, an_actor
from tests.builders_allocation import (
    HOUR,
    NOW,
    Lab,
    a_booking_request,
    a_budget,
    a_lab,
    a_model,
    an_ask,
)
from tests.prices import price_book_publish
from tests.roles import as_owner, as_role, as_system

MINUTE = timedelta(minutes=1)


def booked(lab: Lab, given: BookingRequest | None = None, now: datetime = NOW) -> Booking:
    """As the web process does it: behind the wall, in the tenant's transaction."""
    with tenant_tx(lab.tenant_id):
        return booking_request(actor=lab.actor, request=given or a_booking_request(lab.project), now=now)


def refusal_of(lab: Lab, given: BookingRequest, actor: Actor | None = None) -> Refused:
    """Returns the refusal of a request; the surrounding transaction stays usable."""
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as caught:
        booking_request(actor=actor or lab.actor, request=given, now=NOW)
    return caught.value


def test_a_request_holds_its_price_and_is_told_to_everyone_who_must_know(lab: Lab) -> None:
    booking = booked(lab, a_booking_request(lab.project, an_ask(2, hours=1.5)))

    with as_system():
        stored = Booking.objects.get(id=booking.id)
        assert (stored.label, stored.state, stored.version) == ("BK-1", "requested", 1)
        # 2 GPUs for 1.5 hours at 4.80.
        assert (stored.hold_amount, stored.price_per_hour) == (Decimal("14.40"), Decimal("9.60"))
        assert reference_totals(tenant_id=lab.tenant_id, reference=booking.id) == (
            Decimal("14.40"),
            Decimal(0),
        )
        effect = budget_figures(project_id=lab.project.id, at=NOW)
        assert effect is not None
        assert (effect.held, effect.left) == (Decimal("14.40"), Decimal("985.60"))
        event = BookingEvent.objects.get(booking=stored)
        assert (event.kind, event.state, event.actor_id) == (
            "requested",
            "requested",
            lab.actor.user_id,
        )
        assert "€14.40 held" in event.sentence
        entry = AuditEntry.objects.get(action="booking.request")
        assert (entry.object_id, entry.actor_id, entry.at) == (
            str(booking.id),
            lab.actor.user_id,
            NOW,
        )
        message = OutboxMessage.objects.get(kind="booking.requested")
        assert (message.payload["booking"], message.payload["version"]) == ("BK-1", 1)
        assert message.sent is None


def test_every_tenant_counts_its_own_bookings(lab: Lab) -> None:
    other = a_lab("northlab", gpus=0)
    labels = [booked(who).label for who in (lab, other, lab)]
    assert labels == ["BK-1", "BK-1", "BK-2"]


def test_a_slice_pays_by_its_units(lab: Lab) -> None:
    # 3g.40gb: half the memory, three sevenths of the compute; the larger share counts.
    booking = booked(lab, a_booking_request(lab.project, an_ask(profile="3g.40gb", hours=1)))
    assert booking.hold_amount == Decimal("2.40")


def test_a_slice_with_a_price_of_its_own_pays_that(lab: Lab) -> None:
    slices = {("h100", "standard", "3g.40gb"): (Decimal(3), Decimal(4))}
    hours = peak_hours("UTC", [(NOW.weekday(), NOW.hour + 2, 24)])
    with as_system():
        price_book_publish(
            actor_id=None,
            valid_from=NOW + MINUTE,
            prices={("h100", "standard"): Decimal(100)},
            peaks=Peaks(hours),
            slices=slices,
            now=NOW,
        )
    now = NOW + HOUR
    ask = an_ask(2, profile="3g.40gb", hours=1.5, starts=now)
    with as_system():
        quote = quote_make(actor=lab.actor, request=a_booking_request(lab.project, ask), now=now)
    booking = booked(lab, a_booking_request(lab.project, ask), now)
    # An hour at 3 and half an hour at 4, twice.
    assert (booking.hold_amount, booking.price_per_hour) == (Decimal(10), Decimal(6))
    assert [each.most for each in quote.options[:1]] in ([], [Decimal(10)])
    with as_system():
        target = Target(replace(ask, count=3), "standard", "")
        stronger = stronger_terms(booking, target, "", now)
        other = stronger_terms(booking, Target(replace(ask, profile=None), "standard", ""), "", now)
    assert (stronger.hold_amount, other.hold_amount) == (Decimal(15), Decimal(300))


def test_of_two_classes_the_dearer_one_is_held(lab: Lab) -> None:
    a_model("b200-180gb", product="NVIDIA B200")
    a_quota(lab.tenant, a_gpu_class("b200"), guaranteed=8, limit=8)
    prices = {("h100", "standard"): Decimal(4), ("b200", "standard"): Decimal(9)}
    with as_system():
        price_book_publish(
            actor_id=None, valid_from=NOW + HOUR, prices=prices, now=NOW + timedelta(minutes=1)
        )
    given = a_booking_request(lab.project, an_ask(classes=("h100", "b200"), hours=1))
    assert booked(lab, given, NOW + HOUR).hold_amount == Decimal(9)


def test_a_fixed_window_of_this_very_second_is_taken(lab: Lab) -> None:
    given = a_booking_request(lab.project, an_ask(starts=NOW))
    booking = booked(lab, given, NOW + timedelta(seconds=1))
    assert (booking.starts, booking.not_before) == (NOW, NOW)


def test_the_same_id_again_is_the_same_row(lab: Lab) -> None:
    """What a repeated request of the REST API finds after an unknown end of the first."""
    name = uuid4()
    with tenant_tx(lab.tenant_id):
        booking = booking_request(
            actor=lab.actor, request=a_booking_request(lab.project), now=NOW, booking_id=name
        )
    assert booking.id == name


def limit_of_the_tenant(lab: Lab) -> None:
    Quota.objects.filter(tenant=lab.tenant, project=None).update(
        guaranteed_units=56_000, borrow_limit_units=0
    )


def limit_of_the_project(lab: Lab) -> None:
    Quota.objects.create(
        tenant=lab.tenant, project=lab.project, gpu_class=a_gpu_class(), borrow_limit_units=56_000
    )


def no_quota(lab: Lab) -> None:
    with as_owner():
        Quota.objects.filter(tenant=lab.tenant).delete()


def no_budget(lab: Lab) -> None:
    with as_role("portal_owner"):
        Budget.objects.filter(project=lab.project).delete()


def small_budget(lab: Lab) -> None:
    a_budget(lab.project, "9.59")


def closed(lab: Lab) -> None:
    Project.objects.filter(id=lab.project.id).update(is_open=False)


def short_tier(_: Lab) -> None:
    Tier.objects.filter(slug="standard").update(max_duration_seconds=3600)


def as_it_is(_: Lab) -> None:
    """Nothing is different."""


DAY = timedelta(days=1)
Case = tuple[Callable[[Lab], None], Callable[[Project], BookingRequest], str]
REFUSALS: dict[str, Case] = {
    "unknown_tier": (as_it_is, lambda p: a_booking_request(p, tier="gold"), "invalid"),
    "unknown_class": (as_it_is, lambda p: a_booking_request(p, an_ask(classes=("x1",))), "invalid"),
    "impossible_profile": (
        as_it_is,
        lambda p: a_booking_request(p, an_ask(profile="9g.1gb")),
        "invalid",
    ),
    "window_past": (
        as_it_is,
        lambda p: a_booking_request(p, an_ask(starts=NOW - 2 * HOUR)),
        "invalid",
    ),
    "advance_window": (
        as_it_is,
        lambda p: a_booking_request(p, an_ask(starts=NOW + 29 * DAY)),
        "invalid",
    ),
    "deadline_passed": (as_it_is, lambda p: a_booking_request(p, an_ask(deadline=NOW)), "invalid"),
    "deadline_unreachable": (
        as_it_is,
        lambda p: a_booking_request(p, an_ask(deadline=NOW + HOUR)),
        "invalid",
    ),
    "too_long": (short_tier, a_booking_request, "invalid"),
    "class_not_open": (no_quota, a_booking_request, "quota"),
    "tenant_quota": (limit_of_the_tenant, lambda p: a_booking_request(p, an_ask(2)), "quota"),
    "project_quota": (limit_of_the_project, lambda p: a_booking_request(p, an_ask(2)), "quota"),
    "no_budget": (no_budget, a_booking_request, "budget"),
    "budget_exceeded": (small_budget, a_booking_request, "budget"),
    "not_allowed": (closed, a_booking_request, "denied"),
    "not_found": (
        as_it_is,
        lambda p: BookingRequest("nothing-here", "standard", an_ask()),
        "missing",
    ),
}


@pytest.mark.parametrize(
    ("code", "change", "given", "kind"),
    [pytest.param(code, *case, id=code) for code, case in REFUSALS.items()],
)
def test_a_refused_request_writes_nothing_and_says_why(
    code: str,
    change: Callable[[Lab], None],
    given: Callable[[Project], BookingRequest],
    kind: str,
    lab: Lab,
) -> None:
    with as_system():
        change(lab)
    before = row_counts()

    refused = refusal_of(lab, given(lab.project))

    assert (refused.code, refused.kind) == (code, kind)
    assert refused.sentence.endswith(".")
    assert row_counts() == before
    with as_system():
        lab.tenant.refresh_from_db()
    assert lab.tenant.bookings_counted == 0
    # The very next one is number one, as if nothing had been.
    if change is as_it_is:
        assert booked(lab).label == "BK-1"


def test_a_viewer_books_nothing(lab: Lab) -> None:
    viewer = an_actor(a_member(lab.project, Role.VIEWER))
    assert refusal_of(lab, a_booking_request(lab.project), viewer).code == "not_allowed"


def test_a_project_of_others_answers_like_none_at_all(lab: Lab) -> None:
    hidden, foreign = a_project(lab.tenant), a_lab("northlab", gpus=0).project
    answers = {
        str(refusal_of(lab, BookingRequest(slug, "standard", an_ask())))
        for slug in (hidden.slug, foreign.slug, "nothing-here")
    }
    assert len(answers) == 1
