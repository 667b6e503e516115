"""Disputes of statements over REST and on the pages."""

import re

import pytest
from django.db import DatabaseError, transaction
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from allocation.features.disputes.models import StatementDispute
from allocation.features.disputes.services import DisputeAnswerTerms, dispute_answer
from portal.integrations.mail.message import section_of
from portal.integrations.relay import outbox_relay
from tenants.access import PlatformActor
from tenants.models import Mail, Notification, PublishedEvent, User
from tenants.platform.wall import tenant_tx
from tests.api.builders import Site, said
from tests.builders import a_tenant_admin, an_operator
from tests.roles import as_owner, as_role, as_system

MONTH = f"{timezone.now():%Y-%m}"
NOTE = {"project": "folding", "note": "BK-1 was cut off by a node."}


def test_a_dispute_is_raised_once_and_answered_once_by_an_operator(site: Site) -> None:
    path = f"statements/{MONTH}/dispute"
    made = said(site.lead.post(path, NOTE))
    assert (made["state"], made["project"], made["month"]) == ("open", "folding", MONTH)
    assert said(site.lead.post(path, NOTE))["code"] == "dispute_open"
    for who, status in (("researcher", 403), ("outsider", 422)):
        assert getattr(site, who).post(path, NOTE).status_code == status
    for bad in ({"note": ""}, {"note": "x" * 1001}, {"note": "x", "booking": "BK-99"}):
        assert site.lead.post(path, NOTE | bad).status_code in (400, 422)
    assert site.lead.post("statements/2999-01/dispute", NOTE).status_code == 422
    assert [each["id"] for each in said(site.viewer.get("disputes"))["items"]] == [made["id"]]
    assert said(site.outsider.get("disputes"))["items"] == []

    # The web's role can't answer, whoever asks.
    with pytest.raises(DatabaseError, match="only an operator"), tenant_tx(site.tenant.id):
        StatementDispute.objects.update(
            state="declined",
            answer="No.",
            answered_at=timezone.now(),
            answered_by=an_operator(),
        )
    operators = Client()
    operators.force_login(an_operator())
    answer = {"dispute": made["id"], "act": "answer", "outcome": "declined", "answer": "The node was up."}
    assert "BK-1 was cut off" in operators.get("/ops/disputes").content.decode()
    assert operators.post("/ops/disputes", answer | {"answer": " "}).status_code == 422
    assert operators.post("/ops/disputes", answer).status_code == 302
    assert operators.post("/ops/disputes", answer).status_code == 422
    (row,) = said(site.lead.get("disputes"))["items"]
    assert (row["state"], row["answer"]) == ("declined", "The node was up.")
    assert said(site.lead.post(f"disputes/{row['id']}/withdraw"))["code"] == "dispute_answered"
    with as_owner(), pytest.raises(DatabaseError, match="answered once"), transaction.atomic():
        StatementDispute.objects.update(state="open", answer="", answered_by=None)


def test_an_admin_disputes_and_withdraws_on_the_page(site: Site) -> None:
    client, statements = Client(), f"/t/{site.tenant.slug}/statements"
    client.force_login(a_tenant_admin(site.tenant).user)
    page = f"{statements}/{MONTH}/disputes"
    assert f'href="{page}?project="' in client.get(statements).content.decode()
    made = client.post(page, {"act": "raise", "project": "", "booking": "", "note": "Too much."})
    assert (made.status_code, made["Location"]) == (302, f"{statements}?month={MONTH}#disputes")
    assert "Too much." in client.get(statements).content.decode()
    with as_system():
        row = StatementDispute.objects.get()
    client.post(page, {"act": "withdraw", "dispute": str(row.id)})
    with as_system():
        row.refresh_from_db()
    assert row.state == "withdrawn"


def test_a_refused_dispute_says_why_next_to_its_field_and_keeps_the_text(site: Site) -> None:
    client, page = Client(), f"/t/{site.tenant.slug}/statements/{MONTH}/disputes"
    client.force_login(a_tenant_admin(site.tenant).user)
    form = {"act": "raise", "project": "folding", "note": "Too much.", "booking": "BK-99"}
    refused = client.post(page, form)
    shown = " ".join(refused.content.decode().split())
    assert refused.status_code == 422
    assert re.search(r'name="booking" type="text" value="BK-99".*?aria-invalid="true"', shown)
    assert 'value="Too much."' in shown
    assert client.post(page, form | {"booking": ""}).status_code == 302
    again = client.post(page, form | {"booking": ""})
    assert again.status_code == 422
    assert "The same is disputed already" in again.content.decode()


def test_the_form_begins_with_the_project_whose_statement_was_read(site: Site) -> None:
    client, page = Client(), f"/t/{site.tenant.slug}/statements/{MONTH}/disputes"
    client.force_login(site.people["lead"])
    shown = " ".join(client.get(page, {"project": "folding"}).content.decode().split())
    assert re.search(r'<option value="folding"[^>]*selected', shown)
    # A lead disputes what their project pays, not what the organisation does.
    assert "The whole organisation" not in shown
    assert client.get(page, {"project": "unknown"}).status_code == 404
    assert client.get(page.replace(MONTH, "2026-13")).status_code == 422


def test_everybody_concerned_learns_of_a_dispute_and_of_its_answer(site: Site, settings: Settings) -> None:
    settings.MAIL_ON = True
    operator = an_operator()
    with as_owner():
        User.objects.filter(id=operator.id).update(email="otto@example.org")
    site.lead.post(f"statements/{MONTH}/dispute", NOTE)
    now = timezone.now()
    with as_system():
        outbox_relay(now)
        admins = {site.people["admin"].id, site.people["operator"].id}
        assert _notified("dispute.raised") == {*admins, operator.id}
        (mail,) = Mail.objects.filter(kind="dispute.raised", user=operator)
        section = section_of(mail, now)
        assert section is not None
        assert "BK-1 was cut off" in section.sentences[1]
        assert section.href.endswith("/ops/disputes")
        row = StatementDispute.objects.get()
        with as_role("portal_ops"):
            dispute_answer(
                actor=PlatformActor.of(operator),
                dispute_id=row.id,
                terms=DisputeAnswerTerms(outcome="declined", answer="It was up."),
                now=now,
            )
        outbox_relay(now)
        assert _notified("dispute.answered") >= {site.people["lead"].id, site.people["admin"].id}
        entry = Notification.objects.filter(kind="dispute.answered").first()
        assert entry is not None
        assert "declined" in entry.title
        assert "It was up." in entry.text
        events = [event.type for event in PublishedEvent.objects.order_by("id")]
    assert events == ["dispute.raised", "dispute.answered"]


def _notified(kind: str) -> set[int]:
    return set(Notification.objects.filter(kind=kind).values_list("user_id", flat=True))
