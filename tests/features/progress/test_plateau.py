"""A metric that has stopped getting better: series of known shapes, and what people see of one."""

from collections.abc import Callable
from datetime import timedelta
from html import unescape
from math import exp
from random import Random
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from allocation.features.progress.models import Progress
from allocation.features.progress.plateau import (
    LEAST_READINGS,
    MOST_POINTS,
    Better,
    Series,
    metric_by_default,
    verdict_of,
)
from allocation.models import Booking
from tests.api.builders import Site, said
from tests.features.progress.test_progress import aged, running, sent
from tests.roles import as_owner, as_system
from tests.web.flat import flat

__all__ = ["running"]

SHAPES: dict[str, tuple[Callable[[float], float], bool | None]] = {
    "reached its floor": (lambda x: 2 * exp(-20 * x) + 0.5, True),
    "better at first, then worse": (lambda x: 2 * exp(-10 * x) + 0.5 + 0.3 * x, True),
    "one step down": (lambda x: 2.0 if x < 0.2 else 1.0, True),
    "falls evenly": (lambda x: 3 - 2 * x, False),
    "falls slowly, as a long training": (lambda x: 10 * (1 + 1000 * x) ** -0.1, False),
    "falls again near its end": (lambda x: 2 * exp(-20 * x) + 1 if x < 0.8 else 0.8, False),
    "never got better": (lambda _: 1.0, None),
}


def a_series(value: Callable[[float], float], count: int, noise: float, seed: int = 0) -> Series:
    draw, found = Random(seed), Series()  # noqa: S311 (not a secret)
    for number in range(count):
        found = found.with_reading(10 * number, value(number / count) + draw.gauss(0, noise))
    return found


@pytest.mark.parametrize("count", [60, 1_000])
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_series(name: str, count: int) -> None:
    """Of 40 series with noise at most two have another verdict than a series of this shape has."""
    value, expected = SHAPES[name]
    found = [verdict_of(a_series(value, count, 0.01, seed), Better.LOWER) for seed in range(40)]
    wrong = sum((each and each.is_plateau) is not expected for each in found)
    assert wrong <= 2, wrong


def test_where_noise_hides_what_happens_there_is_no_verdict_more_often_than_a_wrong_one() -> None:
    falls = [verdict_of(a_series(lambda x: 3 - x, 60, 2.0, seed), Better.LOWER) for seed in range(40)]
    assert sum(each is not None and each.is_plateau for each in falls) <= 2
    assert sum(each is None for each in falls) > 20


def test_higher_values_can_be_the_better_ones() -> None:
    rises = a_series(lambda x: x, 100, 0.01)
    stays = a_series(lambda x: 1 - exp(-20 * x), 100, 0.01)
    better, plateau = (verdict_of(each, Better.HIGHER) for each in (rises, stays))
    assert better is not None
    assert not better.is_plateau
    assert plateau is not None
    assert plateau.is_plateau
    assert plateau.best == pytest.approx(1, abs=0.05)
    assert 600 <= plateau.since <= 700
    assert verdict_of(rises, Better.LOWER) is None, "it never got better"


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1.0] * 200,
        [3 - 0.1 * number for number in range(LEAST_READINGS - 1)],
        [float("nan")] * 60,
        [1.0, float("inf")] * 30,
        [1e308, -1e308] * 30,
    ],
    ids=["none", "constant", "few", "nan", "infinite", "huge"],
)
def test_bad_series_have_no_verdict(values: list[float]) -> None:
    series = Series()
    for number, value in enumerate(values):
        series = series.with_reading(number, value)
    assert verdict_of(series, Better.LOWER) is None


def test_a_series_of_any_length_has_some_dozens_of_points_and_the_same_mean() -> None:
    series, draw = Series(), Random(3)  # noqa: S311 (not a secret)
    values = [draw.random() for _ in range(10_007)]
    for number, value in enumerate(values):
        series = series.with_reading(number, value)
        assert len(series.values) == len(series.steps) <= MOST_POINTS
    assert series.readings == len(values)
    whole = series.values[:-1]
    assert sum(whole) / len(whole) == pytest.approx(
        sum(values[: len(whole) * series.stride]) / len(whole) / series.stride
    )
    assert [*series.steps] == [number * series.stride for number in range(len(series.steps))]


def test_a_run_from_a_checkpoint_forgets_the_readings_after_it() -> None:
    series = a_series(lambda x: x, 40, 0)
    assert series.until(200).steps[-1] == 190
    assert series.until(200).readings == 20
    assert series.until(0) == Series()
    assert series.until(1e9) == series


def test_loss_is_watched_unless_somebody_says_another() -> None:
    assert metric_by_default(["lr", "loss", "a_loss"]) == "loss"
    assert metric_by_default(["val/loss", "train/Loss", "lr"]) == "train/Loss"
    assert metric_by_default(["accuracy"]) == ""


