"""Refusals offer what would work: each offer is admitted by the rules that refuse the request."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import transaction

from allocation.features.overrides.amounts import amount_of
from allocation.models import Gpu, Node, Override, PolicyVersion
from allocation.rules.ask import AskDocument
from allocation.rules.ask.words.document import AskGroup
from allocation.services.bookings.checks.admission import Admission, Asker, length_text
from allocation.services.bookings.checks.admission_check import admission_check
from allocation.services.bookings.checks.offers import offer_price
from allocation.services.bookings.checks.remedies import request_of
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.bookings.request_text import request_read
from allocation.services.decide.cycle import cycle_run
from allocation.services.quotes.quotes import quote_make
from allocation.services.tiers.versions import VersionTerms, tier_version_set
from billing.price_books import PriceShelf
from tenants.models import PersonQuota, Quota, Role, Tier
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tenants.platform.words import more_text
from tenants.services.input_values import gpus_enough
from tests.builders import a_gpu_class, a_member, a_quota, a_tenant_admin, a_tier, an_actor
from tests.builders_allocation import (
    NOW,
    Lab,
    a_booking_request,
    a_budget,
    a_lab,
    a_model,
    a_node,
    a_policy,
    all_priced,
    an_ask,
)
from tests.prices import price_book_publish
from tests.roles import as_system
from tests.servers.servers import Servers

DAY, HOUR, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(seconds=1)


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix")


def refused(lab: Lab, ask: AskDocument, tier: str = "standard", now: datetime = NOW) -> Refused:
    """The refusal, of which each alternative is admitted. Everything has a price."""
    all_priced()
    return refused_at_these_prices(lab, ask, tier, now)


def refused_at_these_prices(
    lab: Lab, ask: AskDocument, tier: str = "standard", now: datetime = NOW
) -> Refused:
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as error:
        checked(lab, ask, tier, now)
    for each in error.value.alternatives:
        with tenant_tx(lab.tenant_id):
            checked(lab, request_of(each, ask), each.get("tier", tier), now)
    return error.value


def checked(lab: Lab, ask: AskDocument, tier: str, now: datetime = NOW) -> Admission:
    return admission_check(
        project=lab.project, tier_slug=tier, ask=ask, now=now, asker=Asker(lab.actor.user_id)
    )


def named(refusal: Refused, name: str) -> list[Any]:
    return [each[name] for each in refusal.alternatives if name in each]


def test_a_quota_offers_as_many_as_it_has(lab: Lab) -> None:
    with as_system():
        Quota.objects.update(guaranteed_units=6 * 56_000, borrow_limit_units=0)
    found = refused(lab, an_ask(7))
    assert named(found, "count") == [6]


def test_a_loan_that_is_too_long_offers_the_longest_one(lab: Lab) -> None:
    a_policy(borrow_windows={"standard": 4 * 3_600})
    with as_system():
        Quota.objects.update(guaranteed_units=6 * 56_000, borrow_limit_units=None)
    found = refused(lab, an_ask(7, hours=5))
    assert (found.code, named(found, "duration")) == ("guarantee_only", [4 * 3_600])


def test_too_long_offers_the_longest_and_only_tiers_that_admit_it(lab: Lab) -> None:
    a_tier("weeks", priority=10)
    a_tier("closed", priority=20)
    with as_system():
        Tier.objects.filter(slug="standard").update(max_duration_seconds=8 * 3600)
        Tier.objects.filter(slug__in=("weeks", "closed")).update(max_duration_seconds=90 * 86_400)
    admin = an_actor(a_tenant_admin(lab.project.tenant))
    with tenant_tx(lab.tenant_id):
        terms = VersionTerms(tier="closed", max_seconds=3600)
        tier_version_set(actor=admin, terms=terms, now=NOW - HOUR)
    found = refused(lab, an_ask(hours=9))
    assert found.code == "too_long"
    assert named(found, "duration") == [8 * 3600]
    assert named(found, "tier") == ["weeks"], "the other one allows an hour in this organisation"


def test_no_tier_without_a_published_price_is_offered(lab: Lab) -> None:
    a_tier("weeks", priority=10)
    with as_system():
        Tier.objects.filter(slug="standard").update(max_duration_seconds=8 * 3600)
        Tier.objects.filter(slug="weeks").update(max_duration_seconds=90 * 86_400)
    assert named(refused_at_these_prices(lab, an_ask(hours=9)), "tier") == []
    assert named(refused(lab, an_ask(hours=9)), "tier") == ["weeks"]


def test_what_the_money_does_not_allow_is_not_offered(lab: Lab) -> None:
    """Of a tier's longest booking, and of another tier, only what the budget can pay."""
    a_tier("weeks", priority=10)
    with as_system():
        Tier.objects.filter(slug="standard").update(max_duration_seconds=100 * 3600)
        Tier.objects.filter(slug="weeks").update(max_duration_seconds=90 * 86_400)
    all_priced()
    found = refused(lab, an_ask(4, hours=400))
    assert found.code == "too_long"
    assert named(found, "tier") == []
    for each in found.alternatives:
        with tenant_tx(lab.tenant_id):
            admission = checked(lab, request_of(each, an_ask(4, hours=400)), "standard")
            assert offer_price(admission, PriceShelf.read(NOW)).most <= 1_000, "the budget of the lab"
    assert found.alternatives, "a shorter one is affordable"


