"""A dry run of a change of a series names every date that can't change, before anything changes."""

from datetime import time
from typing import Any

import pytest

from allocation.api.bookings.change.series import trial_data
from allocation.models import BookingChange, Series
from allocation.services.bookings.change.series import Scope, SeriesPatch, series_patch
from allocation.services.quotes import series_changes
from allocation.services.quotes.series_changes import SeriesQuote, series_change_quote, series_trial
from allocation.web.changes.series_scope import conflict_words
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders_allocation import HOUR, NOW, Lab, a_lab
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.bookings.test_changes import SOON, turn
from tests.services.bookings.test_series_changes import (
    DAY,
    LATER,
    NINE,
    a_series,
    changed,
    dates,
    in_the_way,
    windows,
)

pytestmark = pytest.mark.turn


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix", gpus=4)


@pytest.fixture
def series(lab: Lab) -> Series:
    """Three dates of two GPUs from 9 to 11; somebody has two of the four GPUs on the second day at 12."""
    made = a_series(lab)
    in_the_way(lab, 1)
    turn(NOW)
    return made


def quoted(lab: Lab, series: Series, now: Any = SOON, **parts: Any) -> SeriesQuote:  # noqa: ANN401
    patch = SeriesPatch(Scope.ALL, **parts)
    first = dates(series)[0]
    with tenant_tx(lab.tenant_id):
        return series_change_quote(actor=lab.actor, series=series, date=first, patch=patch, now=now)


def numbers(quote: SeriesQuote) -> list[str]:
    return [each.booking.label for each in quote.conflicts]


@pytest.mark.parametrize("is_partial", [False, True])
def test_only_the_date_without_room_is_in_conflict(lab: Lab, series: Series, is_partial: bool) -> None:  # noqa: FBT001
    rows, before = dates(series), windows(dates(series))
    quote = quoted(lab, series, at=time(12), count=3, is_partial=is_partial)
    assert numbers(quote) == [rows[1].label]
    assert (quote.conflicts[0].code, quote.is_known) == ("change_no_room", True)
    assert quote.conflicts[0].sentence
    assert quote.outcomes == {"asked": 3}
    patch = SeriesPatch(Scope.ALL, is_partial=is_partial)
    stays = "It stays as it is." if is_partial else "All dates stay as they are."
    assert conflict_words(quote, patch) == f"1 of 3 dates does not fit now. {stays}"
    with as_system():
        assert not BookingChange.objects.exists(), "nothing is written"
    # The dry run says what happens.
    changed(lab, series, "all", at=time(12), count=3, is_partial=is_partial)
    turn(LATER)
    assert windows(dates(series)) == ([(0, 12, 3), (1, 9, 2), (2, 12, 3)] if is_partial else before)


def test_a_change_that_fits_has_no_conflict(lab: Lab, series: Series) -> None:
    quote = quoted(lab, series, at=time(15))
    assert numbers(quote) == []
    assert conflict_words(quote, SeriesPatch(Scope.ALL)) == ""


def test_all_dates_that_a_rule_refuses_are_named(lab: Lab, series: Series) -> None:
    late = NINE + DAY - HOUR / 2
    rows = dates(series)
    patch = SeriesPatch(Scope.ALL, at=time(8))
    with pytest.raises(Refused) as found, tenant_tx(lab.tenant_id):
        series_patch(actor=lab.actor, series=series, date=None, patch=patch, tag=None, now=late)
    said: Any = found.value.numbers["conflicts"]
    assert [each["number"] for each in said] == [rows[0].label, rows[1].label]
    assert {each["code"] for each in said} == {"window_past"}
    quote = quoted(lab, series, now=late, at=time(8), is_partial=True)
    assert numbers(quote) == [rows[0].label, rows[1].label]
    assert quote.outcomes == {"refused": 2, "asked": 1}


def test_rest_says_of_each_date_whether_it_has_room(lab: Lab, series: Series) -> None:
    patch = SeriesPatch(Scope.ALL, at=time(12), count=3)
    with tenant_tx(lab.tenant_id):
        trial = series_trial(actor=lab.actor, series=series, date=None, patch=patch, tag=None, now=SOON)
        rows = trial_data(trial)
    assert [each["outcome"] for each in rows] == ["asked", "no_room", "asked"]
    assert [bool(each["sentence"]) for each in rows] == [False, True, False]


def test_a_plan_that_is_too_large_is_not_computed(
    lab: Lab, series: Series, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series_changes, "MOST_ROWS", 0)
    quote = quoted(lab, series, at=time(12), count=3)
    assert (numbers(quote), quote.is_known) == ([], False)
    assert "too large" in conflict_words(quote, SeriesPatch(Scope.ALL))
