"""Requests for more than a limit allows: from the refusal to the booking that runs by it."""

import html
import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.mail import EmailMessage
from django.db import IntegrityError
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from allocation.features.overrides.decisions import GrantTerms, override_grant
from allocation.features.overrides.ending import overrides_warn
from allocation.features.overrides.requests import OverrideTerms, override_ask
from allocation.models import Booking, Override
from allocation.services.decide.cycle import cycle_run
from allocation.services.snapshot.override_rows import overrides_read
from billing.models import Budget
from portal.integrations.mail.send import mails_send
from portal.integrations.notifications.delivery import people_notify
from tenants.access import PlatformActor
from tenants.models import (
    AuditEntry,
    Membership,
    Notification,
    OutboxMessage,
    Project,
    Tier,
    User,
)
from tenants.platform.wall import tenant_tx
from tests.api.builders import Api, Site, a_site, row_counts, said
from tests.roles import as_owner, as_system
from tests.servers.servers import Servers

pytestmark = [pytest.mark.races, pytest.mark.turn]

BIG = {"project": "folding", "tier": "spot", "request": "6 h100 for 10m"}
LONG = {"project": "folding", "request": "1 h100 for 8d"}


@pytest.fixture
def deciding_site(real_db: Servers) -> Site:
    """A site whose solver can run, with Valkey for what is sent after a commit."""
    real_db.valkey_ensure()
    return a_site()


def refused(answer: Any) -> dict[str, str]:  # noqa: ANN401 (a response)
    """What the refusal says to ask for."""
    assert answer.status_code in (400, 409, 422), answer.content
    more = said(answer)["ask_for_more"]
    assert isinstance(more, dict)
    return more


def asked(api: Api, body: dict[str, Any]) -> str:
    answer = api.post("overrides", body)
    assert answer.status_code == 201, answer.content
    return str(said(answer)["id"])


def test_more_quota_is_asked_for_and_granted_until_a_date(
    deciding_site: Site,
) -> None:
    site = deciding_site
    more = refused(site.researcher.post("bookings", BIG))
    assert more == {"kind": "quota", "gpu_class": "h100", "project": "folding", "amount": "2"}
    key = asked(site.researcher, more | {"reason": "A deadline"})
    before = row_counts()
    until = (timezone.now() + timedelta(days=3)).isoformat()
    attacks: list[tuple[Api, str, dict[str, Any], int, str]] = [
        (site.researcher, "grant", {}, 403, "not_allowed"),
        (site.lead, "grant", {}, 403, "not_allowed"),
        (site.viewer, "grant", {}, 404, "not_found"),
        (site.outsider, "grant", {}, 404, "not_found"),
        (site.admin, "withdraw", {}, 403, "not_allowed"),
        (site.admin, "decline", {"reason": " "}, 422, "empty"),
        (site.admin, "grant", {"amount": "-1"}, 400, "bad_amount"),
        (site.admin, "grant", {"amount": "1e9"}, 400, "bad_amount"),
        (site.admin, "grant", {"until": "2020-01-01T00:00:00Z"}, 422, "bad_until"),
        (site.researcher, "end", {}, 403, "not_allowed"),
    ]
    for api, act, body, status, code in attacks:
        answer = api.post(f"overrides/{key}/{act}", body)
        assert (answer.status_code, said(answer)["code"]) == (status, code), (act, body)
    assert said(site.researcher.post("overrides", more))["code"] == "override_asked"
    assert row_counts() == before
    granted = said(site.admin.post(f"overrides/{key}/grant", {"until": until, "reason": "Fine"}))
    assert (granted["state"], granted["amount"], granted["answer"]) == ("granted", "2", "Fine")
    assert said(site.admin.post(f"overrides/{key}/grant", {}))["code"] == "override_over"

    made = site.researcher.post("bookings", BIG)
    assert made.status_code == 201
    with as_system():
        cycle_run(timezone.now())
    with as_system():
        assert Booking.objects.get().state in ("scheduled", "starting")
        (row,) = overrides_read(timezone.now())
        assert (row.owner, row.units) == (str(site.project.id), 2 * 56_000)
        assert overrides_read(timezone.now() + timedelta(days=4)) == ()
    assert said(site.admin.post(f"overrides/{key}/end", {}))["state"] == "ended"
    assert refused(site.researcher.post("bookings", BIG)) == more
    with tenant_tx(site.tenant.id):
        actions = AuditEntry.objects.filter(object_kind="override").order_by("id")
        acts = list(actions.values_list("action", "actor__username"))
    assert acts == [
        ("override.asked", "mara"),
        ("override.granted", "ada"),
        ("override.ended", "ada"),
    ]