def browser(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def shown(site: Site, booking: Booking) -> Any:  # noqa: ANN401 (of JSON)
    return said(site.researcher.get(f"bookings/{booking.label}"))["progress"]["metric"]


def test_a_plateau_is_in_rest_and_on_the_page(site: Site, running: Booking) -> None:
    draw = Random(1)  # noqa: S311 (not a secret)
    for number in range(60):
        loss = 2 * exp(-number / 3) + 0.5 + draw.gauss(0, 0.01)
        answer = sent(site, running, step=10 * number, metrics={"lr": 0.1, "loss": loss})
        assert answer.status_code == 200
    found = shown(site, running)
    assert (found["name"], found["better"], found["readings"], found["plateau"]) == (
        "loss",
        "lower",
        60,
        True,
    )
    assert found["since"] == 400
    page = browser(site, "researcher").get(f"/t/helix/bookings/{running.label}")
    assert "loss has not become better since step 400; the best was 0.4" in flat(
        unescape(page.content.decode())
    )


def test_the_best_of_a_long_run_is_called_a_mean(site: Site, running: Booking) -> None:
    """The newest reading can be better than the best mean, and a reader has to know why."""
    draw, least = Random(1), 9.0  # noqa: S311 (not a secret)
    for number in range(100):
        loss = 2 * exp(-number / 3) + 0.5 + draw.gauss(0, 0.01)
        least = min(least, loss)
        assert sent(site, running, step=10 * number, metrics={"loss": loss}).status_code == 200
    found = shown(site, running)
    assert (found["plateau"], found["best_of"]) == (True, 2)
    assert least < found["best"]
    page = flat(
        unescape(browser(site, "researcher").get(f"/t/helix/bookings/{running.label}").content.decode())
    )
    assert f"the best mean of 2 readings was {found['best']:.4g}." in page


def test_a_value_that_is_repeated_is_one_reading(site: Site, running: Booking) -> None:
    for step in range(5):
        sent(site, running, step=step, metrics={"loss": 2.5})
    sent(site, running, step=6)
    assert shown(site, running)["readings"] == 1


def test_the_program_says_which_metric_and_which_values_are_better(site: Site, running: Booking) -> None:
    sent(site, running, step=1, metrics={"loss": 2.5, "acc": 0.1})
    sent(site, running, step=2, metrics={"loss": 2.4, "acc": 0.2}, watch="acc", better="higher")
    found = shown(site, running)
    assert (found["name"], found["better"], found["readings"], found["plateau"]) == ("acc", "higher", 1, None)
    sent(site, running, step=3, metrics={"loss": 2.4, "acc": 0.3})
    assert shown(site, running)["readings"] == 2
    sent(site, running, step=4, metrics={"loss": 2.4, "acc": 0.3}, watch="loss")
    found = shown(site, running)
    assert (found["name"], found["better"], found["readings"]) == ("loss", "lower", 1)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"watch": "acc"}, "progress_watch"),
        ({"watch": "a b", "better": "higher"}, "progress_watch"),
        ({"watch": "", "better": "higher"}, "empty"),
        ({"better": "higher"}, "progress_watch"),
        ({"watch": "acc", "better": "up"}, "unknown_choice"),
        ({"watch": "a" * 41, "better": "lower"}, "too_long"),
        ({"watch": 7, "better": "lower"}, "wrong_type"),
    ],
    ids=str,
)
def test_a_metric_that_is_not_said_well_changes_nothing(
    site: Site, running: Booking, body: dict[str, object], code: str
) -> None:
    answer = sent(site, running, step=1, **body)
    assert (answer.status_code in (400, 422), said(answer)["code"]) == (True, code)
    with as_system():
        assert not Progress.objects.exists()


def test_after_a_pause_the_readings_from_the_checkpoint_on_begin_anew(site: Site, running: Booking) -> None:
    for step in range(10):
        sent(site, running, step=step, metrics={"loss": 1 / (step + 1)})
    aged(running, timedelta(hours=2))
    with as_system():
        Booking.objects.filter(id=running.id).update(ready_at=timezone.now() - timedelta(minutes=1))
    sent(site, running, step=4, metrics={"loss": 0.21})
    assert shown(site, running)["readings"] == 5


def test_people_choose_the_metric_on_a_page(site: Site, running: Booking) -> None:
    address = f"/t/helix/bookings/{running.label}/metric"
    owner = browser(site, "researcher")
    assert "None is watched" in owner.get(address).content.decode()
    sent(site, running, step=1, metrics={"loss": 2.5, "acc": 0.1})
    card = owner.get(f"/t/helix/bookings/{running.label}").content.decode()
    assert address in card
    body = {"act": "watch", "watch": "acc", "better": "higher"}
    assert owner.post(address, body).status_code == 302
    assert shown(site, running)["name"] == "acc"
    assert "higher is better" in owner.get(address).content.decode()
    wrong = owner.post(address, body | {"watch": "f1"})
    assert wrong.status_code in (200, 400, 422)
    assert shown(site, running)["name"] == "acc"
    assert browser(site, "viewer").post(address, body).status_code == 403
    assert browser(site, "outsider").get(address).status_code == 404


def test_the_readings_are_bounded_in_the_database(site: Site, running: Booking) -> None:
    sent(site, running, step=1, metrics={"loss": 2.5})
    wrongs: tuple[dict[str, Any], ...] = (
        {"metric_values": [0.0] * 65, "metric_steps": [0.0] * 65},
        {"metric_steps": []},
        {"metric_count": 2},
        {"better": "up"},
    )
    for wrong in wrongs:
        with as_owner(), pytest.raises(IntegrityError), transaction.atomic():
            Progress.objects.update(**wrong)