def test_what_is_left_of_the_money_can_be_too_little_for_any_request(lab: Lab) -> None:
    """Neither a length of nothing nor no GPU is tried."""
    with as_system():
        prices = {("h100", "standard"): Decimal(90_000)}
        price_book_publish(actor_id=None, valid_from=NOW + HOUR, prices=prices, now=NOW)
        Tier.objects.filter(slug="standard").update(max_duration_seconds=8 * 3600)
    found = refused_at_these_prices(lab, an_ask(hours=9), now=NOW + 2 * HOUR)
    assert (found.code, list(found.alternatives)) == ("too_long", [])


def test_the_horizon_of_the_policy_refuses_at_once_whatever_the_tier_allows(lab: Lab) -> None:
    a_tier("far", priority=10)
    with as_system():
        Tier.objects.update(advance_seconds=365 * 86_400)
    found = refused(lab, an_ask(starts=NOW + 100 * DAY + 3 * HOUR))
    assert found.code == "advance_window"
    assert "no booking more than 28 days ahead" in found.sentence
    assert named(found, "starts") == [(NOW + 27 * DAY + 3 * HOUR).isoformat()]
    assert named(found, "tier") == [], "they are refused alike"
    with as_system():
        live = PolicyVersion.objects.get(state="live")
        PolicyVersion.objects.filter(number=live.number).update(state="retired")
        PolicyVersion.objects.create(
            number=live.number + 1, state="live", document={"horizon": 200 * 86_400}, created=NOW
        )
    with tenant_tx(lab.tenant_id):
        checked(lab, an_ask(starts=NOW + 100 * DAY), "standard")


def test_a_tier_that_allows_less_offers_its_last_start_and_other_tiers(lab: Lab) -> None:
    a_tier("far", priority=10)
    with as_system():
        Tier.objects.filter(slug="standard").update(advance_seconds=2 * 86_400)
    found = refused(lab, an_ask(starts=NOW + 5 * DAY + HOUR))
    assert named(found, "starts") == [(NOW + DAY + HOUR).isoformat()]
    assert named(found, "tier") == ["far"]


def test_a_deadline_offers_a_later_one_and_a_shorter_booking(lab: Lab) -> None:
    ask = replace(an_ask(hours=4), deadline=NOW + 3 * HOUR)
    found = refused(lab, ask)
    assert found.code == "deadline_unreachable"
    (deadline,) = named(found, "deadline")
    assert deadline > (NOW + 4 * HOUR).isoformat()
    (duration,) = named(found, "duration")
    assert 2.8 * 3600 < duration <= 3 * 3600
    past = refused(lab, replace(an_ask(hours=4), deadline=NOW - HOUR))
    assert past.code == "deadline_passed"
    assert named(past, "deadline")