@pytest.mark.parametrize("way", ["removed", "made a viewer", "closed"])
@pytest.mark.parametrize("kind", ["quota", "person_quota"])
def test_who_has_left_is_granted_nothing(deciding_site: Site, way: str, kind: str) -> None:
    site = deciding_site
    more = {"kind": kind, "gpu_class": "h100", "amount": "2", "reason": "A deadline"}
    key = asked(site.researcher, more | ({"project": "folding"} if kind == "quota" else {}))
    with as_system():
        theirs = Membership.objects.filter(user=site.people["researcher"])
        if way == "removed":
            theirs.delete()
        elif way == "made a viewer":
            theirs.update(role="viewer")
        else:
            with as_owner():
                User.objects.filter(id=site.people["researcher"].id).update(is_active=False)
    before = row_counts()
    answer = site.admin.post(f"overrides/{key}/grant", {})
    assert (answer.status_code, said(answer)["code"]) == (409, "owner_left"), answer.content
    assert row_counts() == before
    declined = site.admin.post(f"overrides/{key}/decline", {"reason": "They have left."})
    assert said(declined)["state"] == "declined"


def test_nothing_is_granted_to_a_closed_project(deciding_site: Site) -> None:
    site = deciding_site
    key = asked(site.researcher, {"kind": "quota", "gpu_class": "h100", "amount": "2", "project": "folding"})
    with as_system():
        Project.objects.filter(id=site.project.id).update(is_open=False)
    assert said(site.admin.post(f"overrides/{key}/grant", {}))["code"] == "not_allowed"


def test_one_booking_of_a_full_project_runs_by_an_exception_of_its_own(deciding_site: Site) -> None:
    """Example 12 of the rules of changes, at a limit of four."""
    site = deciding_site
    full = said(site.researcher.post("bookings", BIG | {"request": "4 h100 for 2h"}))
    with as_system():
        cycle_run(timezone.now())
    nine = said(site.researcher.post("bookings", BIG | {"request": "2 h100 for 1h"}))
    other = said(site.lead.post("bookings", BIG | {"request": "1 h100 for 1h"}))
    more = {"kind": "quota", "gpu_class": "h100", "project": "folding", "amount": "2"}
    with as_system():
        cycle_run(timezone.now())
    mara = Client()
    mara.force_login(site.people["researcher"])
    page = mara.get(f"/t/helix/bookings/{nine['number']}").content.decode()
    assert f"gpu_class=h100&amp;amount=2&amp;booking={nine['number']}&amp;project=folding" in page
    key = asked(site.researcher, more | {"booking": nine["number"]})
    granted = said(site.admin.post(f"overrides/{key}/grant", {}))
    assert (granted["once"], granted["until"], granted["booking"]) == (True, None, nine["number"])
    now = timezone.now()
    with as_system():
        cycle_run(now)
    with as_system():
        rows = {row.label: row for row in Booking.objects.all()}
        starts, waits = rows[nine["number"]].planned_starts, rows[other["number"]]
        ends = rows[full["number"]].planned_ends
        assert starts is not None
        assert starts <= now + timedelta(minutes=5)
        assert waits.planned_starts is not None
        assert ends is not None
        assert waits.planned_starts >= ends
        assert waits.reasons[0]["code"] == "project_quota"


def test_a_longer_booking_is_the_operators_to_grant_and_used_once(site: Site) -> None:
    more = refused(site.researcher.post("bookings", LONG))
    where = {"tier": "standard", "project": "folding"}
    assert more == {"kind": "length", "amount": str(86_400), **where}
    key = asked(site.researcher, more | {"once": True})
    assert said(site.admin.post(f"overrides/{key}/grant", {}))["code"] == "not_allowed"
    now = timezone.now()
    facts = {"decided": now, "decided_by": site.people["admin"], "starts": now}
    with pytest.raises(IntegrityError, match="only an operator"), tenant_tx(site.tenant.id):
        Override.objects.filter(id=key).update(state="granted", **facts)
    assert said(site.operator.post(f"overrides/{key}/grant", {}))["state"] == "granted"
    assert refused(site.lead.post("bookings", LONG | {"tier": "standard"})) == more
    made = said(site.researcher.post("bookings", LONG))
    assert said(site.researcher.get(f"overrides/{key}"))["booking"] == made["number"]
    assert refused(site.researcher.post("bookings", LONG)) == more


