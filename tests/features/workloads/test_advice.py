"""Each rule of advice, where it is said, and what is measured of bookings that took it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from django.test import Client

from allocation.features.workloads.advice import Site, Slice, advice_of
from allocation.features.workloads.models import AdviceShown
from allocation.features.workloads.offers import usual_ask
from allocation.features.workloads.profiles import profiles_of
from allocation.features.workloads.services import workloads_of
from allocation.models import Booking
from allocation.points import Advice, HostSignals
from allocation.rules.ask import AskDocument
from tests.api.builders import Site as Portal
from tests.api.builders import said
from tests.builders_allocation import a_model
from tests.features.workloads.builders import Ran, ran
from tests.features.workloads.series import IDLE, KINDS, OVER_PCIE, working
from tests.roles import as_owner, as_system
from tests.web.flat import flat

pytestmark = pytest.mark.django_db
SLICES = (
    Slice("1g.10gb", 10_000, Fraction(1, 7), Fraction(1, 7)),
    Slice("2g.20gb", 20_000, Fraction(2, 7), Fraction(2, 7)),
    Slice("4g.40gb", 40_000, Fraction(4, 7), Fraction(4, 7)),
)
OFFERED = Site(SLICES, cores_per_gpu=16, nvlink=8)
SMALL = working(12, 6, 4, 3)
NO_TENSOR = working(95, 4, 45, 1)
BUSY = working(92, 6, 20, 15)


def owner(portal: Portal) -> int:
    return int(portal.people["researcher"].pk)


def said_of(
    portal: Portal,
    *rows: Mapping[str, Any],
    runs: int = 2,
    **more: Any,  # noqa: ANN401 (of a run)
) -> dict[str, Advice]:
    """The advice for the next run like these, by code."""
    for number in range(runs):
        ran(portal.project, owner(portal), Ran(f"fold-{number}", rows=rows, ago=24 + number, **more))
    with as_system():
        (found,) = workloads_of([portal.project], "fold")
    return {each.code: each for each in advice_of(found.profiles, usual_ask(found.runs[0]), OFFERED)}


def changed(found: Mapping[str, Advice], code: str) -> AskDocument:
    ask = found[code].ask
    assert isinstance(ask, AskDocument)
    return ask


def test_a_slice_is_enough_for_little_memory_and_little_use(site: Portal) -> None:
    found = said_of(site, SMALL, runs=3, memory_mb=9_000)
    assert "3 runs used at most 9 GB and 12 % of the GPU: a 1g.10gb slice costs a seventh" in (
        found["slice"].sentence
    )
    assert changed(found, "slice").profile == "1g.10gb"
    assert "batch" not in found


def test_advice_on_a_class_is_of_the_request_on_that_class(site: Portal) -> None:
    """A run that could have had an A100 was on an H100 for an hour and a second."""
    booking = ran(site.project, owner(site), Ran("fold-1", ask={"classes": ["a100", "h100"]}))
    with as_owner():
        Booking.objects.filter(id=booking.id).update(duration_seconds=3_601)
    with as_system():
        (found,) = workloads_of([site.project], "fold")
    ask = usual_ask(found.runs[0])
    assert (ask.classes, ask.duration) == (("h100",), 3_660)


def test_a_slice_has_to_have_the_memory_and_the_compute(site: Portal) -> None:
    found = said_of(site, SMALL, memory_mb=12_000)
    assert changed(found, "slice").profile == "2g.20gb"


def test_no_slice_for_busy_work_and_no_advice_after_a_first_run(site: Portal) -> None:
    assert said_of(site, SMALL, runs=1, memory_mb=9_000) == {}
    assert "slice" not in said_of(site, KINDS["compute"], memory_mb=9_000)


def test_input_bound_work_asks_for_cores(site: Portal) -> None:
    found = said_of(site, KINDS["input"])
    assert "without cores of their own" in found["cores"].sentence
    assert changed(found, "cores").cores == 8


def test_few_cores_are_named_and_enough_are_not(site: Portal) -> None:
    said_of(site, KINDS["input"])
    with as_system():
        (found,) = workloads_of([site.project], "fold")
    ask = usual_ask(found.runs[0])
    (two,) = (e for e in advice_of(found.profiles, replace(ask, cores=2), OFFERED) if e.code == "cores")
    assert "Input-bound on 2 cores per GPU, at 42 % busy: ask for 8" in two.sentence
    enough = advice_of(found.profiles, replace(ask, cores=8), OFFERED)
    assert "cores" not in {each.code for each in enough}
    no_cores = advice_of(found.profiles, ask, replace(OFFERED, cores_per_gpu=0))
    assert "cores" not in {each.code for each in no_cores}


def test_idle_tensor_cores_are_named_at_full_use_only(site: Portal) -> None:
    assert "Tensor cores idle (1 %) at 95 % busy" in said_of(site, NO_TENSOR)["precision"].sentence


def test_memory_bound_work_is_said_not_to_gain_from_tflops(site: Portal) -> None:
    found = said_of(site, KINDS["memory"])
    assert "Limited by memory bandwidth (82 % in use)" in found["bandwidth"].sentence
    assert "precision" not in found


def test_full_memory_on_each_of_several_gpus_is_to_be_sharded(site: Portal) -> None:
    found = said_of(site, KINDS["compute"], gpus=2, memory_mb=78_000)
    assert "Memory is full (98 %) on each of 2 GPUs" in found["shard"].sentence


def test_idle_time_at_the_end_makes_the_next_booking_shorter(site: Portal) -> None:
    found = said_of(site, *[KINDS["compute"]] * 12, IDLE)
    assert "Idle for 50 % of the time" in found["shorter"].sentence
    assert changed(found, "shorter").duration == 4_200
    assert "after 1.0 h" in found["shorter"].sentence


def test_idle_time_in_between_changes_no_request(site: Portal) -> None:
    found = said_of(site, *[IDLE] * 12, *[KINDS["compute"]] * 12)
    assert found["shorter"].ask is None


def test_work_over_pcie_asks_for_one_nvlink_group(site: Portal) -> None:
    found = said_of(site, OVER_PCIE, gpus=2)
    ask = changed(found, "group")
    assert (ask.together, ask.required) == ("domain", True)


def test_work_that_waits_for_a_network_asks_for_one_nvlink_group(site: Portal) -> None:
    """Two runs on one node were 1.6 times as fast as three on two nodes."""
    for number in range(5):
        rate = 200 if number < 3 else 320
        each = Ran(f"fold-{number}", rows=[BUSY], gpus=2, per_hour=rate, ago=24 + number)
        ran(site.project, owner(site), each)
    with as_system():
        (found,) = workloads_of([site.project], "fold")
    far = [
        replace(
            run,
            host=HostSignals(network_gib=1.4),
            devices=tuple(replace(each, node=str(place)) for place, each in enumerate(run.devices)),
        )
        for run in found.runs[:3]
    ]
    (profile,) = profiles_of([*far, *found.runs[3:]])
    assert profile.verdict is not None
    assert (profile.verdict.kind, profile.verdict.agreed) == ("communication", 3)
    said = {each.code: each for each in advice_of([profile], usual_ask(found.runs[0]), OFFERED)}["group"]
    assert said.sentence == (
        "Communication-bound across nodes: ask for 2 GPUs in one NVLink group."
        " On one node it was 1.6 times as fast."
    )
    assert said.ask is not None
    (near,) = profiles_of([*far, found.runs[3]])
    (alone,) = (e for e in advice_of([near], usual_ask(found.runs[0]), OFFERED) if e.code == "group")
    assert "times as fast" not in alone.sentence, "one run is no measure"


def test_work_over_nvlink_has_to_change_itself(site: Portal) -> None:
    assert said_of(site, KINDS["communication"], gpus=2)["group"].ask is None


def test_memory_left_is_for_a_larger_batch_and_full_memory_for_a_smaller_one(site: Portal) -> None:
    left = said_of(site, working(60, 10, 50, 30), memory_mb=30_000)
    assert "62 % of the memory was never used at 60 % busy" in left["batch"].sentence
    full = said_of(site, working(60, 10, 50, 30), memory_mb=79_500)
    assert "memory" in full


def test_a_class_that_does_a_step_for_less_is_named_with_its_numbers(site: Portal) -> None:
    with as_system():
        a_model("a100-80gb", product="NVIDIA A100-SXM4-80GB")
    for number in range(3):
        ran(site.project, owner(site), Ran(f"fold-{number}", ago=30 + number, per_hour=900, paid="8"))
        slow = Ran(f"fold-1{number}", "a100", ago=40 + number, per_hour=600, paid="3")
        ran(site.project, owner(site), slow)
    with as_system():
        (found,) = workloads_of([site.project], "fold")
    ask = replace(usual_ask(found.runs[0]), duration=7_200)
    (advice,) = (each for each in advice_of(found.profiles, ask, OFFERED) if each.code == "class")
    assert "cost €2.50 on a100 instead of €4.44 on h100, by 3 and 3 finished runs" in advice.sentence
    assert isinstance(advice.ask, AskDocument)
    assert (advice.ask.classes, advice.ask.duration) == (("a100",), 10_800)
    allowed = replace(ask, classes=("h100", "a100"))
    assert "class" not in {each.code for each in advice_of(found.profiles, allowed, OFFERED)}


def small_runs(site: Portal, count: int, **more: Any) -> None:  # noqa: ANN401 (of a run)
    for number in range(count):
        each = Ran(f"embed-{number}", rows=(SMALL,), memory_mb=5_000, ago=24 + number, **more)
        ran(site.project, owner(site), each)


def codes(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    return {each["code"] for each in rows}


def test_a_quote_advises_counts_it_and_a_booking_that_takes_it_is_measured(site: Portal) -> None:
    small_runs(site, 3, paid="9")
    body = {"request": "1 h100 2h", "project": site.project.slug, "name": "embed-9"}
    quote = said(site.researcher.post("quotes", body))
    (slice_,) = (each for each in quote["advice"] if each["code"] == "slice")
    assert quote["workload"] == "embed"
    assert slice_["request"] == "1g.10gb h100 2h"
    assert slice_["labels"] == {"workload": "embed", "advice": "slice"}
    unnamed = said(site.researcher.post("quotes", {**body, "name": ""}))
    assert (unnamed["advice"], unnamed["workload"]) == ([], "")
    taken = {"request": slice_["request"], "project": body["project"], "labels": slice_["labels"]}
    booked = said(site.researcher.post("bookings", taken))
    assert booked["workload"] == "embed"
    ran(
        site.project,
        owner(site),
        Ran("embed-8", ask={"profile": "1g.10gb"}, labels=slice_["labels"], paid="3", ago=5),
    )
    read = said(site.researcher.get("workloads/embed"))
    assert "slice" in codes(read["advice"])
    (effect,) = (each for each in read["effects"] if each["code"] == "slice")
    assert (effect["shown"], effect["taken"], effect["runs"], effect["percent"]) == (1, 2, 1, -67)
    assert (float(effect["per_run"]), float(effect["per_run_without"])) == (3, 9)


def test_others_see_no_advice(site: Portal) -> None:
    small_runs(site, 2)
    body = {"request": "1 h100 2h", "project": site.other_project.slug, "name": "embed-9"}
    assert said(site.outsider.post("quotes", body))["advice"] == []
    with as_owner():
        assert not AdviceShown.objects.exists()


def test_the_panel_the_card_and_the_page_show_it_with_one_click(site: Portal) -> None:
    small_runs(site, 2)
    client = Client()
    client.force_login(site.people["researcher"])
    base = f"/t/{site.tenant.slug}"
    query = f"q=1+h100+2h&project={site.project.slug}"
    panel = flat(client.get(f"{base}/book?{query}&work=embed").content.decode())
    assert "used at most 5 GB" in panel
    assert "q=1g.10gb+h100+2h" in panel
    assert "See 1g.10gb slice of" in panel
    assert "used at most 5 GB" not in flat(client.get(f"{base}/book?{query}").content.decode())
    page = flat(client.get(f"{base}/workloads/{site.project.slug}/embed").content.decode())
    assert "For the next booking" in page
    assert "Quotes that showed it" in page
    with as_system():
        label = Booking.objects.filter(name="embed-0").get().label
    assert "used at most 5 GB" in flat(client.get(f"{base}/bookings/{label}").content.decode())


def test_a_booking_on_the_page_keeps_the_chosen_workload(site: Portal) -> None:
    client = Client()
    client.force_login(site.people["researcher"])
    sent = {
        "key": "0" * 32,
        "option": "standard 1 h100 2h",
        "project": site.project.slug,
        "work": "embed",
        "labels": "advice=slice",
    }
    assert client.post(f"/t/{site.tenant.slug}/book", sent).status_code == 302
    with as_system():
        assert Booking.objects.get(labels__workload="embed").labels["advice"] == "slice"
