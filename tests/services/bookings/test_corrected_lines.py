"""Corrected lines are lines that the rules of the project admit."""

from dataclasses import replace
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from allocation.queries.fleet.catalogue import ask_catalogue
from allocation.rules.ask import parse_ask
from allocation.services.bookings.checks.admission import Asker, admitted
from allocation.services.bookings.request_text import project_named, request_read
from allocation.services.bookings.requests import BookingRequest
from allocation.services.bookings.series import Repeat, series_check, series_dates
from tenants.models import Tier
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import a_tier
from tests.builders_allocation import NOW, Lab, a_lab
from tests.roles import as_system
from tests.servers.servers import Servers


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    """Three of the site's eight H100 for one organisation."""
    return a_lab("helix", gpus=8, limit=3)


def lines(lab: Lab, text: str, tier: str = "standard") -> list[str]:
    """The corrected lines, each of which is admitted."""
    named = project_named(lab.actor, lab.project.slug, tier)
    with tenant_tx(lab.tenant_id):
        with pytest.raises(Refused) as refused:
            request_read(text, project=named, zone="UTC", now=NOW)
        found = [each["request"] for each in refused.value.alternatives]
        for line in found:
            ask, said = request_read(line, project=named, zone="UTC", now=NOW)
            admitted(lab.project, said or tier, ask, NOW, Asker(lab.actor.user_id))
    return found


def test_of_lines_beyond_a_quota_one_is_what_the_quota_has_left(lab: Lab) -> None:
    assert lines(lab, "several h100 4h") == ["2 h100 4h", "3 h100 4h", "h100 4h"]
    assert lines(lab, "many h100 4h") == ["3 h100 4h", "h100 4h"]


def test_lines_of_a_tier_for_others_are_left_out(lab: Lab) -> None:
    a_tier("spot", pausable=True)
    a_tier("batch", pausable=True)
    both = {"1 h100 4h batch", "1 h100 4h spot"}
    assert both <= set(lines(lab, "1 h100 4h preemptible"))
    with as_system():
        Tier.objects.filter(slug="batch").update(max_duration_seconds=3_600)
    found = lines(lab, "1 h100 4h preemptible")
    assert "1 h100 4h spot" in found
    assert "1 h100 4h batch" not in found


def test_the_length_that_a_tier_allows_is_offered_for_a_missing_one(lab: Lab) -> None:
    """Of an hour, four and a day the last is too long."""
    with as_system():
        Tier.objects.filter(slug="standard").update(max_duration_seconds=4 * 3_600)
    assert lines(lab, "1 h100") == ["1 h100 1h", "1 h100 4h"]


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("1 h100 2-3 every day from 2027-03-01 until 2027-03-05", 5),
        ("1 h100 2-3 every day until 2027-03-05", 28),
    ],
)
def test_a_corrected_series_has_dates_that_its_tier_allows(lab: Lab, text: str, times: int) -> None:
    """Not only its first one: the end of the asked series may be far beyond."""
    with as_system():
        Tier.objects.filter(slug="standard").update(advance_seconds=28 * 86_400)
    named = project_named(lab.actor, lab.project.slug)
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as refused:
        request_read(text, project=named, zone="UTC", now=NOW, first=True)
    assert refused.value.code == "which_half"
    (line,) = (each["request"] for each in refused.value.alternatives)
    parsed = parse_ask(line, catalogue=ask_catalogue(), now=NOW, zone=ZoneInfo("UTC"))
    assert parsed.repeat is not None
    ask = parsed.document(first=True)
    request = BookingRequest(lab.project.slug, "standard", ask)
    repeat = Repeat(parsed.repeat, keeps_end=True)
    with tenant_tx(lab.tenant_id):
        assert len(series_dates(request, repeat)[1]) == times
        series_check(lab.actor, lab.project, request, repeat, NOW)


@pytest.mark.parametrize(
    ("text", "code"), [("1 h100 4h " + "x" * 200, "text_too_long"), ("1 h100\u202e 4h", "control_characters")]
)
def test_a_text_of_wrong_length_or_characters_is_refused(lab: Lab, text: str, code: str) -> None:
    """Pages check it before, but not all, and Jira's issues have any text."""
    named = project_named(lab.actor, lab.project.slug)
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as refused:
        request_read(text, project=named, zone="UTC", now=NOW)
    assert (refused.value.code, refused.value.param) == (code, "request")


def test_a_person_who_may_not_book_there_gets_no_lines_of_its_rules(lab: Lab) -> None:
    viewer = replace(lab.actor, roles={})
    named = project_named(viewer, lab.project.slug)
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as refused:
        request_read("many h100 4h", project=named, zone="UTC", now=NOW)
    assert {each["request"] for each in refused.value.alternatives} == {"4 h100 4h", "8 h100 4h", "h100 4h"}


def test_no_line_books_another_day_than_was_said(lab: Lab) -> None:
    """The next such date is beyond the tier's window: the nearest day that it allows is another one."""
    with as_system():
        Tier.objects.filter(slug="standard").update(advance_seconds=28 * 86_400)
    found = lines(lab, f"2 h100 6h {NOW - timedelta(days=1):%d %b}")
    assert not any(" at " in line for line in found)