def test_more_budget_is_a_transfer(site: Site) -> None:
    with as_system():
        left = Budget.objects.get(id=site.budget.id).account.credits
    more = {"kind": "budget", "budget": str(site.budget.id), "amount": "12.50"}
    key = asked(site.researcher, more)
    assert said(site.admin.post(f"overrides/{key}/grant", {"amount": "10"}))["amount"] == "10"
    with as_system():
        account = Budget.objects.get(id=site.budget.id).account
        assert account.credits == left + Decimal(10)
    assert said(site.admin.post(f"overrides/{key}/end", {}))["code"] == "override_over"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"kind": "fame", "amount": "1"}, "bad_kind"),
        ({"kind": "quota", "amount": "0", "gpu_class": "h100"}, "bad_amount"),
        ({"kind": "quota", "amount": "1", "gpu_class": "x"}, "not_found"),
        ({"kind": "quota", "amount": "1", "gpu_class": "h100", "once": True}, "bad_kind"),
        ({"kind": "quota", "amount": "1", "gpu_class": "h100", "project": "climate"}, "not_found"),
        ({"kind": "length", "amount": "60", "tier": "standard"}, "not_found"),
        ({"kind": "budget", "amount": "1"}, "not_found"),
        ({"kind": "quota", "amount": "1", "gpu_class": "h100", "booking": "BK-9"}, "not_found"),
    ],
)
def test_bad_input_changes_nothing(site: Site, body: dict[str, Any], code: str) -> None:
    assert said(site.researcher.post("overrides", body))["code"] == code
    assert said(site.researcher.get("overrides"))["items"] == []


def test_the_page_asks_with_the_numbers_of_the_refusal_and_decides(site: Site) -> None:
    mara, ada = Client(), Client()
    mara.force_login(site.people["researcher"])
    ada.force_login(site.people["admin"])
    more = refused(site.researcher.post("bookings", BIG))
    form = mara.get("/t/helix/overrides", more).content.decode()
    assert 'value="2"' in form
    answer = mara.post("/t/helix/overrides", more | {"act": "ask", "reason": "A deadline"})
    assert answer.status_code == 302, answer.content
    with tenant_tx(site.tenant.id):
        row = Override.objects.get()
    sent = {"override": str(row.id), "amount": "2", "until": "2020-01-01"}
    assert "A deadline" in ada.get("/t/helix/overrides").content.decode()
    assert mara.post("/t/helix/overrides", sent | {"act": "grant"}).status_code == 403
    assert ada.post("/t/helix/overrides", sent | {"act": "grant"}).status_code == 422
    assert ada.post("/t/helix/overrides", sent | {"act": "grant", "until": ""}).status_code == 302
    assert "2 GPUs more at once (H100 80 GB)" in mara.get("/t/helix/overrides").content.decode()
    assert site.researcher.post("bookings", BIG).status_code == 201


def page(site: Site, who: str) -> Client:
    client = Client()
    client.force_login(site.people[who])
    return client


def notify(now: datetime) -> None:
    with as_system():
        people_notify(list(OutboxMessage.objects.filter(kind__startswith="override.")), now)


def test_people_begin_a_request_without_a_refusal_and_read_what_became_of_it(site: Site) -> None:
    mara = page(site, "researcher")
    shown = mara.get("/t/helix/overrides").content.decode()
    assert 'name="kind" value="quota"' in shown
    where = {"kind": "length", "project": "folding", "tier": "standard"}
    shown = mara.get("/t/helix/overrides", where | {"amount": "86400"}).content.decode()
    assert "Length of a booking, Standard" in shown
    assert 'value="1d"' in shown
    sent = where | {"act": "ask", "amount": "soon"}
    answer = mara.post(f"/t/helix/overrides?{urlencode(where)}", sent)
    assert (answer.status_code, 'value="soon"' in answer.content.decode()) == (422, True)
    assert mara.post("/t/helix/overrides", sent | {"amount": "1d 12h"}).status_code == 302
    with as_system():
        row = Override.objects.get()
    assert int(row.amount) == 36 * 3_600
    olaf = page(site, "operator")
    assert 'value="1d 12h"' in olaf.get("/ops/overrides").content.decode()
    declined = site.operator.post(f"overrides/{row.id}/decline", {"reason": "Split it"})
    assert declined.status_code == 200
    shown = mara.get("/t/helix/overrides").content.decode()
    assert "Declined today" in shown
    assert "Split it" in shown


def test_one_click_asks_with_the_numbers_of_the_refusal(site: Site) -> None:
    mara = page(site, "researcher")
    shown = mara.get("/t/helix/book", {"q": "6 h100 for 10m spot", "project": "folding"})
    found = re.findall(r'action="(/t/helix/overrides\?kind=quota[^"]*)"', shown.content.decode())
    address = html.unescape(found[0])
    before = row_counts()
    assert mara.get(address).status_code == 200
    assert row_counts() == before
    form = shown.content.decode().partition(found[0])[2].partition("</form>")[0]
    sent = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
    assert sent.pop("csrfmiddlewaretoken", "")
    assert mara.post(address, sent).status_code == 302
    with as_system():
        row = Override.objects.get()
    assert (row.kind, int(row.amount), row.project_id) == ("quota", 112_000, site.project.id)


