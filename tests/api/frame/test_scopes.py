"""Scopes: every endpoint has one, and no token makes one that may do more or lives longer."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from portal.api.urls import api_urlpatterns
from tenants.api.scopes import DELETE_NEEDS, WRITES, scope_of
from tenants.models import ApiToken, AuditEntry, Scope
from tenants.platform.wall import tenant_tx
from tenants.services import TokenLimits, token_create
from tests.api.builders import Api, Site, row_counts, said
from tests.api.frame.route_names import NOBODYS, UNGUARDED, filled
from tests.builders import a_member

GOOD = {"project": "folding", "request": "1 h100 for 10m"}


def endpoints() -> list[tuple[str, str, str]]:
    """The name, the method and an address of every endpoint that needs a token."""
    found = []
    for route in api_urlpatterns:
        pattern = str(route.pattern)
        if pattern in UNGUARDED:
            continue
        view: Any = route.callback
        names = {**NOBODYS, "name": "x"}
        path = filled(pattern.replace("<int:version>", "1"), names)
        found += [
            (str(route.name), method, path)
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
            if hasattr(view.view_class, method.lower())
        ]
    return found


def a_token(site: Site, who: str, scopes: list[str], project: str | None = None) -> Api:
    actor = site.actor(who)
    with tenant_tx(actor.tenant_id):
        limits = TokenLimits(scopes, project)
        made = token_create(actor=actor, name="x", days=9, now=timezone.now(), limits=limits)
    return Api(made[1])


def test_every_endpoint_has_its_scope_in_the_table() -> None:
    writes = {name for name, method, _ in endpoints() if method != "GET"}
    assert writes == set(WRITES)
    assert set(DELETE_NEEDS) <= writes


@pytest.mark.turn
def test_every_endpoint_refuses_a_token_that_has_all_other_scopes(site: Site) -> None:
    tokens = {
        scope: {
            who: a_token(site, who, [each for each in Scope.values if each != scope])
            for who in ("operator", "admin")
        }
        for scope in Scope.values
    }
    before = row_counts()
    for name, method, path in endpoints():
        for who, token in tokens[scope_of(name, method)].items():
            answer = token.send(method, path, {} if method in ("POST", "PUT") else None)
            assert (answer.status_code, said(answer)["code"]) == (403, "scope_missing"), (
                name,
                method,
                who,
            )
    assert row_counts() == before


def test_a_reading_token_reads_and_books_nothing(site: Site) -> None:
    reader = a_token(site, "researcher", ["read"])
    assert reader.get("bookings").status_code == 200
    assert reader.post("quotes", GOOD).status_code == 200
    assert said(reader.post("bookings", GOOD))["code"] == "scope_missing"
    booker = a_token(site, "researcher", ["read", "book"])
    assert booker.post("bookings", GOOD).status_code == 201
    # A scope gives no right that the person lacks.
    everything = a_token(site, "researcher", list(Scope.values))
    asked = {"project": "folding", "gpu_class": "h100", "guaranteed_units": 0}
    assert said(everything.put("quotas", asked))["code"] == "not_allowed"


def test_no_token_makes_a_stronger_or_longer_one(site: Site) -> None:
    maker = a_token(site, "lead", ["read", "book"], "folding")
    for body in ({"scopes": ["read", "admin"]}, {"scopes": list(Scope.values)}):
        answer = maker.post("tokens", {"name": "y", **body})
        assert (answer.status_code, said(answer)["code"]) == (403, "stronger_token")
    for bad in ([], ["root"], ["read", 1], "read"):
        assert maker.post("tokens", {"name": "y", "scopes": bad}).status_code in (400, 422)
    made = said(maker.post("tokens", {"name": "y", "days": 365}))
    assert (made["scopes"], made["project"]) == (["read", "book"], "folding")
    own = next(each for each in said(maker.get("tokens"))["items"] if each["name"] == "x")
    assert made["expires"] == own["expires"]
    actor = site.actor("lead")
    with tenant_tx(actor.tenant_id):
        parent = ApiToken.objects.get(id=own["id"])
        for wrong in (
            {"scopes": ["admin"]},
            {"scopes": ["read"], "expires": parent.expires + timedelta(seconds=1)},
            {"scopes": ["read"], "project_id": site.hidden.id},
        ):
            values = {"expires": parent.expires, "project_id": parent.project_id} | wrong
            with pytest.raises(DatabaseError, match="stronger"), transaction.atomic():
                ApiToken.objects.create(
                    tenant_id=actor.tenant_id,
                    user_id=actor.user_id,
                    name="z",
                    prefix="z",
                    digest=b"z" * 32,
                    created=timezone.now(),
                    made_with=parent,
                    **values,
                )
        for change in ({"expires": parent.expires + timedelta(days=1)}, {"scopes": ["admin"]}):
            with pytest.raises(DatabaseError), transaction.atomic():
                ApiToken.objects.filter(id=parent.id).update(**change)


@pytest.mark.parametrize("who", ["lead", "admin"])
def test_a_token_of_one_project_sees_nothing_else(site: Site, who: str) -> None:
    if who == "lead":
        a_member(site.hidden, "lead", user=site.people["lead"])
    token = a_token(site, who, list(Scope.values), "folding")
    assert [each["slug"] for each in said(token.get("projects"))["items"]] == ["folding"]
    assert token.get("projects/hidden").status_code == 404
    assert token.post("bookings", GOOD | {"project": "hidden"}).status_code == 422
    assert token.post("bookings", GOOD).status_code == 201
    quota = {"project": "folding", "gpu_class": "h100", "guaranteed_units": 0}
    assert token.put("quotas", quota).status_code == 403, "a tenant admin's right"
    assert said(token.post("tokens", {"name": "y", "project": "hidden"}))["code"] == "not_found"
    operator = a_token(site, "operator", list(Scope.values), "folding")
    assert operator.get("fleet/nodes/x").status_code in (403, 404)
    assert said(operator.get("me"))["is_operator"] is False


def test_a_token_is_replaced_with_an_overlap(site: Site) -> None:
    old = a_token(site, "researcher", ["read", "book"])
    own = said(old.get("me"))["token_id"]
    made = said(old.post(f"tokens/{own}/rotate", {"overlap_hours": 2}))
    new = Api(made["token"])
    assert (made["scopes"], new.get("me").status_code) == (["read", "book"], 200)
    left = {each["id"]: each for each in said(new.get("tokens"))["items"]}[own]
    assert left["expires"][:16] <= (timezone.now() + timedelta(hours=2)).isoformat()[:16]
    assert left["last_address"] == "127.0.0.1"
    assert old.get("me").status_code == 200, "until the overlap ends"
    # Another token of the person's only with the scope `admin`.
    assert new.post(f"tokens/{own}/rotate", {}).status_code == 404
    at_once = said(new.post(f"tokens/{made['id']}/rotate", {"overlap_hours": 0}))
    assert new.get("me").status_code == 401
    assert Api(at_once["token"]).get("me").status_code == 200
    for wrong in (-1, 169, "2"):
        path = f"tokens/{at_once['id']}/rotate"
        answer = Api(at_once["token"]).post(path, {"overlap_hours": wrong})
        assert answer.status_code in (400, 422)
    with tenant_tx(site.tenant.id):
        assert AuditEntry.objects.filter(action="token.rotated").count() == 2
