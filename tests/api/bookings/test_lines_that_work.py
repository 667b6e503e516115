"""What would work instead of a refused line is a line, too, and it is not refused."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tenants.models import Tier
from tests.api.builders import Site, said
from tests.roles import as_owner

LINES = {
    "more than the quota": ("5 h100 2h", None),
    "more, in a window": ("5 h100 friday 10-12", None),
    "longer than the tier allows": ("1 h100 8d spot", None),
    "longer, the tier in its field": ("1 h100 8d", "spot"),
    "past its deadline": ("1 h100 40h by tomorrow 9am", None),
    "beyond the horizon": ("1 h100 2h on 2030-01-05", None),
}


@pytest.mark.turn
@pytest.mark.parametrize("path", ["quotes", "bookings", "bookings/batch"])
@pytest.mark.parametrize("case", LINES)
def test_each_offered_line_works_as_it_is(site: Site, case: str, path: str) -> None:
    line, tier = LINES[case]
    body = {"project": "folding", **({"tier": tier} if tier else {})}
    refused = _refusal(site, path, body | {"request": line})
    lines = [each["request"] for each in refused["alternatives"] if "request" in each]
    assert lines, refused
    for offered in lines:
        answer: Any = site.researcher.post("quotes", body | {"request": offered})
        assert answer.status_code == 200, (offered, said(answer))


def _refusal(site: Site, path: str, body: dict[str, str]) -> Any:  # noqa: ANN401 (JSON)
    if path == "bookings/batch":
        batch: Any = site.researcher.post(path, {"items": [body], "mode": "some"})
        return said(batch)["items"][0]["error"]
    answer: Any = site.researcher.post(path, body)
    assert answer.status_code in (409, 422), said(answer)
    return said(answer)


def test_a_series_of_lines_is_offered_as_a_line_with_its_recurrence(site: Site) -> None:
    body = {"project": "folding", "request": "5 h100 every day 9-10 for 3 days"}
    refused = said(site.researcher.post("series", body))
    lines = [each["request"] for each in refused["alternatives"] if "request" in each]
    assert lines, refused
    answer: Any = site.researcher.post("series", body | {"request": lines[0]})
    assert answer.status_code == 201, (lines[0], said(answer))


def test_a_deadline_within_the_notice_of_a_tier_offers_other_tiers(site: Site) -> None:
    with as_owner():
        Tier.objects.filter(slug="spot").update(lead_seconds=3 * 3600)
    deadline = (timezone.now().replace(microsecond=0) + timedelta(hours=3)).isoformat()
    ask: dict[str, object] = {"count": 1, "classes": ["h100"], "duration": 7200, "deadline": deadline}
    body: Any = {"project": "folding", "ask": ask}
    refused = said(site.researcher.post("quotes", body | {"tier": "spot"}))
    assert refused["code"] == "deadline_unreachable"
    assert "earliest start" in refused["detail"], "it would be done in time if it began at once"
    others = [each["tier"] for each in refused["alternatives"] if "tier" in each]
    assert "standard" in others
    answer: Any = site.researcher.post("quotes", body | {"tier": "standard"})
    assert answer.status_code == 200


def test_a_slice_that_a_class_does_not_have_names_the_class_as_pages_do(site: Site) -> None:
    ask = {"count": 1, "classes": ["h100"], "duration": 7200, "profile": "5g.50gb"}
    body: Any = {"project": "folding", "ask": ask}
    refused = said(site.researcher.post("quotes", body))
    assert refused["code"] == "impossible_profile"
    assert refused["detail"].startswith("H100"), refused["detail"]


def test_a_line_for_hardware_that_is_not_there_is_not_offered(site: Site) -> None:
    body = {"project": "folding", "request": "500 x 1 h100 2h"}
    refused = said(site.researcher.post("bookings", body))
    offered = [each["request"] for each in refused["alternatives"] if "request" in each]
    assert any(each.startswith("array of 500") for each in offered), offered
    assert "500 h100 2h" not in offered


def test_the_last_start_has_the_hour_of_the_day_that_was_asked_for(site: Site) -> None:
    with as_owner():
        site.people["researcher"].time_zone = "Europe/Berlin"
        site.people["researcher"].save()
    asked = timezone.now() + timedelta(days=200)
    for day in (asked, asked + timedelta(days=120)):
        line = f"1 h100 2h at {day:%Y-%m-%d} 10:00"
        refused = said(site.researcher.post("quotes", {"project": "folding", "request": line}))
        lines = [each["request"] for each in refused["alternatives"] if "request" in each]
        assert lines
        assert all(each.split(" at ")[1].split(" ")[1] == "10:00" for each in lines if " at " in each), lines
