"""Saved views: what is kept, who has it, and that an address can hold nothing but filters."""

from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from tenants.features.saved_views import services
from tenants.features.saved_views.models import SavedView
from tenants.models import AuditEntry, Tenant
from tenants.platform.wall import operator_tx, tenant_tx
from tenants.rules.lists import LISTS, query_read
from tests.api.builders import Api, Site, said
from tests.roles import as_system
from tests.web.flat import flat

MINE = {"list": "bookings", "name": "Mine that wait", "query": "?state=waiting&mine=1"}


def reader(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def names(api: Api, path: str = "views") -> list[str]:
    return [each["name"] for each in said(api.get(path))["items"]]


def logged(tenant: Tenant | None) -> list[str]:
    with as_system():
        return sorted(
            AuditEntry.objects.filter(tenant=tenant, action__startswith="view.").values_list(
                "action", flat=True
            )
        )


def test_a_view_is_for_its_person_and_its_list(site: Site) -> None:
    made = said(site.researcher.put("views", MINE))
    assert (made["query"], made["owner"], made["is_shared"]) == ("state=waiting&mine=1", "mara", False)
    assert names(site.researcher) == ["Mine that wait"]
    assert names(site.lead) == names(site.admin) == names(site.outsider) == []
    assert site.lead.delete(f"views/{made['id']}").status_code == 404
    # Nobody else's concern: the log has nothing of it.
    assert logged(site.tenant) == []


def test_saving_under_the_same_name_changes_the_filters(site: Site) -> None:
    one = said(site.researcher.put("views", MINE))
    two = said(site.researcher.put("views", MINE | {"name": "mine THAT wait", "query": "q=fold&sort=-cost"}))
    # As the database compares: Python would make two letters of the first.
    for name in ("İ", "ΑΣ"):
        for _ in range(2):
            assert site.researcher.put("views", MINE | {"name": name}).status_code == 200
    assert (one["id"], two["query"]) == (two["id"], "q=fold&sort=-cost")
    assert sorted(names(site.researcher)) == ["mine THAT wait", "İ", "ΑΣ"]


@pytest.mark.parametrize(
    ("query", "stored"),
    [
        ("sort=-cost&state=running", "state=running&sort=-cost"),
        ("q=%3Cscript%3E", "q=%3Cscript%3E"),
        ("q=<script>alert(1)</script>", "q=%3Cscript%3Ealert%281%29%3C%2Fscript%3E"),
        ("q=//evil.example/?a", "q=%2F%2Fevil.example%2F%3Fa"),
        ("state=&q=%F0%9F%A6%8A", "q=%F0%9F%A6%8A"),
    ],
)
def test_an_address_holds_only_encoded_filters(site: Site, query: str, stored: str) -> None:
    assert said(site.researcher.put("views", MINE | {"query": query}))["query"] == stored


@pytest.mark.parametrize(
    "query",
    [
        "?",
        "state=",
        "state",
        "next=//evil.example",
        "state=waiting&after=abc",
        "https://evil.example/?state=waiting",
        "javascript:alert(1)",
        "q=%00",
        "q=" + "ü" * 400,
    ],
)
def test_what_is_no_filter_of_the_list_is_refused(site: Site, query: str) -> None:
    answer = site.researcher.put("views", MINE | {"query": query})
    assert (answer.status_code, said(answer)["code"], said(answer)["param"]) == (422, "bad_view", "query")


def test_the_database_keeps_nothing_but_a_query(site: Site) -> None:
    row = {"owner": site.people["researcher"], "list": "bookings", "created": timezone.now()}
    for query in ("//evil.example", "q=a b", "javascript:x", "q=a#b", "q=1&", "q=a\nb=c"):
        with (
            tenant_tx(site.tenant.id),
            pytest.raises(IntegrityError, match="is_a_query"),
            transaction.atomic(),
        ):
            SavedView.objects.create(tenant=site.tenant, name="X", query=query, **row)
    with tenant_tx(site.tenant.id):
        SavedView.objects.create(tenant=site.tenant, name="X", query="q=a", **row)
        with pytest.raises(IntegrityError, match="saved_view_once"), transaction.atomic():
            SavedView.objects.create(tenant=site.tenant, name="x", query="q=b", **row)


def test_an_admin_shares_with_the_organisation_and_only_admins_change_it(site: Site) -> None:
    refused = site.lead.put("views", MINE | {"is_shared": True})
    assert (refused.status_code, said(refused)["detail"]) == (403, "Only admins share a view with everybody.")
    made = said(site.admin.put("views", MINE | {"name": "All waits", "is_shared": True}))
    assert names(site.researcher) == names(site.viewer) == ["All waits"]
    assert names(site.outsider) == []
    change = {"name": "Mine now", "is_shared": False}
    assert site.researcher.put(f"views/{made['id']}", change).status_code == 403
    assert site.researcher.delete(f"views/{made['id']}").status_code == 403
    assert said(site.admin.put(f"views/{made['id']}", {"name": "Waits"}))["is_shared"] is False
    assert names(site.researcher) == []
    assert logged(site.tenant) == ["view.changed", "view.saved"]


def test_two_views_of_a_list_do_not_have_one_name(site: Site) -> None:
    site.researcher.put("views", MINE)
    other = said(site.researcher.put("views", MINE | {"name": "Other"}))
    assert (
        said(site.researcher.put("views", MINE | {"list": "log", "query": "kind=booking"}))["list"] == "log"
    )
    answer = site.researcher.put(f"views/{other['id']}", {"name": "MINE that wait"})
    assert (answer.status_code, said(answer)["code"]) == (422, "view_name_taken")


def test_the_number_of_views_is_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MOST_VIEWS", 2)
    for name in ("One", "Two"):
        assert site.admin.put("views", MINE | {"name": name, "is_shared": True}).status_code == 200
    answer = site.admin.put("views", MINE | {"name": "Three"})
    assert (answer.status_code, said(answer)["code"]) == (409, "too_many_views")
    # Those of another list count for themselves, and a view that is there can still change.
    assert site.admin.put("views", MINE | {"list": "log", "query": "kind=booking"}).status_code == 200
    assert (
        site.admin.put("views", MINE | {"name": "Two", "query": "q=x", "is_shared": True}).status_code == 200
    )


def test_operators_have_views_of_their_own_and_share_them(site: Site) -> None:
    waits = {"list": "bookings", "name": "H100 waits", "query": "state=waiting&class=h100", "is_shared": True}
    made = said(site.operator.put("platform-views", waits))
    assert names(site.operator, "platform-views") == ["H100 waits"]
    assert site.admin.put("platform-views", waits).status_code == 403
    assert site.admin.get("platform-views").status_code == 403
    assert names(site.admin) == []
    with operator_tx():
        assert SavedView.objects.get().tenant_id is None
    assert site.operator.delete(f"platform-views/{made['id']}").status_code == 204
    assert logged(None) == ["view.ended", "view.saved"]


def test_the_menu_of_a_list_saves_what_is_shown_and_opens_it(site: Site) -> None:
    mara = reader(site, "researcher")
    page = flat(mara.get("/t/helix/bookings").content.decode())
    assert "Choose a filter or an order, then save it here" in page
    page = flat(mara.get("/t/helix/bookings?mine=1&state=waiting&after=x&next=//evil").content.decode())
    assert 'name="query" value="state=waiting&amp;mine=1"' in page
    form = {"act": "save", "list": "bookings", "query": "state=waiting&mine=1", "name": "My <b>waits</b>"}
    answer = mara.post("/t/helix/views", form)
    assert (answer.status_code, answer.headers["location"]) == (302, "/t/helix/bookings?state=waiting&mine=1")
    page = flat(mara.get(answer.headers["location"]).content.decode())
    assert 'aria-label="View: My &lt;b&gt;waits&lt;/b&gt;"' in page
    assert 'name="query"' not in page
    assert "My &lt;b&gt;waits" in mara.get("/t/helix/views").content.decode()
    found = mara.get("/t/helix/search?part=list&q=waits").content.decode()
    assert "/t/helix/bookings?state=waiting&amp;mine=1" in found
    # Before anything is typed, too.
    assert "view of Bookings" in mara.get("/t/helix/search?part=list&q=").content.decode()
    assert "&lt;b&gt;" not in reader(site, "lead").get("/t/helix/search?part=list&q=my").content.decode()


def test_a_refused_form_keeps_what_was_typed(site: Site) -> None:
    mara = reader(site, "researcher")
    form = {"act": "save", "list": "bookings", "query": "next=//evil.example", "name": "Waits"}
    answer = mara.post("/t/helix/views", form)
    page = flat(answer.content.decode())
    assert answer.status_code == 422
    assert 'value="Waits"' in page
    assert "The list has no filter next." in page


def test_a_view_is_renamed_and_ended_on_its_page(site: Site) -> None:
    made = said(site.researcher.put("views", MINE))
    at, mara = f"/t/helix/views/{made['id']}", reader(site, "researcher")
    assert "Everybody has it" not in mara.get(at).content.decode()
    assert "Everybody has it" in reader(site, "admin").get(_admins(site)).content.decode()
    assert mara.post(at, {"act": "change", "name": "Waits"}).headers["location"] == "/t/helix/views"
    assert names(site.researcher) == ["Waits"]
    assert reader(site, "lead").get(at).status_code == 404
    assert mara.post(at, {"act": "end"}).status_code == 302
    assert names(site.researcher) == []


def _admins(site: Site) -> str:
    made: dict[str, Any] = said(site.admin.put("views", MINE))
    return f"/t/helix/views/{made['id']}"


@pytest.mark.parametrize("path", ["/t/helix/bookings", "/t/helix/fleet", "/t/helix/log"])
def test_each_list_of_an_organisation_has_the_menu(site: Site, path: str) -> None:
    name = path.rpartition("/")[2]
    query, _ = query_read(
        LISTS[name], {"bookings": "q=x", "fleet": "view=table", "log": "kind=booking"}[name]
    )
    page = flat(reader(site, "admin").get(f"{path}?{query}").content.decode())
    assert f'name="list" value="{name}"' in page
    assert f'name="query" value="{query}"' in page


@pytest.mark.parametrize("path", ["bookings?sort=oldest", "fleet?view=table", "log?kind=node"])
def test_each_list_of_operators_has_the_menu(site: Site, path: str) -> None:
    page = flat(reader(site, "operator").get(f"/ops/{path}").content.decode())
    assert f'name="query" value="{path.partition("?")[2]}"' in page
    assert 'action="/ops/views"' in page


def test_a_token_of_one_project_has_no_views(site: Site) -> None:
    body = {"name": "CI", "project": "folding", "scopes": ["read", "admin"]}
    token = said(site.lead.post("tokens", body))["token"]
    assert Api(token).put("views", MINE).status_code == 403
