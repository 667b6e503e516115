"""Labels and references: limits in REST and in the database, filters, pages, events and charges."""

import json
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from allocation.models import Booking, BookingLabel
from billing.focus import focus_csv
from portal.integrations.relay import outbox_relay
from tenants.models import PublishedEvent, WebhookDelivery
from tenants.platform.wall import tenant_tx
from tests.api.builders import Api, Site, said
from tests.billing.builders import NOVEMBER
from tests.billing.test_statement_files import a_line, rows_of
from tests.roles import as_system

LINE = {"project": "folding", "tier": "standard", "request": "1 h100 for 10m"}
TEAM = {"team": "vision", "run": "7"}
TICKET = "https://helix.atlassian.net/browse/GPU-7"


def booked(api: Api, **more: object) -> Any:  # noqa: ANN401 (any JSON)
    answer = api.post("bookings", {**LINE, **more})
    assert answer.status_code == 201, answer.content
    return said(answer)


def numbers(api: Api, **query: str) -> set[str]:
    answer = api.get("bookings", **query)
    assert answer.status_code == 200, answer.content
    return {row["number"] for row in said(answer)["items"]}


def test_bookings_keep_their_labels_and_are_found_by_them(site: Site) -> None:
    mine = booked(site.researcher, labels=TEAM, external_ref=TICKET)
    assert (mine["labels"], mine["external_ref"]) == (TEAM, TICKET)
    assert booked(site.researcher)["labels"] == {}
    other = booked(site.researcher, labels={"team": "vision"}, external_ref="GPU-8")
    api = site.researcher
    assert numbers(api, label="team=vision") == {mine["number"], other["number"]}
    assert numbers(api, label="team=vision,run=7") == {mine["number"]}
    assert numbers(api, label="team=visions") == set()
    assert numbers(api, external_ref=TICKET) == {mine["number"]}
    assert numbers(api, external_ref="GPU-8", label="team=vision") == {other["number"]}
    assert numbers(site.outsider, label="team=vision", external_ref=TICKET) == set()
    with as_system():
        Booking.objects.filter(name="", external_ref="GPU-8").update(labels={"run": "7"})
    assert numbers(api, label="team=vision") == {mine["number"]}
    assert numbers(api, label="run=7") == {mine["number"], other["number"]}


def test_a_series_gives_its_labels_to_its_dates(site: Site) -> None:
    day = f"{timezone.now() + timedelta(days=1):%Y-%m-%d}"
    body = {
        **LINE,
        "request": f"1 h100 {day} 23:00-23:30",
        "labels": TEAM,
        "external_ref": "GPU-9",
        "repeat": {"rrule": "FREQ=DAILY;COUNT=2"},
        "zone": "UTC",
    }
    series = said(site.researcher.post("series", body))
    assert (series["labels"], series["external_ref"]) == (TEAM, "GPU-9"), series
    assert len(numbers(site.researcher, label="run=7", external_ref="GPU-9")) == 2
    page = browser(site).get(f"/t/helix/series/{series['id']}").content.decode()
    assert "?label=team%3Dvision" in page


BAD: list[tuple[dict[str, object], str]] = [
    ({"labels": {f"k{n}": "v" for n in range(33)}}, "too_many_labels"),
    ({"labels": {"Team": "x"}}, "bad_label"),
    ({"labels": {"a" * 64: "x"}}, "bad_label"),
    ({"labels": {"team": ""}}, "bad_label"),
    ({"labels": {"team": "x" * 101}}, "bad_label"),
    ({"labels": {"team": "a,b"}}, "bad_label"),
    ({"labels": {"tier": "x"}}, "bad_label"),
    ({"labels": {"team": "a\u202eb"}}, "bad_text"),
    ({"labels": {"team": 7}}, "wrong_type"),
    ({"labels": ["team"]}, "wrong_type"),
    ({"external_ref": "javascript://alert(1)"}, "bad_reference"),
    ({"external_ref": "GPU 7"}, "bad_reference"),
    ({"external_ref": "x" * 501}, "bad_reference"),
    ({"external_ref": 7}, "wrong_type"),
]


def test_bad_labels_are_refused_beside_their_field(site: Site) -> None:
    for more, code in BAD:
        answer = site.researcher.post("bookings", {**LINE, **more})
        problem = said(answer)
        assert (problem["code"], problem["param"]) == (code, next(iter(more))), problem
        assert answer.status_code in (400, 422)