def test_where_no_change_of_one_thing_is_enough_two_are_offered(real_db: Servers) -> None:
    lab = a_lab("helix", gpus=8)
    with as_system():
        Quota.objects.update(guaranteed_units=6 * 56_000, borrow_limit_units=0)
        Tier.objects.filter(slug="standard").update(max_duration_seconds=8 * 3600)
    far = refused(lab, an_ask(7, starts=NOW + 100 * DAY))
    assert far.code == "advance_window"
    assert "the latest start at that time of day is" in far.sentence, "later ones are on the same day"
    assert [(each["count"], each["starts"]) for each in far.alternatives] == [
        (6, (NOW + 28 * DAY).isoformat())
    ]
    long = refused(lab, replace(an_ask(hours=9), deadline=NOW + 4 * HOUR))
    assert long.code == "too_long"
    (both,) = long.alternatives
    assert both["duration"] == 8 * 3600
    assert both["deadline"] > (NOW + 8 * HOUR).isoformat()


def test_a_deadline_leaves_room_for_the_next_step_of_the_grid(lab: Lab) -> None:
    now = NOW + timedelta(seconds=61)
    ask = replace(an_ask(hours=4), deadline=now + 3 * HOUR)
    found = refused(lab, ask, now=now)
    assert len(found.alternatives) == 2
    for each in found.alternatives:
        request = a_booking_request(lab.project, request_of(each, ask))
        with tenant_tx(lab.tenant_id):
            quote = quote_make(actor=lab.actor, request=request, now=now)
        assert (quote.blocking, [o.kind for o in quote.options][:1]) == (None, ["as_asked"]), each


def test_a_pin_on_other_hardware_offers_the_rest_of_the_request_and_that_hardware(lab: Lab) -> None:
    other = a_node("gpu-b1-01")
    model = a_model("a100-80gb", product="NVIDIA A100-SXM4-80GB")
    with as_system():
        Gpu.objects.filter(node=other).update(model=model, gpu_class=model.gpu_class)
    a_quota(lab.project.tenant, model.gpu_class, guaranteed=1)
    found = refused(lab, replace(an_ask(), pin=("gpu-b1-01",)))
    assert found.code == "pin_elsewhere"
    assert found.alternatives == [{"pin": []}, {"gpu_class": "a100"}]
    unknown = refused(lab, replace(an_ask(), pin=("gpu-b9-99",)))
    assert unknown.alternatives == [{"pin": []}]
    few = refused(lab, replace(an_ask(2), pin=("gpu-a1-01",)))
    assert few.code == "pin_too_small"
    assert few.alternatives == [{"pin": []}, {"count": 1}]


def test_an_audience_offers_no_tier_that_refuses_alike(lab: Lab) -> None:
    a_tier("leads", priority=10)
    a_tier("open", priority=20)
    admin = an_actor(a_tenant_admin(lab.project.tenant))
    for slug in ("standard", "leads"):
        with tenant_tx(lab.tenant_id):
            terms = VersionTerms(tier=slug, audience="leads")
            tier_version_set(actor=admin, terms=terms, now=NOW - HOUR)
    member = an_actor(a_member(lab.project, role=Role.RESEARCHER))
    found = refused(replace(lab, actor=member), an_ask())
    assert found.code == "tier_audience"
    assert named(found, "tier") == ["open"]


def test_host_resources_that_no_node_has_offer_what_the_nodes_have(real_db: Servers) -> None:
    lab = a_lab("helix", gpus=8)
    with as_system():
        Node.objects.update(cores=64, memory_mb=256 * 1024)
    cores = refused(lab, an_ask(2, cores=40, memory=64))
    assert (cores.code, cores.rule) == ("host_too_small", "R59")
    assert "40 host cores and 64 GiB of host memory" in cores.sentence
    assert (named(cores, "cores"), named(cores, "count")) == ([32], [1])
    memory = refused(lab, an_ask(1, cores=8, memory=300))
    assert (named(memory, "memory"), named(memory, "cores")) == ([256], [])
    both = refused(lab, an_ask(1, cores=80, memory=300))
    assert both.alternatives == [{"cores": 64, "memory": 256}]
    with tenant_tx(lab.tenant_id):
        checked(lab, an_ask(8, cores=8, memory=32), "standard")
    with as_system():
        Node.objects.update(cores=0, memory_mb=0)
    assert refused(lab, an_ask(1, cores=1)).alternatives == [{"cores": 0, "memory": 0}]


