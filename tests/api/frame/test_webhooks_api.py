"""Webhooks and events over REST: who may, what is shown, and the neighbour."""

from ipaddress import ip_network
from typing import Any
from uuid import uuid4

import pytest
import yaml
from django.utils import timezone
from pytest_django import Settings

from portal.integrations.relay import outbox_relay
from tenants.models import AuditEntry, WebhookDelivery
from tenants.rules.event_types import EVENT_TYPES
from tests.api.builders import Site, said
from tests.roles import as_system
from tests.servers.servers import ROOT

pytestmark = pytest.mark.turn

URL = "http://127.0.0.1:9/hook"
LINE = {"project": "folding", "tier": "standard", "request": "1 h100 for 10m"}


@pytest.fixture(autouse=True)
def _loopback_is_allowed(settings: Settings) -> None:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]


def hook(**more: object) -> dict[str, object]:
    return {"url": URL, "events": ["booking.*"], **more}


def relayed() -> None:
    with as_system():
        outbox_relay(timezone.now())


def test_a_webhook_s_life(site: Site) -> None:
    made = site.admin.post("webhooks", hook(name="CI"), idempotency_key="one")
    shown = said(made)
    assert made.status_code == 201, made.content
    assert shown.pop("secret").startswith("whsec_")
    again = site.admin.post("webhooks", hook(name="CI"), idempotency_key="one")
    assert again["Idempotency-Replayed"] == "true"
    assert said(again)["secret"] is None
    address = f"webhooks/{shown['id']}"
    assert said(site.admin.get(address)) == shown
    assert said(site.admin.get("webhooks"))["items"] == [shown]
    changed = said(site.admin.put(address, hook(name="CI 2", project="folding")))
    assert (changed["name"], changed["project"]) == ("CI 2", "folding")
    # A lead sees webhooks of the own projects, and the tenant's webhooks are the admins' own.
    assert said(site.lead.get(address))["name"] == "CI 2"
    test = site.lead.post(f"{address}/test", {})
    assert test.status_code == 202, test.content
    off = said(site.lead.put(f"{address}/enabled", {"is_enabled": False}))
    assert (off["is_enabled"], off["disabled_reason"]) == (False, "Switched off by jonas.")
    (delivery,) = said(site.lead.get(f"{address}/deliveries"))["items"]
    assert (delivery["type"], delivery["state"]) == ("webhook.test", "dropped")
    refused = site.lead.post(f"{address}/deliveries/{delivery['id']}/resend", {})
    assert said(refused)["code"] == "webhook_disabled"
    assert said(site.lead.put(f"{address}/enabled", {"is_enabled": True}))["is_enabled"] is True
    sent = site.lead.post(f"{address}/deliveries/{delivery['id']}/resend", {})
    assert said(sent)["event"] == delivery["event"]
    assert said(site.admin.post(f"{address}/secret", {}))["secret"].startswith("whsec_")
    assert site.admin.delete(address).status_code == 204
    assert site.admin.get(address).status_code == 404
    with as_system():
        acts = AuditEntry.objects.filter(object_kind="webhook").order_by("id")
        assert list(acts.values_list("action", flat=True)) == [
            "webhook.created",
            "webhook.changed",
            "webhook.disabled",
            "webhook.enabled",
            "webhook.rotated",
            "webhook.deleted",
        ]