def test_limits_are_fine(site: Site) -> None:
    many = {f"k{n:02}/{'x' * 59}": "v" * 100 for n in range(32)}
    assert booked(site.researcher, labels=many)["labels"] == many
    answer = site.researcher.get("bookings", label="team")
    assert said(answer)["code"] == "bad_label"


def test_the_database_refuses_what_the_services_would(site: Site) -> None:
    booked(site.researcher)
    bad: list[object] = [
        [],
        {"A": "b"},
        {"a": 1},
        {"a": ""},
        {"a": "x,y"},
        {"person": "x"},
        {"a": "v" * 101},
        {f"k{n}": "v" for n in range(33)},
    ]
    with as_system(), connection.cursor() as cursor:
        for labels in bad:
            with pytest.raises(DatabaseError, match="booking_labels_sane"), transaction.atomic():
                cursor.execute("UPDATE allocation_booking SET labels = %s", [json.dumps(labels)])
        with pytest.raises(DatabaseError, match="booking_reference_sane"), transaction.atomic():
            cursor.execute("UPDATE allocation_booking SET external_ref = 'a b'")


def test_the_index_of_labels_is_used_behind_row_security(site: Site) -> None:
    booked(site.researcher, labels=TEAM)
    found = BookingLabel.objects.filter(tenant_id=site.tenant.id, key="team", value="vision")
    with tenant_tx(site.tenant.id), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        plan = found.explain()
    assert "Index Cond" in plan
    assert "value" in plan.split("Index Cond")[1].splitlines()[0], plan


def browser(site: Site) -> Client:
    client = Client()
    client.force_login(site.people["researcher"])
    return client


def test_pages_set_show_and_filter_labels(site: Site) -> None:
    client = browser(site)
    form = {
        "q": "1 h100 for 10m",
        "project": "folding",
        "tier": "standard",
        "key": "0" * 31 + "1",
        "option": "standard 1 h100 for 10m",
        "labels": "team=vision",
        "external_ref": TICKET,
    }
    bad = client.post("/t/helix/book", {**form, "labels": "team"})
    assert bad.status_code == 422
    assert "The label team needs a value." in bad.content.decode()
    href = client.post("/t/helix/book", form)["Location"]
    page = client.get(href).content.decode()
    assert "?label=team%3Dvision" in page
    assert f'href="{TICKET}"' in page
    number = href.rpartition("/")[2]
    booked(site.researcher)
    listed = client.get("/t/helix/bookings", {"label": "team=vision"}).content.decode()
    assert number in listed
    assert "1 booking" in listed
    other = client.get("/t/helix/bookings", {"label": "team=audio"}).content.decode()
    assert "No bookings match" in other
    wrong = client.get("/t/helix/bookings", {"label": "<b>"}).content.decode()
    assert "The label &lt;b&gt; needs a value." in wrong
    csv = client.get("/t/helix/bookings.csv", {"external_ref": TICKET}).content.decode()
    assert csv.splitlines()[1].endswith(f"team=vision,{TICKET}")
    assert len(csv.splitlines()) == 2


def test_a_webhook_with_labels_gets_events_of_such_bookings_only(site: Site, settings: Settings) -> None:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    hook = {"url": "http://127.0.0.1:9/hook", "events": ["*"], "labels": {"team": "vision"}}
    made = said(site.lead.post("webhooks", {**hook, "project": "folding"}))
    assert made["labels"] == {"team": "vision"}
    for labels in (TEAM, {"team": "audio"}, {}):
        booked(site.researcher, labels=labels)
    with as_system():
        outbox_relay(timezone.now())
        (delivery,) = WebhookDelivery.objects.select_related("event")
        assert delivery.event is not None
        assert delivery.event.data["booking"]["labels"] == TEAM
        assert PublishedEvent.objects.count() == 3


def test_charges_carry_labels_as_tags() -> None:
    line = a_line(campaign="ablation", labels=TEAM)
    (row,) = rows_of(focus_csv([line], ("helix", "Helix"), NOVEMBER.starts))
    tags = json.loads(row["Tags"])
    assert tags == {**TEAM, "campaign": "ablation", "person": "mara", "tier": "standard"}