def mixed(**counts: int) -> AskDocument:
    """A request of several classes; each is a group."""
    (first, count), *others = counts.items()
    groups = tuple(AskGroup(name, each) for name, each in others)
    return replace(an_ask(count, classes=(first,)), groups=groups)


@pytest.fixture
def three(lab: Lab) -> Lab:
    """The lab with 4 h100, 3 l40s and no a100."""
    with as_system():
        Quota.objects.update(guaranteed_units=4 * 56_000, borrow_limit_units=0)
    for name, most in (("l40s", 3), ("a100", 0)):
        a_model(f"{name}-80gb", product=name)
        a_quota(lab.tenant, a_gpu_class(name), guaranteed=most, limit=most)
    return lab


def counts_of(refusal: Refused) -> list[tuple[str, int]]:
    (groups,) = named(refusal, "groups")
    return [(each["gpu_class"], each["count"]) for each in groups]


def test_a_mixed_booking_over_a_quota_offers_fewer_of_each_class(three: Lab) -> None:
    assert counts_of(refused(three, mixed(h100=6, l40s=2))) == [("h100", 4), ("l40s", 2)]
    assert counts_of(refused(three, mixed(h100=6, l40s=5))) == [("h100", 4), ("l40s", 3)]
    assert counts_of(refused(three, mixed(h100=6, a100=1, l40s=4))) == [("h100", 4), ("l40s", 3)]
    assert refused(three, mixed(h100=6, a100=1)).alternatives == [
        {"gpu_class": "h100", "count": 4, "groups": []}
    ]


@pytest.mark.parametrize(
    "of_person", [VersionTerms("standard", max_open_gpus=3), VersionTerms("standard", max_open=1)]
)
def test_a_limit_of_a_person_offers_fewer_gpus_and_other_tiers(
    real_db: Servers, of_person: VersionTerms
) -> None:
    lab = a_lab("helix", gpus=8)
    a_tier("spot", priority=10)
    a_tier("closed", priority=20)
    with as_system():
        price_book_publish(
            actor_id=None,
            valid_from=NOW + SECOND,
            prices={("h100", tier): Decimal(1) for tier in ("standard", "spot", "closed")},
            now=NOW,
        )
    now = NOW + 2 * SECOND
    admin = an_actor(a_tenant_admin(lab.project.tenant))
    for terms in (of_person, VersionTerms(tier="closed", max_open_gpus=1)):
        with tenant_tx(lab.tenant_id):
            tier_version_set(actor=admin, terms=terms, now=NOW - HOUR)
    with tenant_tx(lab.tenant_id):
        booking_request(actor=lab.actor, request=a_booking_request(lab.project, an_ask()), now=now)
    ask = an_ask(5)
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as error:
        booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=now)
    found = error.value
    assert named(found, "tier") == ["spot"], "the other one allows one GPU"
    assert named(found, "count") == ([2] if of_person.max_open_gpus else [])
    for each in found.alternatives:
        again = a_booking_request(lab.project, request_of(each, ask), tier=each.get("tier", "standard"))
        with tenant_tx(lab.tenant_id):
            booking_request(actor=lab.actor, request=again, now=now)
            transaction.set_rollback(True)


