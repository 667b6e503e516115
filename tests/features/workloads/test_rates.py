"""What finished runs have shown decides how long the next one takes on other classes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.progress.models import Progress
from allocation.features.workloads.rates import LEAST_RUNS, Run, rates_of
from allocation.models import Booking, WorkSpeed
from allocation.rules.states import State
from allocation.services.record.workloads import WorkLength, work_lengths
from tenants.models import Project
from tests.api.builders import Site, said
from tests.builders_allocation import a_booking, a_model, an_ask
from tests.roles import as_owner, as_system
from tests.web.flat import flat

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def run(rate: float, gpu_class: str = "h100", unit: str = "step") -> Run:
    return Run(gpu_class, unit, rate, NOW)


def test_two_runs_show_nothing_and_three_their_median_and_quartiles() -> None:
    assert rates_of([run(100), run(120)]) == {}
    (rate,) = rates_of([run(100), run(5_000), run(120)]).values()
    assert (rate.per_gpu_hour, rate.low, rate.high, rate.runs) == (120, 110, 2_560, LEAST_RUNS)


def test_only_runs_in_the_unit_of_most_runs_are_compared() -> None:
    steps = [run(100) for _ in range(4)]
    epochs = [run(1, gpu_class, "epoch") for gpu_class in ("h100", "a100") for _ in range(3)]
    found = rates_of([*steps, *epochs])
    assert {(name, rate.unit, rate.per_gpu_hour) for name, rate in found.items()} == {
        ("h100", "epoch", 1),
        ("a100", "epoch", 1),
    }
    assert rates_of([]) == {}


@pytest.fixture
def typed(site: Site) -> None:
    """The operator's table says that an A100 takes twice as long as an H100."""
    with as_system():
        a_model("a100-80gb", product="NVIDIA A100-SXM4-80GB")
        for name, thousandths in (("h100", 1000), ("a100", 500)):
            WorkSpeed.objects.create(workload="training", gpu_class_id=name, thousandths=thousandths)


def finished(
    project: Project,
    owner: int,
    gpu_class: str,
    per_hour: float,
    *,
    count: int = 1,
    minutes: float = 20,
    state: str = State.ENDED,
    **ask: Any,  # noqa: ANN401 (fields of a request)
) -> Booking:
    """A finished training run that said how far it was."""
    now = timezone.now()
    booking = a_booking(project, owner, state=state)
    with as_owner():
        Booking.objects.filter(id=booking.id).update(
            planned_class=gpu_class, ask={**booking.ask, "workload": "training", "count": count, **ask}
        )
        since = now - timedelta(minutes=minutes)
        Progress.objects.create(
            booking=booking,
            tenant_id=project.tenant_id,
            step=per_hour * minutes / 60,
            unit="step",
            metrics={},
            at=now,
            anchor_at=since,
            anchor_step=0,
            mark_at=since,
            mark_step=0,
        )
    return booking


def lengths(project: Project) -> dict[str, WorkLength]:
    """How long ten hours of training on an H100 take on each class."""
    with as_system():
        found = work_lengths(replace(an_ask(hours=10), workload="training"), project.id)
    return {each.gpu_class: each for each in found}


def on_a100(project: Project) -> float:
    """The hours on an A100."""
    return lengths(project)["a100"].seconds / 3600


