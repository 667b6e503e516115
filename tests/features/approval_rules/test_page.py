"""The page of approval rules: rules are added and ended, and each fault stands at its field."""

import re
from typing import Any

import pytest
from django.test import Client

from allocation.models import Approval
from tests.api.builders import Site, row_counts, said
from tests.roles import as_system
from tests.web.flat import flat

PAGE = "/t/helix/approvals/rules"
FORM: dict[str, Any] = {
    "act": "add",
    "name": "Nights",
    "project": "",
    "min_cost": "12.50",
    "classes": ["h100"],
    "tiers": ["standard"],
    "outside": "on",
    "weekdays": ["Mon", "Tue"],
    "hours_begin": "08:00",
    "hours_end": "18:00",
    "steps": "both",
    "needed": "1",
    "hours": "24",
    "escalates": "on",
}


def reader(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def shown(response: Any) -> str:  # noqa: ANN401 (the test client's response)
    return flat(response.content.decode())


def test_rules_are_added_and_ended(site: Site) -> None:
    admin, lead = reader(site, "admin"), reader(site, "lead")
    assert reader(site, "researcher").post(PAGE, FORM).status_code == 403
    assert admin.post(PAGE, FORM).status_code == 302
    text = shown(admin.get(PAGE))
    assert "12.50 or more in 24 hours and is on class h100 and is in tier standard" in text
    assert "can run outside Mon Tue 08:00–18:00" in text
    assert "A lead of their project within 1 d, then an admin; then An admin of the organisation" in text
    with as_system():
        assert not Approval.objects.exists()
    (rule,) = re.findall(r'name="rule" value="([0-9a-f-]{36})"', admin.get(PAGE).content.decode())
    assert lead.post(PAGE, {"act": "end", "rule": rule}).status_code == 403
    assert admin.post(PAGE, {"act": "end", "rule": rule}).status_code == 302
    assert "No booking needs an approval" in shown(admin.get(PAGE))


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("name", "", "A name has 1 to 80 characters."),
        ("min_cost", "1e5", "Enter a plain number, such as 100 or 2.5."),
        ("min_cost", "..", "Enter a plain number, such as 100 or 2.5."),
        ("min_cost", "0", "Enter a number above 0 and up to 1,000,000,000."),
        ("min_gpus", "two", "Enter a whole number."),
        ("min_gpus", "-1", "Enter a number above 0 and up to 1,000,000."),
        ("min_seconds", "long", "Enter a duration like 30m, 6h, 7d or 1h 30m (s, m, h, d)."),
        ("classes", ["x900"], "There is no &#x27;x900&#x27;."),
        ("weekdays", [], "Choose the days of these hours."),
        ("hours_begin", "8", "Enter a time such as 08:00."),
        ("hours_begin", "", "This is needed."),
        ("hours_end", "07:00", "The hours must end later than they begin."),
        ("needed", "9", "A step needs 1 to 5 people."),
        ("hours", "0", "A step takes 1 to 720 hours."),
    ],
)
def test_a_fault_stands_at_its_field_and_what_was_typed_stays(
    site: Site, name: str, value: object, fault: str
) -> None:
    admin = reader(site, "admin")
    before = row_counts()
    answer = admin.post(PAGE, {**FORM, name: value})
    assert answer.status_code == 422
    assert row_counts() == before
    text = shown(answer)
    assert re.findall(r'<p class="err" id="new-(\w+)-note">.*?</svg>(.*?)</p>', text) == [(name, fault)]
    assert ('value="Nights"' in text) == (name != "name")
    ticked = re.findall(r'name="(\w+)"(?: value="(\w+)")? checked', text)
    assert {("tiers", "standard"), ("outside", ""), ("escalates", "")} <= set(ticked)


def test_what_is_left_out_is_as_the_form_shows_it_first(site: Site) -> None:
    form = {"act": "add", "name": "Big", "min_gpus": "4", "min_seconds": "1d", "project": "folding"}
    assert reader(site, "lead").post(PAGE, form).status_code == 302
    (made,) = said(site.lead.get("approval-rules"))["items"]
    assert (made["min_gpus"], made["min_seconds"], made["outside"]) == (4, 86_400, None)
    assert made["steps"] == [{"role": "lead", "needed": 1, "hours": 72, "escalates": False}]