def test_a_deadline_offers_what_the_plan_has_room_for(real_db: Servers) -> None:
    lab = a_lab("helix", gpus=4)
    a_policy()
    with tenant_tx(lab.tenant_id):
        taken = a_booking_request(lab.project, an_ask(4, hours=6, starts=NOW + 10 * HOUR))
        booking_request(actor=lab.actor, request=taken, now=NOW)
    with as_system():
        cycle_run(NOW)
    ask = replace(an_ask(4, hours=20), deadline=NOW + 18 * HOUR)
    found = refused(lab, ask)
    assert found.code == "deadline_unreachable"
    assert named(found, "deadline")[0] >= (NOW + 36 * HOUR).isoformat(), "20 h after the other booking"
    assert 9.5 * 3600 < named(found, "duration")[0] <= 10 * 3600, "before the other booking"
    for each in found.alternatives:
        later = NOW + timedelta(seconds=70)
        request = a_booking_request(lab.project, request_of(each, ask))
        with tenant_tx(lab.tenant_id):
            booked = booking_request(actor=lab.actor, request=request, now=later)
        with as_system():
            cycle_run(later)
            booked.refresh_from_db()
            assert booked.planned_starts is not None, (each, booked.state, booked.reasons)
        with tenant_tx(lab.tenant_id):
            booking_cancel(actor=lab.actor, booking=booked, now=later)


def test_a_deadline_with_too_many_gpus_offers_fewer_before_an_end_that_the_plan_has_room_for(
    real_db: Servers,
) -> None:
    lab = a_lab("helix", gpus=4)
    a_policy()
    with as_system():
        Quota.objects.update(guaranteed_units=3 * 56_000, borrow_limit_units=0)
    with tenant_tx(lab.tenant_id):
        taken = a_booking_request(lab.project, an_ask(3, hours=6, starts=NOW + HOUR))
        booking_request(actor=lab.actor, request=taken, now=NOW)
    with as_system():
        cycle_run(NOW)
    found = refused(lab, replace(an_ask(9, hours=6), deadline=NOW + 4 * HOUR))
    assert (found.code, named(found, "count")) == ("deadline_unreachable", [3])
    assert named(found, "deadline")[0] >= (NOW + 13 * HOUR).isoformat(), "after the other booking"


def test_notice_and_hours_of_a_tier_offer_a_start_that_both_allow(lab: Lab) -> None:
    admin = an_actor(a_tenant_admin(lab.project.tenant))
    hours = "Mon-Fri 8-12"
    terms = VersionTerms(tier="standard", min_lead_seconds=86_400, start_hours=hours, zone="Europe/Berlin")
    with tenant_tx(lab.tenant_id):
        tier_version_set(actor=admin, terms=terms, now=NOW - HOUR)
    saturday = NOW + timedelta(days=(5 - NOW.weekday()) % 7)
    found = refused(lab, an_ask(starts=saturday + HOUR), now=saturday)
    assert found.code == "too_soon"
    (starts,) = named(found, "starts")
    first = datetime.fromisoformat(starts).astimezone(ZoneInfo("Europe/Berlin"))
    assert (first.weekday(), first.hour) == (0, 8)
    assert f"{first.day} {first:%b %H:%M} CET" in found.sentence, found.sentence


def test_money_that_is_short_offers_what_it_is_enough_for(real_db: Servers) -> None:
    lab = a_lab("helix", gpus=4)
    a_budget(lab.project, "9.59")
    ask = an_ask(2, hours=3)
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as error:
        booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=NOW)
    found = error.value
    assert found.code == "budget_exceeded"
    assert named(found, "duration"), found.alternatives
    for each in found.alternatives:
        again = a_booking_request(lab.project, request_of(each, ask), tier=each.get("tier", "standard"))
        with tenant_tx(lab.tenant_id):
            booking_request(actor=lab.actor, request=again, now=NOW)
            transaction.set_rollback(True)


def test_a_line_whose_deadline_is_too_early_offers_what_admission_would_take(real_db: Servers) -> None:
    lab = a_lab("helix", gpus=4)
    a_policy()
    with as_system():
        Tier.objects.filter(slug="standard").update(max_duration_seconds=86_400)
    with tenant_tx(lab.tenant_id):
        facts: dict[str, Any] = {"project": lab.project.slug, "zone": "UTC", "now": NOW}
        ask, _ = request_read(f"1 h100 5d by {(NOW + 3 * DAY):%Y-%m-%d}", **facts)
    found = refused(lab, ask)
    assert (found.code, named(found, "duration")) == ("too_long", [86_400])