@pytest.mark.django_db
def test_the_table_counts_until_both_classes_have_three_runs(site: Site, typed: None) -> None:
    owner = site.people["researcher"].pk
    assert {name: each.seconds for name, each in lengths(site.project).items()} == {
        "h100": 36_000,
        "a100": 72_000,
    }
    for rate in (100, 120, 110):
        finished(site.project, owner, "h100", rate)
    for rate in (2 * 100, 2 * 90):
        finished(site.project, owner, "a100", rate, count=2)
    assert on_a100(site.project) == 20
    finished(site.project, owner, "a100", 2 * 95, count=2)
    found = lengths(site.project)
    # 110 steps a GPU on an H100 and 95 on an A100: 10 h become 11 h 35 min, in whole minutes upwards.
    assert found["a100"].seconds == -(-36_000 * 1_000 // (864 * 60)) * 60
    assert (found["a100"].rate is not None, found["h100"].seconds) == (True, 36_000)
    assert on_a100(site.hidden) == 20, "another project learns apart"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "odd",
    [{"profile": "1g.10gb"}, {"share": 500}, {"groups": [{"gpu_class": "a100"}]}, {"workload": "inference"}],
)
def test_slices_mixed_bookings_and_other_work_teach_nothing(
    site: Site, typed: None, odd: dict[str, Any]
) -> None:
    owner = site.people["researcher"].pk
    for _ in range(3):
        finished(site.project, owner, "h100", 100)
        finished(site.project, owner, "a100", 95, **odd)
    assert on_a100(site.project) == 20


@pytest.mark.django_db
def test_runs_that_are_short_or_not_over_teach_nothing(site: Site, typed: None) -> None:
    owner = site.people["researcher"].pk
    for number in range(3):
        finished(site.project, owner, "h100", 100)
        finished(site.project, owner, "a100", 95, minutes=4 if number else 20)
        finished(site.project, owner, "a100", 95, state=State.ACTIVE)
    assert on_a100(site.project) == 20


@pytest.mark.django_db
def test_a_class_that_the_table_lacks_is_learnt(site: Site) -> None:
    with as_system():
        a_model("a100-80gb", product="NVIDIA A100-SXM4-80GB")
    owner = site.people["researcher"].pk
    for _ in range(3):
        finished(site.project, owner, "h100", 100)
        finished(site.project, owner, "a100", 50)
    assert on_a100(site.project) == 20


@pytest.mark.django_db
def test_the_quote_the_workload_and_the_panel_say_what_was_learnt(site: Site, typed: None) -> None:
    owner = site.people["researcher"].pk
    ask = {"request": "1 h100 10h kind:training", "project": site.project.slug}
    before = said(site.researcher.post("quotes", ask))["lengths"]
    assert [(each["gpu_class"], each["learnt"]) for each in before] == [("h100", None), ("a100", None)]
    for _ in range(3):
        finished(site.project, owner, "h100", 100)
        finished(site.project, owner, "a100", 80)
    (first, other) = said(site.researcher.post("quotes", ask))["lengths"]
    assert (first["seconds"], other["seconds"]) == (36_000, 45_000)
    assert (other["learnt"]["runs"], other["learnt"]["per_gpu_hour"]) == (3, pytest.approx(80))
    profile = said(site.researcher.get("workloads/training"))["profile"]
    assert [(each["project"], each["gpu_class"], each["runs"]) for each in profile] == [
        (site.project.slug, "a100", 3),
        (site.project.slug, "h100", 3),
    ]
    assert said(site.outsider.get("workloads/training"))["profile"] == []
    assert site.researcher.get("workloads/cooking").status_code == 404
    client = Client()
    client.force_login(site.people["researcher"])
    page = client.get(f"/t/{site.tenant.slug}/book?q=1+h100+10h+kind:training&project={site.project.slug}")
    assert "in steps of a GPU in an hour: 100 on" in flat(page.content.decode())


@pytest.mark.django_db
def test_a_booking_keeps_the_lengths_with_which_it_was_made(site: Site, typed: None) -> None:
    ask = {"request": "1 h100 10h kind:training", "project": site.project.slug}
    label = said(site.researcher.post("bookings", ask))["number"]
    owner = site.people["researcher"].pk
    for _ in range(3):
        finished(site.project, owner, "h100", 100)
        finished(site.project, owner, "a100", 80)
    with as_system():
        booking = Booking.objects.get(number=int(label.removeprefix("BK-")), tenant=site.tenant)
    assert booking.class_durations in ([], [["h100", 36_000]])


