"""The pages of webhooks: made, tried, switched and deleted, by the people that it concerns."""

import re
from ipaddress import ip_network

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from tenants.models import Membership, Role, Webhook, WebhookDelivery
from tests.builders import a_member, a_project, a_tenant, a_tenant_admin, an_operator
from tests.roles import as_system

pytestmark = pytest.mark.django_db
URL = "http://127.0.0.1:9/hook"
FORM = {"act": "create", "name": "CI", "url": URL, "events": ["booking.started", "booking.ended"]}


@pytest.fixture(autouse=True)
def _loopback_is_allowed(settings: Settings) -> None:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]


def signed_in(member: Membership) -> Client:
    client = Client()
    client.force_login(member.user)
    return client


def the_webhook() -> Webhook:
    with as_system():
        return Webhook.objects.get()


@pytest.mark.turn
def test_an_admin_makes_tries_and_deletes_one() -> None:
    tenant = a_tenant("helix")
    admin, base = signed_in(a_tenant_admin(tenant)), "/t/helix/settings/webhooks"
    assert base in admin.get("/t/helix/organisation").content.decode()
    assert "No webhooks yet" in admin.get(base).content.decode()
    made = admin.post(base, FORM).content.decode()
    assert re.search(r"whsec_[A-Za-z0-9+/=]{44}", made)
    assert "whsec_" not in admin.get(base).content.decode()
    one = f"{base}/{the_webhook().id}"
    assert the_webhook().events == ["booking.started", "booking.ended"]
    tested = admin.post(one, {"act": "test"}, follow=True).content.decode()
    assert "webhook.test" in tested
    assert "Send now" in tested
    # Messages wait, so a person is asked before they are dropped.
    asked = admin.post(one, {"act": "off"}).content.decode()
    assert "Waiting messages that are dropped: 1" in asked
    off = admin.post(one, {"act": "off", "sure": "1"}, follow=True).content.decode()
    assert "Switched off by" in off
    assert "Dropped" in off
    assert 'value="resend"' not in off
    admin.post(one, {"act": "on"})
    bad = admin.post(one, {**FORM, "act": "change", "url": "http://10.0.0.1/"})
    assert bad.status_code == 422
    assert "private or reserved" in bad.content.decode()


@pytest.mark.turn
def test_messages_go_again_secrets_rotate_and_webhooks_are_deleted() -> None:
    admin, base = signed_in(a_tenant_admin(a_tenant("helix"))), "/t/helix/settings/webhooks"
    admin.post(base, FORM)
    one = f"{base}/{the_webhook().id}"
    admin.post(one, {"act": "test"})
    with as_system():
        number = WebhookDelivery.objects.get().id
        WebhookDelivery.objects.update(state="delivered", settled=timezone.now())
    again = admin.post(one, {"act": "resend", "delivery": str(number)}, follow=True)
    assert again.content.decode().count('value="resend"') == 2
    assert admin.post(one, {"act": "resend", "delivery": "²"}).status_code == 404
    rotated = admin.post(one, {"act": "rotate"}).content.decode()
    assert "whsec_" in rotated
    assert "is valid until" in rotated
    assert "can&#x27;t be undone" in admin.post(one, {"act": "delete"}).content.decode()
    admin.post(one, {"act": "delete", "sure": "1"})
    assert admin.get(one).status_code == 404


@pytest.mark.turn
def test_leads_see_their_projects_and_others_nothing() -> None:
    project = a_project(a_tenant("helix"), "folding")
    lead, admin = a_member(project, Role.LEAD), a_tenant_admin(project.tenant)
    base = "/t/helix/settings/webhooks"
    signed_in(admin).post(base, FORM)
    whole = f"{base}/{the_webhook().id}"
    shown = signed_in(lead).get(base).content.decode()
    assert "All projects" not in shown
    assert URL not in shown
    assert signed_in(lead).get(whole).status_code == 404
    assert signed_in(lead).post(whole, {"act": "rotate"}).status_code == 404
    assert signed_in(lead).post(base, FORM).status_code == 403
    made = signed_in(lead).post(base, {**FORM, "project": "folding"})
    assert "whsec_" in made.content.decode()
    researcher = signed_in(a_member(project, Role.RESEARCHER))
    assert researcher.get(base).status_code == 403
    assert base not in researcher.get("/t/helix/settings").content.decode()
    outsider = signed_in(a_tenant_admin(a_tenant("north")))
    assert outsider.get(base).status_code == 404
    assert outsider.get(f"/t/north/settings/webhooks/{whole[-36:]}").status_code == 404


@pytest.mark.turn
def test_operators_make_and_see_those_of_the_platform() -> None:
    operator, base = Client(), "/ops/webhooks"
    operator.force_login(an_operator())
    assert base in operator.get("/ops/announcements").content.decode()
    assert "No webhooks yet" in operator.get(base).content.decode()
    assert operator.post(base, FORM).status_code == 422
    made = operator.post(base, {**FORM, "events": ["node.*", "maintenance.started"]})
    assert re.search(r"whsec_[A-Za-z0-9+/=]{44}", made.content.decode())
    one = f"{base}/{the_webhook().id}"
    tested = operator.post(one, {"act": "test"}, follow=True).content.decode()
    assert "webhook.test" in tested
    assert "booking.started" not in tested
    asked = operator.post(one, {"act": "off"}).content.decode()
    assert f'href="{one}"' in asked
    admin = signed_in(a_tenant_admin(a_tenant("helix")))
    assert admin.get(one).status_code == admin.get(base).status_code == 404
    assert URL not in admin.get("/t/helix/settings/webhooks").content.decode()
    assert admin.get(f"/t/helix/settings/webhooks/{the_webhook().id}").status_code == 404
    assert operator.post(one, {"act": "delete", "sure": "1"}, follow=True).status_code == 200
    assert operator.get(one).status_code == 404