def test_gpus_that_can_not_be_together_offer_as_many_as_can(real_db: Servers) -> None:
    """A quota that has more than the site has on one node does not make them an offer."""
    lab = a_lab("helix", gpus=4)
    with as_system():
        Quota.objects.update(guaranteed_units=6 * 56_000, borrow_limit_units=0)
    found = refused(lab, replace(an_ask(9), together="node", required=True))
    assert found.code == "tenant_quota"
    assert {each["count"] for each in found.alternatives} == {4}, found.alternatives


def test_a_start_that_is_offered_replaces_an_earliest_start_and_a_deadline(lab: Lab) -> None:
    admin = an_actor(a_tenant_admin(lab.project.tenant))
    with tenant_tx(lab.tenant_id):
        terms = VersionTerms(tier="standard", min_lead_seconds=86_400)
        tier_version_set(actor=admin, terms=terms, now=NOW - HOUR)
    ask = replace(an_ask(starts=None), not_before=NOW + 60 * DAY, deadline=NOW + 61 * DAY)
    found = refused(lab, ask)
    starts = [each for each in found.alternatives if "starts" in each]
    assert starts, found
    assert all(each["not_before"] is None and each["deadline"] is None for each in starts)


def test_a_profile_that_a_group_can_not_have_offers_whole_groups(three: Lab) -> None:
    groups = (AskGroup("l40s", 1, "9g.1gb"),)
    found = refused(three, replace(an_ask(1), groups=groups))
    assert found.code == "impossible_profile"
    assert [each["groups"][1]["profile"] for each in found.alternatives if each.get("groups")], found
    assert all("profile" not in each for each in found.alternatives)


def test_a_slice_that_no_class_has_offers_those_that_it_has(lab: Lab) -> None:
    found = refused(lab, an_ask(profile="9g.1gb"))
    assert found.code == "impossible_profile"
    assert named(found, "profile")


@pytest.mark.parametrize(("units", "profile"), [(28_000, "3g.40gb"), (8_000, "1g.10gb"), (7_999, None)])
def test_a_limit_of_less_than_a_gpu_offers_its_largest_slice(
    lab: Lab, units: int, profile: str | None
) -> None:
    with as_system():
        PersonQuota.objects.create(tenant_id=lab.tenant_id, gpu_class_id="h100", limit_units=units)
    found = refused(lab, an_ask(2))
    assert (found.code, named(found, "profile")[:1]) == ("person_quota", [profile] if profile else [])
    assert Decimal(found.more["amount"]) * 56_000 >= 2 * 56_000 - units, "what is asked for is enough"


def test_no_exception_is_named_that_the_horizon_or_the_largest_one_refuses(lab: Lab) -> None:
    with as_system():
        Tier.objects.filter(slug="standard").update(advance_seconds=2 * 86_400)
    near, far = (refused(lab, an_ask(starts=NOW + days * DAY)) for days in (5, 100))
    assert (near.code, near.more["kind"]) == ("advance_window", "notice")
    assert (far.code, far.more) == ("advance_window", {})
    assert refused(lab, an_ask(hours=24 * 30)).more["kind"] == "length"
    assert refused(lab, an_ask(hours=24 * 200)).more == {}


def test_a_length_is_named_exactly() -> None:
    lengths = (36 * HOUR, 48 * HOUR, 50 * HOUR, 50 * HOUR + timedelta(minutes=20))
    assert [length_text(each) for each in lengths] == ["36 h", "2 days", "50 h", "2 d 2 h 20 min"]


@pytest.mark.parametrize("sevenths", range(1, 8))
def test_what_is_named_of_gpus_and_hours_is_enough(sevenths: int) -> None:
    assert amount_of(Override.Kind.QUOTA, gpus_enough(sevenths * 8_000)) >= sevenths * 8_000
    hours = more_text({"kind": "length", "amount": str(3_600 + 60 * sevenths)}).split()[0]
    assert 3_600 * Decimal(hours) >= 3_600 + 60 * sevenths