@pytest.mark.django_db
def test_the_card_compares_a_run_with_those_before(site: Site, typed: None) -> None:
    owner = site.people["researcher"].pk
    for _ in range(3):
        finished(site.project, owner, "h100", 100)
    booking = finished(site.project, owner, "h100", 80, state=State.ACTIVE)
    with as_system():
        Booking.objects.filter(id=booking.id).update(ready_at=timezone.now() - HOUR)
    client = Client()
    client.force_login(site.people["researcher"])
    page = flat(client.get(f"/t/{site.tenant.slug}/bookings/{booking.label}/progress").content.decode())
    assert "About 0.8 times as fast as the last 3 runs of this work" in page


def series(*runs: tuple[float, str]) -> Any:  # noqa: ANN401 (a rate, or None)
    """The rate of runs, one an hour, the oldest first, each with its driver."""
    rows = [
        Run("h100", "step", rate, NOW + number * HOUR, driver) for number, (rate, driver) in enumerate(runs)
    ]
    return rates_of(reversed(rows)).get("h100")


def test_a_new_driver_begins_a_series_when_it_has_three_runs() -> None:
    old, new = [(100.0, "550.54")] * 4, [(140.0, "570.86")] * 3
    waits = series(*old, *new[:2])
    assert (waits.per_gpu_hour, waits.runs, waits.began, waits.driver) == (100, 4, "driver", "550.54")
    begun = series(*old, *new)
    assert (begun.per_gpu_hour, begun.runs, begun.began, begun.driver) == (140, 3, "driver", "570.86")
    assert (begun.since, begun.last) == (NOW + 4 * HOUR, NOW + 6 * HOUR)


def test_runs_whose_driver_is_not_known_belong_to_those_after_them() -> None:
    rate = series(*[(100.0, "")] * 3, (104.0, "550.54"))
    assert (rate.runs, rate.began, rate.driver) == (4, "", "550.54")


def test_a_jump_begins_a_series_and_two_odd_runs_do_not() -> None:
    usual = [(100.0 + number % 3, "550.54") for number in range(6)]
    odd = series(*usual, (300.0, "550.54"), (310.0, "550.54"), *usual)
    assert (odd.runs, odd.began) == (14, "")
    jumped = series(*usual, *[(130.0, "550.54")] * 3)
    assert (jumped.per_gpu_hour, jumped.runs, jumped.began) == (130, 3, "jump")
    again = series(*usual, *[(130.0, "550.54")] * 6, *usual)
    assert (again.runs, again.began, again.per_gpu_hour) == (6, "jump", 101)


def test_runs_that_vary_widely_do_not_jump() -> None:
    wide = [(float(rate), "550.54") for rate in (60, 100, 150, 80, 120, 140, 135, 145)]
    assert series(*wide).began == ""


@pytest.mark.django_db
def test_a_driver_that_changed_is_named_on_the_page_and_in_rest(site: Site) -> None:
    owner = site.people["researcher"].pk
    for number, (rate, driver) in enumerate([(100, "550.54")] * 3 + [(150, "570.86")] * 3):
        booking = finished(site.project, owner, "h100", rate)
        at = timezone.now() - timedelta(days=9 - number)
        with as_owner():
            since = at - timedelta(minutes=20)
            Progress.objects.filter(booking=booking).update(
                driver=driver, at=at, anchor_at=since, mark_at=since
            )
    (profile,) = said(site.researcher.get("workloads/training"))["profile"]
    assert (profile["per_gpu_hour"], profile["rated_runs"]) == (pytest.approx(150), 3)
    assert (profile["began"], profile["driver"], profile["runs"]) == ("driver", "570.86", 6)
    client = Client()
    client.force_login(site.people["researcher"])
    page = client.get(f"/t/{site.tenant.slug}/workloads/{site.project.slug}/training").content.decode()
    assert "Rate of 3 runs with driver 570.86, the last 4 days ago." in flat(page)
    assert "Runs with another driver no longer count." in flat(page)
