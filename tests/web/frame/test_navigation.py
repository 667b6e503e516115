"""The areas of settings: who sees which pages, and which one is marked. No database."""

from uuid import uuid4

import pytest

from tenants.access import Actor
from tenants.models import Role
from tenants.rules.operator_roles import NO_RIGHTS, Grant, Rights
from tenants.web.navigation import area_of, navigation, pages_found, pages_of


def an_actor(role: str) -> Actor:
    roles = {} if role == Role.TENANT_ADMIN else {uuid4(): role}
    return Actor(
        user_id=1,
        name="Mara",
        tenant_id=uuid4(),
        tenant_slug="helix",
        is_tenant_admin=role == Role.TENANT_ADMIN,
        roles=roles,
        time_zone="UTC",
    )


def strip(path: str, role: str) -> tuple[str, list[str], list[str]]:
    """The area's name, its links, and those that are marked."""
    area = area_of(f"/t/helix/{path}", an_actor(role))
    if area is None:
        return "", [], []
    return (
        area.label,
        [each.label for each in area.items],
        [each.label for each in area.items if each.is_current],
    )


@pytest.mark.parametrize(
    ("path", "role", "label", "marked"),
    [
        ("organisation", "tenant_admin", "Settings of the organisation", ["Overview"]),
        ("organisation/tokens", "tenant_admin", "Settings of the organisation", ["Tokens"]),
        ("settings/webhooks/1fa5e011", "lead", "Settings of the organisation", ["Webhooks"]),
        ("settings", "lead", "Your settings", ["Settings and tokens"]),
        ("settings/calendars", "viewer", "Your settings", ["Calendars"]),
        ("settings/chat", "viewer", "Your settings", ["Chat"]),
        ("settings/chat", "lead", "Settings of the organisation", ["Chat"]),
        ("bookings", "lead", "", []),
        ("approvals", "lead", "", []),
    ],
)
def test_a_page_belongs_to_one_area_and_one_link_is_marked(
    path: str, role: str, label: str, marked: list[str]
) -> None:
    found = strip(path, role)
    assert (found[0], found[2]) == (label, marked)


def test_pages_that_a_reader_may_not_open_are_not_linked() -> None:
    admins, leads, viewers = (set(strip("people", each)[1]) for each in ("tenant_admin", "lead", "viewer"))
    assert admins > leads > viewers
    assert {"Tokens", "Sign-on", "Jira", "Policy hook", "Directory"} == admins - leads
    found = {each.suffix for each in pages_of(an_actor("viewer"))}
    assert "settings/webhooks" not in found
    assert "settings/chat" in found
    assert [each.label for each in pages_found(pages_of(an_actor("lead")), "slack TEAMS")] == ["Chat"]


def test_the_side_bar_marks_settings_for_pages_that_it_does_not_have() -> None:
    def marked(path: str) -> list[str]:
        groups = navigation(f"/t/helix/{path}", an_actor("lead"), (), NO_RIGHTS)
        return [item.label for group in groups for item in group.items if item.is_current]

    assert marked("settings/jira") == ["Settings"]
    assert marked("people") == ["People"]
    assert marked("settings") == []


def test_of_the_operators_groups_only_that_of_the_current_page_is_open() -> None:
    rights = Rights((Grant("site"),))
    groups = navigation("/ops/accounts", None, (), rights)
    assert [(each.label, each.is_open) for each in groups] == [
        ("", True),
        ("Fleet", False),
        ("Rules", False),
        ("Money", False),
        ("People", True),
        ("System", False),
    ]
