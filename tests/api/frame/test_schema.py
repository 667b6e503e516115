"""The OpenAPI document: checked in, true, and served."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.http import HttpResponse
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator
from rest_framework.serializers import BaseSerializer

from portal.api.docs import Document, _document
from portal.api.urls import api_urlpatterns
from tests.api.builders import Site, said

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "openapi.yaml"


@cache
def documented() -> Any:  # noqa: ANN401 (a document)
    """The document that is checked in."""
    return _read(DOCUMENT.read_text())


def _read(text: str | bytes) -> Any:  # noqa: ANN401 (a document)
    return yaml.load(text, yaml.CSafeLoader)


def test_the_checked_in_document_is_what_the_code_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh = tmp_path / "openapi.yaml"
    call_command("spectacular", file=str(fresh), validate=True, fail_on_warn=True)
    assert fresh.read_text() == DOCUMENT.read_text(), "run: make openapi"
    assert "Warnings: 0" not in capsys.readouterr().out


def test_no_two_serializers_have_one_name() -> None:
    """A generated client would have one class for both."""
    assert api_urlpatterns
    pending: list[type[object]] = [BaseSerializer]
    found: dict[str, set[str]] = {}
    while pending:
        each = pending.pop()
        pending += each.__subclasses__()
        if each.__module__.split(".")[0] in {"allocation", "billing", "portal", "tenants"}:
            found.setdefault(each.__name__, set()).add(each.__module__)
    assert [name for name, modules in found.items() if len(modules) > 1] == []


def test_every_route_stands_in_the_document() -> None:
    paths = documented()["paths"]
    declared = [str(route.pattern) for route in api_urlpatterns if hasattr(route.callback, "view_class")]
    assert len(paths) == len([path for path in declared if path != "schema/"])


@pytest.mark.django_db
@pytest.mark.turn
def test_document_and_viewer_are_served_without_inline_script() -> None:
    client = Client()
    schema = client.get("/api/v1/schema/")
    assert schema.status_code == 200
    assert schema.headers["Content-Type"].startswith("application/vnd.oai.openapi")
    page = client.get("/api/v1/docs/").content.decode()
    assert "<script>" not in page
    assert "<style" not in page
    start = client.get("/api/v1/docs/start.js")
    assert start.headers["Content-Type"].startswith("text/javascript")


@pytest.mark.django_db
@pytest.mark.turn
def test_the_document_is_made_once_and_sent_again_only_when_it_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, calls = Client(), []

    class Counted(SchemaGenerator):
        def get_schema(self, *given: Any, **named: Any) -> Any:  # noqa: ANN401
            calls.append(named)
            return super().get_schema(*given, **named)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(Document, "generator_class", Counted)
    _document.cache_clear()
    first = client.get("/api/v1/schema/")
    as_json = client.get("/api/v1/schema/?format=json").json()
    assert _read(first.content) == as_json == documented()
    assert first.content == client.get("/api/v1/schema/?version=9&lang=x").content
    again = client.get("/api/v1/schema/", headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    assert client.head("/api/v1/schema/").status_code == 200
    assert client.get("/api/v1/schema/?format=none").status_code == 404
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("me", "MeOut"),
        ("tiers/standard", "TierOut"),
        ("projects/folding", "ProjectOut"),
    ],
)
def test_an_answer_has_exactly_the_documented_fields(site: Site, path: str, name: str) -> None:
    assert set(said(site.researcher.get(path))) == set(_schema(name)["properties"])


def test_a_booking_and_a_problem_have_exactly_the_documented_fields(site: Site) -> None:
    made = site.researcher.post("bookings", {"project": "folding", "request": "1 h100 for 10m"})
    assert set(said(made)) == set(_schema("BookingOut")["properties"])
    missing = said(site.researcher.get("bookings/BK-999"))
    assert set(missing) == set(_schema("Problem")["properties"])


def test_every_success_of_a_booking_is_in_the_document(site: Site) -> None:
    """Also those of dry runs, and of changes that have to be decided."""
    document = _read(Client().get("/api/v1/schema/").content)
    ask = {"project": "folding", "request": "1 h100 for 10m"}

    def check(answer: HttpResponse, path: str, method: str, status: int) -> None:
        assert answer.status_code == status, answer.content
        responses = document["paths"][f"/api/v1/{path}"][method]["responses"]
        schema = responses[str(status)]["content"]["application/json"]["schema"]
        Draft202012Validator({**schema, "components": document["components"]}).validate(said(answer))
        assert "503" in responses

    dry = {"prefer": "dry-run"}
    check(site.researcher.post("bookings", ask, **dry), "bookings", "post", 200)
    one, address = "bookings/{reference}", "bookings/BK-1"
    check(site.researcher.post("bookings", ask), "bookings", "post", 201)
    tag = {"if-match": site.researcher.get(address)["ETag"]}
    for headers in ({**dry, **tag}, tag):
        changed = site.researcher.send("PATCH", address, {"count": 2}, headers=headers)
        check(changed, one, "patch", 200)
    assert "202" in document["paths"][f"/api/v1/{one}"]["patch"]["responses"]
    for act in ("release", "cancel"):
        path = f"{one}/{act}"
        check(site.researcher.post(f"{address}/cancel", **dry), path, "post", 200)
    check(site.researcher.post(f"{address}/cancel"), f"{one}/cancel", "post", 200)


def _schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = documented()["components"]["schemas"][name]
    return found
