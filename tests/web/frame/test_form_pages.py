"""Commands of pages that are declared once name what they act on."""

from uuid import UUID

import pytest
from django.test import Client

from tenants.web.form_page import Act
from tests.api.builders import a_site

PAGES = {
    "/ops/roles": ("operator", ("approve", "end"), "role", "operator&#x27;s role"),
    "/ops/limit-cuts": ("operator", ("end",), "cut", "limit cut"),
    "/t/helix/limit-cuts": ("admin", ("end",), "cut", "limit cut"),
    "/t/helix/approvals/rules": ("admin", ("end",), "rule", "approval rule"),
    "/t/helix/settings/chat": ("admin", ("test", "delete"), "channel", "chat channel"),
}


@pytest.mark.turn
@pytest.mark.django_db
@pytest.mark.parametrize("key", [str(UUID(int=9)), "²", ""])
def test_a_row_that_is_not_there_is_not_found_by_its_name(client: Client, key: str) -> None:
    site = a_site()
    for page, (role, acts, field, noun) in PAGES.items():
        client.force_login(site.people[role])
        for act in acts:
            answer = client.post(page, {"act": act, field: key})
            assert answer.status_code == 404, (page, act)
            assert f"no such {noun}" in answer.content.decode(), (page, act)


def test_a_command_without_a_noun_of_its_row_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="noun of thing"):
        Act("end", lambda: None, "Ended.", key="thing")


@pytest.mark.django_db
def test_a_choice_that_is_not_declared_is_refused_at_its_field(client: Client) -> None:
    client.force_login(a_site().people["operator"])
    sent = {"act": "energy", "tier": "standard", "prefers": "-" + "9" * 30, "hours": "12"}
    answer = client.post("/ops/zones", sent)
    assert answer.status_code == 422
    assert "Choose one of: none, price, carbon." in answer.content.decode()