def test_operators_have_webhooks_of_the_platform_that_no_tenant_sees(site: Site) -> None:
    terms = {"name": "Pager", "url": URL, "events": ["node.*", "maintenance.*"]}
    answer = site.operator.post("platform-webhooks", terms, idempotency_key="one")
    assert answer.status_code == 201, answer.content
    made = said(answer)
    assert made.pop("secret").startswith("whsec_")
    again = site.operator.post("platform-webhooks", terms, idempotency_key="one")
    assert said(again) == made | {"secret": None}
    assert (made["project"], made["labels"]) == (None, {})
    one = f"platform-webhooks/{made['id']}"
    assert said(site.operator.get("platform-webhooks"))["items"] == [made]
    assert said(site.operator.get(one)) == made
    changed = site.operator.put(one, terms | {"name": "Pager 2"})
    assert said(changed)["name"] == "Pager 2"
    assert site.operator.post(f"{one}/test", {}).status_code == 202
    rotated = said(site.operator.post(f"{one}/secret", {}))
    assert rotated["previous_secret_until"] is not None
    (delivery,) = said(site.operator.get(f"{one}/deliveries"))["items"]
    sent = site.operator.post(f"{one}/deliveries/{delivery['id']}/resend", {})
    assert said(sent)["event"] == delivery["event"]
    assert said(site.operator.post(f"{one}/resend", {"since": made["created"]})) == {"count": 0}
    for bad, code in (
        ({"events": ["booking.*"]}, "unknown_event"),
        ({"project": "folding"}, "unknown_field"),
        ({"url": "http://10.0.0.1/"}, "bad_url"),
    ):
        assert said(site.operator.post("platform-webhooks", terms | bad))["code"] == code
    # For an organisation they are not there, and their own addresses are for operators.
    assert said(site.admin.get("webhooks"))["items"] == []
    assert site.admin.get(f"webhooks/{made['id']}").status_code == 404
    assert site.admin.delete(f"webhooks/{made['id']}").status_code == 404
    answers = [
        site.admin.get("platform-webhooks"),
        site.admin.get(one),
        site.admin.put(one, terms),
        site.admin.post("platform-webhooks", terms),
        site.admin.post(f"{one}/test", {}),
        site.admin.post(f"{one}/secret", {}),
        site.admin.get(f"{one}/deliveries"),
        site.admin.delete(one),
        site.admin.put(f"{one}/enabled", {"is_enabled": False}),
    ]
    assert {each.status_code for each in answers} == {403}
    assert said(site.operator.put(f"{one}/enabled", {"is_enabled": False}))["is_enabled"] is False
    assert site.operator.delete(one).status_code == 204
    assert site.operator.get(one).status_code == 404


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"url": "http://10.0.0.1/"}, "bad_url", "url"),
        ({"url": "https://127.0.0.1@10.0.0.1/"}, "bad_url", "url"),
        ({"url": "https://no-such-name.invalid/"}, "bad_url", "url"),
        ({"events": ["booking.unheard_of"]}, "unknown_event", "events"),
        ({"events": []}, "too_short", "events"),
        ({"events": ["rack.*"]}, "unknown_event", "events"),
        ({"project": "hidden-not-there"}, "not_found", "project"),
        ({"colour": "red"}, "unknown_field", "colour"),
        ({"name": "a\u202eb"}, "bad_text", "name"),
    ],
)
def test_bad_webhooks_are_refused_beside_the_field(
    site: Site, body: dict[str, object], code: str, param: str
) -> None:
    answer = site.admin.post("webhooks", hook(**body))
    assert 400 <= answer.status_code < 500
    assert (said(answer)["code"], said(answer)["param"]) == (code, param)


def test_only_admins_and_leads_have_webhooks(site: Site) -> None:
    assert site.lead.post("webhooks", hook()).status_code == 403
    for api in (site.researcher, site.viewer):
        assert api.post("webhooks", hook(project="folding")).status_code == 403
    made = said(site.lead.post("webhooks", hook(project="folding")))
    whole = said(site.admin.post("webhooks", hook()))
    for api, row in (
        (site.researcher, made),
        (site.outsider, made),
        (site.lead, whole),
        (site.outsider, whole),
    ):
        address = f"webhooks/{row['id']}"
        assert api.get(address).status_code == 404
        assert api.delete(address).status_code == 404
        assert api.post(f"{address}/secret", {}).status_code == 404
        assert api.post(f"{address}/test", {}).status_code == 404
        assert api.get(f"{address}/deliveries").status_code == 404
    assert said(site.outsider.get("webhooks"))["items"] == []
    # The tenant of a delivery is checked, and so is its webhook.
    said(site.admin.post(f"webhooks/{whole['id']}/test", {}))
    with as_system():
        number = WebhookDelivery.objects.get().id
    crossed = site.admin.post(f"webhooks/{made['id']}/deliveries/{number}/resend", {})
    assert crossed.status_code == 404


def test_events_are_listed_in_order_and_behind_the_wall(site: Site) -> None:
    first = said(site.researcher.post("bookings", LINE))
    relayed()
    second = said(site.researcher.post("bookings", LINE))
    said(site.researcher.post(f"bookings/{second['number']}/cancel", {}))
    relayed()

    def listed(api: Any, **query: str) -> list[tuple[str, str]]:  # noqa: ANN401 (an Api)
        items = said(api.get("events", **query))["items"]
        return [(each["type"], each["data"]["booking"]["number"]) for each in items]

    everything = [
        ("booking.requested", first["number"]),
        ("booking.requested", second["number"]),
        ("booking.cancelled", second["number"]),
    ]
    for api in (site.admin, site.viewer):
        assert listed(api) == everything
    assert listed(site.outsider) == []
    page = said(site.viewer.get("events", limit="1"))
    assert page["next"] == page["items"][0]["id"]
    assert listed(site.viewer, since=page["next"]) == everything[1:]
    assert listed(site.viewer, types="booking.cancelled") == everything[2:]
    assert listed(site.viewer, project="folding", types="*") == everything
    assert said(site.viewer.get("events", since=page["next"]))["next"] is None
    for query, code in (
        ({"since": page["next"][:-1]}, "unknown_since"),
        ({"since": f"evt_{uuid4().hex}"}, "unknown_since"),
        ({"types": "x"}, "unknown_event"),
        ({"limit": "0"}, "out_of_range"),
        ({"project": "hidden"}, "not_found"),
        ({"colour": "red"}, "unknown_field"),
    ):
        assert said(site.viewer.get("events", **query))["code"] == code
    assert said(site.outsider.get("events", since=page["next"]))["code"] == "unknown_since"


def test_the_document_has_exactly_the_catalogue() -> None:
    document = yaml.load((ROOT / "docs" / "openapi.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    assert list(document["webhooks"]) == [*EVENT_TYPES, "webhook.test"]
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert [name for name in EVENT_TYPES if f"`{name}`" not in page] == []
