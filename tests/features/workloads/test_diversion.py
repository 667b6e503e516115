"""Classes by learnt cost: off, suggested, automatic with its numbers, and stopped when it made it worse."""

import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db.models import F
from django.test import Client
from django.utils import timezone

from allocation.features.workloads.models import Diversion
from allocation.models import Booking, BookingEvent, Gpu
from allocation.services.snapshot.snapshot import requests_of
from allocation.words.events import event_text
from tenants.models import GpuClass
from tests.api.builders import Site, said
from tests.builders import a_quota
from tests.builders_allocation import a_model
from tests.features.workloads.builders import Ran, ran
from tests.prices import price_book_publish
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db
SEVERAL = "1 h100 or a100 3h"


def owner(site: Site) -> int:
    return int(site.people["researcher"].pk)


@pytest.fixture
def learnt(site: Site) -> Site:
    """Three runs on each class: half the price and three quarters of the steps on an A100."""
    # REST takes whole seconds: prices that are published in this one are not there yet.
    now = timezone.now() - timedelta(seconds=2)
    with as_system():
        a_model("a100-80gb", product="NVIDIA A100-SXM4-80GB")
        hourly = (("h100", "4.80"), ("a100", "2.40"))
        prices = {(name, tier): Decimal(price) for name, price in hourly for tier in ("standard", "spot")}
        price_book_publish(actor_id=None, valid_from=now, prices=prices, now=now)
        a100 = GpuClass.objects.get(slug="a100")
        a_quota(site.tenant, a100, guaranteed=4, limit=8)
        a_quota(site.tenant, a100, project=site.project, guaranteed=2, limit=4)
        a_quota(site.other_project.tenant, a100, guaranteed=4, limit=8)
    for number in range(3):
        ran(site.project, owner(site), Ran(f"fold-{number}", ago=60 + number, per_hour=800, paid="9"))
        slow = Ran(f"fold-1{number}", "a100", ago=70 + number, per_hour=600, paid="3")
        ran(site.project, owner(site), slow)
    return site


def automatic(site: Site, workload: str | None = None) -> None:
    body = {"mode": "automatic"} | ({"workload": workload} if workload else {})
    assert said(site.lead.put(f"projects/{site.project.slug}/diversion", body))["mode"] == "automatic"


def booked(site: Site, request: str = SEVERAL, **more: str) -> Booking:
    body = {"request": request, "project": site.project.slug, "name": "fold-9", **more}
    label = said(site.researcher.post("bookings", body))["number"]
    with as_system():
        return Booking.objects.select_related("tier").get(
            number=int(label.removeprefix("BK-")), tenant=site.tenant
        )


def reasons(booking: Booking) -> list[str]:
    with as_system():
        return [each.text for each in BookingEvent.objects.filter(booking=booking, kind="diverted")]


def test_without_a_choice_nothing_is_diverted_and_leads_alone_choose(learnt: Site) -> None:
    assert (
        learnt.researcher.put(f"projects/{learnt.project.slug}/diversion", {"mode": "automatic"}).status_code
        == 403
    )
    assert (
        learnt.outsider.put(f"projects/{learnt.project.slug}/diversion", {"mode": "automatic"}).status_code
        == 404
    )
    booking = booked(learnt)
    assert (booking.by_cost, booking.ask["workload"], reasons(booking)) == (False, None, [])
    (state,) = said(learnt.researcher.get("workloads/fold"))["diversion"]
    assert (state["mode"], state["since"], state["runs"]) == ("suggest", None, 0)


def test_automatic_takes_the_cheapest_class_for_as_long_as_it_takes_there(learnt: Site) -> None:
    automatic(learnt)
    booking = booked(learnt)
    assert (booking.by_cost, booking.ask["workload"]) == (True, "fold")
    # Three hours on an H100 are four on an A100.
    assert booking.class_durations == [["a100", 14_400], ["h100", 10_800]]
    (reason,) = reasons(booking)
    found = re.search(r"1,000 steps of fold cost €([0-9.]+) on A100 \(3 runs\), €([0-9.]+) on H100", reason)
    assert found is not None
    assert float(found[2]) / float(found[1]) == pytest.approx(1.5, abs=0.01)
    with as_system():
        (request,) = requests_of([booking], timezone.now())
    assert request.cheapest
    assert request.ask.classes[0] == "a100"


@pytest.mark.parametrize(
    "request_",
    ["1 h100 3h", "1 a100 or h100 3h", "1 h100 or a100 3h tomorrow 10:00"],
)
def test_one_class_the_cheapest_first_and_fixed_windows_stay(learnt: Site, request_: str) -> None:
    automatic(learnt)
    assert not booked(learnt, request_).by_cost