def _rest_inbox_check(site: Site) -> None:
    """The same over REST, read and unread again."""
    (row,) = said(site.operator.get("operator-notifications", unread="true"))["items"]
    assert (row["tenant"], row["path"], row["is_read"]) == ("helix", "/ops/overrides", False)
    own = f"operator-notifications/{row['id']}"
    assert said(site.operator.put(own, {"is_read": True}))["is_read"]
    assert said(site.operator.get("operator-notifications/count")) == {"unread": 0}
    assert said(site.operator.get("notifications/count")) == {"unread": 0}
    assert not said(site.operator.put(own, {"is_read": False}))["is_read"]
    for _ in range(2):
        body = {"ids": [row["id"]]}
        marked = site.operator.post("operator-notifications/read", body, idempotency_key="once")
        assert said(marked) == {"marked": 1}
    assert not said(site.operator.put(own, {"is_read": False}))["is_read"]
    for answer in (
        site.admin.get("operator-notifications"),
        site.admin.get("operator-notifications/count"),
        site.admin.put(own, {"is_read": True}),
        site.admin.post("operator-notifications/read", {}),
    ):
        assert answer.status_code == 403


def _inbox_check(site: Site, otto: Client, member: Client) -> None:
    """The request is in the inbox of an operator, and unread until it is marked."""
    inbox = otto.get("/ops/inbox").content.decode()
    assert "1 unread request" in inbox
    assert "mara asks for more than a limit allows" in inbox
    assert "1 unread" in otto.get("/ops/inbox/bell").content.decode()
    assert member.get("/ops/inbox").status_code == 404
    _rest_inbox_check(site)
    assert otto.post("/ops/inbox", {"act": "all-read"}).status_code == 302
    assert "unread" not in otto.get("/ops/inbox").content.decode()


def test_operators_decide_on_their_page_and_each_side_is_notified(
    site: Site, mailoutbox: list[EmailMessage], settings: Settings
) -> None:
    settings.MAIL_ON = True
    with as_owner():
        User.objects.filter(id=site.people["operator"].id).update(email="otto@example.org")
    with tenant_tx(site.tenant.id):
        wanted = OverrideTerms(kind="quota", amount="1", gpu_class="h100", reason="A deadline")
        row = override_ask(actor=site.actor("researcher"), terms=wanted, now=timezone.now())
    notify(timezone.now())
    with as_system():
        mails_send(timezone.now())
    assert [mail.subject for mail in mailoutbox] == ["mara asks for more than a limit allows"]
    otto = page(site, "operator")
    _inbox_check(site, otto, page(site, "admin"))
    assert "A deadline" in otto.get("/ops/overrides").content.decode()
    assert page(site, "researcher").get("/ops/overrides").status_code in (403, 404)
    grant = {"act": "grant", "override": str(row.id), "amount": "1", "until": "soon"}
    assert otto.post("/ops/overrides", grant).status_code == 422
    until = f"{timezone.now() + timedelta(days=20):%Y-%m-%d}"
    assert otto.post("/ops/overrides", grant | {"until": until}).status_code == 302
    with as_system():
        later = timezone.now() + timedelta(days=14)
        assert overrides_warn(timezone.now()) == 0
        assert (overrides_warn(later), overrides_warn(later)) == (1, 0)
    notify(later)
    with as_system():
        mine = Notification.objects.filter(user=site.people["researcher"])
        assert {each.kind for each in mine} == {"override.granted", "override.ending"}


def test_a_persons_limit_of_gpus_and_a_longer_run_name_what_to_ask_for(site: Site) -> None:
    with as_system():
        Tier.objects.filter(slug="spot").update(max_open_gpus=2)
    three = BIG | {"request": "3 h100 for 10m"}
    more = refused(site.researcher.post("bookings", three))
    assert more == {"kind": "open_gpus", "amount": "1", "tier": "spot", "project": "folding"}
    asked(site.researcher, more)
    with as_system():
        row = Override.objects.get()
        assert row.decider == "operator"
        now = timezone.now()
        operator = PlatformActor.of(site.people["operator"])
        override_grant(actor=operator, override_id=row.id, terms=GrantTerms(), now=now)
    assert site.researcher.post("bookings", three).status_code == 201
    assert refused(site.lead.post("bookings", three)) == more
