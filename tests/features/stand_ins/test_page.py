"""The page of stand-ins: what is typed stays, each fault stands at its field."""

import re
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from allocation.features.stand_ins.models import StandIn
from tenants.web.step_up import DANGEROUS
from tests.api.builders import Site, said
from tests.roles import as_system
from tests.web.flat import flat

PAGE = "/t/helix/approvals/stand-ins"


def reader(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def named(client: Client, **form: str) -> Any:  # noqa: ANN401 (the test client's response)
    return client.post(PAGE, {"act": "name", **form})


def fields(response: HttpResponse) -> dict[str, str]:
    """The fault at each field that has one, by the name of the field."""
    text = flat(response.content.decode())
    faults = re.findall(r'<p class="err" id="new-(\w+)-note">.*?</svg>(.*?)</p>', text)
    return {name: fault.strip() for name, fault in faults}


def day(after: int) -> str:
    return f"{timezone.now() + timedelta(days=after):%Y-%m-%d}"


def test_a_lead_names_and_ends_a_stand_in(site: Site) -> None:
    lead = reader(site, "lead")
    assert named(lead, person="vera", until=day(3)).status_code == 302
    with as_system():
        row = StandIn.objects.get()
    # The last day counts whole, in the reader's zone.
    until = row.until.astimezone(ZoneInfo("Europe/Berlin"))
    assert f"{until:%Y-%m-%d %H:%M}" == f"{day(4)} 00:00"
    page = flat(lead.get(PAGE).content.decode())
    assert "decides for you in that time" in page
    assert "All requests" in page
    answer = lead.post(PAGE, {"act": "end", "stand_in": str(row.id)}, follow=True)
    assert "does not decide for" in flat(answer.content.decode())
    assert "No stand-in" in flat(answer.content.decode())


def test_what_a_page_made_ends_by_rest_within_the_same_second(site: Site) -> None:
    lead = reader(site, "lead")
    for _ in range(3):
        assert named(lead, person="vera", until=day(3)).status_code == 302
        with as_system():
            row = StandIn.objects.get(ended=None)
        ended = site.lead.post(f"stand-ins/{row.id}/end")
        assert (ended.status_code, said(ended)["id"]) == (200, str(row.id))


@pytest.mark.parametrize(
    ("form", "faults"),
    [
        ({"until": "2099-01-01"}, {"person": "This is needed."}),
        ({"person": "vera", "until": "9999-12-31"}, {"until": "This day is out of range."}),
        ({"person": "vera", "until": "0001-01-01"}, {"until": "This day is out of range."}),
        ({"person": "vera"}, {"until": "This is needed."}),
        ({"person": "vera", "until": "soon"}, {"until": "Write a day such as 2026-11-21."}),
        ({"person": "vera", "until": "2026-02-30"}, {"until": "Write a day such as 2026-11-21."}),
        (
            {"person": "vera", "until": "2099-01-01"},
            {"until": "Choose an end in the future, at most 90 days after the beginning."},
        ),
        ({"person": "mara", "until": "tomorrow"}, {"until": "Write a day such as 2026-11-21."}),
    ],
)
def test_a_fault_stands_at_its_field_and_nothing_typed_is_lost(
    site: Site, form: dict[str, str], faults: dict[str, str]
) -> None:
    answer = named(reader(site, "lead"), **form)
    assert answer.status_code == 422
    assert fields(answer) == faults
    text = flat(answer.content.decode())
    for value in form.values():
        assert f'value="{value}"' in text
    with as_system():
        assert not StandIn.objects.exists()


def test_somebody_without_a_right_sees_no_form_and_gets_a_page_that_says_so(site: Site) -> None:
    viewer = reader(site, "viewer")
    assert 'name="until"' not in viewer.get(PAGE).content.decode()
    assert named(viewer, person="ada", until=day(2)).status_code == 403
    missing = reader(site, "lead").post(PAGE, {"act": "end", "stand_in": "7"})
    assert missing.status_code == 404
    assert reader(site, "lead").post(PAGE, {"act": "forget"}).status_code == 422


def test_naming_needs_a_fresh_second_factor_and_ending_does_not() -> None:
    assert ("stand-ins", "name") in DANGEROUS
    assert ("stand-ins", "end") not in DANGEROUS