def test_a_class_that_misses_the_deadline_is_not_the_cheapest(learnt: Site) -> None:
    """Three hours on an H100 are four on an A100."""
    automatic(learnt)

    def by(hours: float) -> str:
        return (timezone.now() + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def asked(hours: float) -> Booking:
        ask = {"count": 1, "classes": ["h100", "a100"], "duration": "PT3H", "deadline": by(hours)}
        body = {"ask": ask, "project": learnt.project.slug, "name": "fold-9"}
        quote = said(learnt.researcher.post("quotes", body))
        label = said(learnt.researcher.post("bookings", body))["number"]
        with as_system():
            booking = Booking.objects.get(number=int(label.removeprefix("BK-")), tenant=learnt.tenant)
        assert reasons(booking) == [quote["diverted"]] * bool(quote["diverted"])
        return booking

    assert not asked(3.5).by_cost
    in_time = asked(5)
    assert in_time.by_cost
    (reason,) = reasons(in_time)
    assert "the cheapest class comes first" in reason


def test_the_sentence_names_the_class_that_would_be_late() -> None:
    facts = {"workload": "fold", "unit": "step", "costs": "€2.00 on A100 (3 runs)"}
    assert str(event_text("diverted", **facts, late="L40S")) == (
        "By the project's choice the cheapest class that meets the deadline comes first: 1,000 steps of fold "
        "cost €2.00 on A100 (3 runs). It would be late on L40S."
    )
    assert "deadline" not in str(event_text("diverted", **facts)), "an event of before"


def test_a_class_that_is_not_learnt_stops_it(learnt: Site) -> None:
    automatic(learnt)
    assert not booked(learnt, name="other-1").by_cost


def test_the_quote_says_it_and_puts_the_cheapest_class_first(learnt: Site) -> None:
    automatic(learnt)
    body = {"request": SEVERAL, "project": learnt.project.slug, "name": "fold-9"}
    quote = said(learnt.researcher.post("quotes", body))
    assert "1,000 steps of fold cost €" in quote["diverted"]
    assert all("kind:" not in each["request"] for each in quote["options"])
    assert said(learnt.researcher.post("quotes", {**body, "name": "x"}))["diverted"] == ""


def test_the_quote_lists_each_class_in_the_order_of_cost_with_its_numbers(learnt: Site) -> None:
    automatic(learnt)
    with as_owner():
        gpus = list(Gpu.objects.order_by("number").values_list("id", flat=True))
        Gpu.objects.filter(id__in=gpus[4:]).update(gpu_class="a100", model="a100-80gb")
    body = {"request": SEVERAL, "project": learnt.project.slug, "name": "fold-9", "tier": "standard"}
    options = said(learnt.researcher.post("quotes", body))["options"]
    first, second = options[:2]
    assert [(each["gpu_class"], each["request"]) for each in (first, second)] == [
        ("a100", "1 a100 4h"),
        ("h100", "1 h100 3h"),
    ]
    costs = [
        re.search(r"1,000 steps of fold cost €([0-9.]+) by 3 finished runs", " ".join(each["notes"]))
        for each in (first, second)
    ]
    cheap, dear = (float(each[1]) for each in costs if each)
    assert dear / cheap == pytest.approx(1.5, abs=0.01)
    pairs = [(each["gpu_class"], each["tier"]) for each in options if each["kind"] == "as_asked"]
    assert len(pairs) == len(set(pairs))
    in_spot = said(learnt.researcher.post("quotes", {**body, "tier": "spot"}))["options"]
    of_others = [each for each in (*options, *in_spot) if each not in (first, second)]
    learnt_in = {each["tier"] for each in of_others if "1,000 steps" in " ".join(each["notes"])}
    assert {"standard", "spot"} <= {each["tier"] for each in of_others}
    assert learnt_in == {"spot"}, "the cost of a step is that of the requested tier"
    alone = said(learnt.researcher.post("quotes", {**body, "request": second["request"]}))
    assert (alone["diverted"], alone["options"][0]["gpu_class"]) == ("", "h100")


def test_what_it_did_stands_next_to_what_was_predicted_and_it_stops_when_it_made_it_worse(
    learnt: Site,
) -> None:
    automatic(learnt)
    # All of it happens within one second: the choice, the bookings and the second choice stand apart.
    earlier = timedelta(seconds=5)
    with as_owner():
        Diversion.objects.update(since=F("since") - 2 * earlier)
    for number in range(3):
        booking = booked(learnt)
        done = ran(
            learnt.project, owner(learnt), Ran("fold-5", "a100", ago=3 + number, per_hour=100, paid="3")
        )
        with as_owner():
            # The run that the booking had.
            row = BookingEvent.objects.get(booking=booking, kind="diverted")
            BookingEvent.objects.create(
                tenant=row.tenant,
                booking=done,
                at=row.at - earlier,
                kind="diverted",
                state="ended",
                detail=row.detail,
            )
    (state,) = said(learnt.researcher.get("workloads/fold"))["diversion"]
    assert (state["runs"], state["is_stopped"]) == (3, True)
    predicted, measured, otherwise = (float(state[each]) for each in ("predicted", "measured", "otherwise"))
    assert measured == pytest.approx(1.5 / 100)
    assert otherwise / predicted == pytest.approx(1.5)
    assert otherwise < measured
    assert not booked(learnt).by_cost
    client = Client()
    client.force_login(learnt.people["lead"])
    page = flat(client.get(f"/t/{learnt.tenant.slug}/workloads/{learnt.project.slug}/fold").content.decode())
    assert "It has stopped by itself: 3 runs cost more" in page
    listed = flat(client.get(f"/t/{learnt.tenant.slug}/workloads").content.decode())
    assert "Stopped" in listed
    cards = flat(client.get(f"/t/{learnt.tenant.slug}/insights?part=cards").content.decode())
    costs = (
        f"1,000 steps cost €15.00 (€{predicted * 1_000:.2f} predicted, €{otherwise * 1_000:.2f} on the first"
    )
    assert f"3 runs on another class than the first, {state['percent']:+d} %: {costs} class)" in cards
    automatic(learnt, "fold")
    (state,) = said(learnt.researcher.get("workloads/fold"))["diversion"]
    assert (state["runs"], state["is_stopped"]) == (0, False)


def test_the_list_has_what_came_of_each_workload(learnt: Site) -> None:
    """A run on the other class that cost a quarter less than the first class, and a run before the choice."""
    automatic(learnt)
    with as_owner():
        since = Diversion.objects.get().since
        costs = {"h100": "0.006", "a100": "0.004"}
        for name, per_hour, before in (("fold-7", 600, 0), ("fold-8", 100, 60)):
            wanted = Ran(name, "a100", ago=5, hours=1, per_hour=per_hour, paid="2.7")
            BookingEvent.objects.create(
                tenant=learnt.tenant,
                booking=ran(learnt.project, owner(learnt), wanted),
                at=since - timedelta(minutes=before),
                kind="diverted",
                state="ended",
                detail={"first": "h100", "costs": costs, "workload": "fold"},
            )
    client = Client()
    client.force_login(learnt.people["lead"])
    listed = flat(client.get(f"/t/{learnt.tenant.slug}/workloads").content.decode())
    assert re.search(r"-25(&nbsp;|\s)%", listed)


def test_off_suggests_no_other_class(learnt: Site) -> None:
    def codes() -> set[str]:
        return {each["code"] for each in said(learnt.researcher.get("workloads/fold"))["advice"]}

    assert "class" in codes()
    learnt.lead.put(f"projects/{learnt.project.slug}/diversion", {"mode": "off"})
    assert "class" not in codes()


def test_a_lead_sets_it_on_the_page(learnt: Site) -> None:
    client = Client()
    client.force_login(learnt.people["lead"])
    base = f"/t/{learnt.tenant.slug}"
    page = flat(client.get(f"{base}/workloads?project={learnt.project.slug}").content.decode())
    assert "Classes by cost" in page
    sent = {"mode": "automatic", "workload": ""}
    path = f"{base}/projects/{learnt.project.slug}/diversion"
    assert client.post(path, sent).status_code == 302
    assert client.post(path, {"mode": "x"}).status_code != 500
    assert booked(learnt).by_cost


def test_a_learnt_workload_can_be_typed_as_a_kind_of_work(learnt: Site) -> None:
    booking = booked(learnt, "1 h100 or a100 3h kind:fold")
    assert (booking.by_cost, booking.ask["workload"]) == (False, "fold")
    body = {"request": "1 h100 3h kind:nothing", "project": learnt.project.slug}
    assert said(learnt.researcher.post("bookings", body))["code"] == "unknown_workload"


@pytest.mark.parametrize("name", ["folds", "!!!", "f" * 64])
def test_the_order_of_a_workload_that_is_not_there_is_refused_with_those_that_are(
    learnt: Site, name: str
) -> None:
    body = {"mode": "automatic", "workload": name}
    path = f"projects/{learnt.project.slug}/diversion"
    answer = learnt.lead.put(path, body)
    is_too_long = len(name) > 63
    assert (answer.status_code, said(answer)["code"]) == (422, "too_long" if is_too_long else "not_found")
    if not is_too_long:
        assert said(answer)["detail"].endswith("It has: fold.")
    client = Client()
    client.force_login(learnt.people["lead"])
    assert client.post(f"/t/{learnt.tenant.slug}/{path}", body).status_code in (404, 422)
    with as_system():
        assert not Diversion.objects.exists()
    automatic(learnt, "Fold")
