"""Statements by mail: made and ended by people, sent once, with what they may see."""

import re
from datetime import UTC, datetime, timedelta

from django.core import mail as outbound
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from allocation.features.reports.models import ReportSubscription
from allocation.features.reports.services import reports_send
from portal.integrations.mail.send import mails_send
from portal.integrations.relay import outbox_relay
from tenants.models import LabLead, Mail, Membership, Notification, OutboxMessage, User
from tenants.platform.wall import tenant_tx
from tenants.services import TokenLimits, token_create
from tests.api.bookings.test_spend import charged
from tests.api.bookings.test_use import a_busy_booking
from tests.api.builders import Api, Site, a_token, said
from tests.api.frame.test_labs import a_lab
from tests.roles import as_owner, as_system

WEEKLY = {"project": "folding", "cadence": "weekly", "format": "csv", "at": "07:30"}


def address_set(site: Site, who: str, address: str) -> None:
    with as_owner():
        User.objects.filter(id=site.people[who].id).update(email=address)


def test_a_report_is_sent_once_with_its_file_and_ends_by_its_address(site: Site, settings: Settings) -> None:
    settings.MAIL_ON = True
    made = said(site.viewer.post("reports", WEEKLY))
    assert (made["at"], made["project"]) == ("07:30", "folding")
    due = datetime.fromisoformat(made["due"])
    address_set(site, "viewer", "vera@example.org")
    with as_system():
        assert reports_send(due - timedelta(seconds=1)) == 0
        assert [reports_send(due) for _ in range(2)] == [1, 0]
        outbox_relay(due)
        (entry,) = Notification.objects.filter(kind="report.due")
        assert entry.user_id == site.people["viewer"].id
        assert mails_send(due + timedelta(days=1)) == 1
    (letter,) = outbound.outbox
    assert letter.subject.startswith("Statement of Folding") or "folding" in letter.subject.lower()
    (file,) = [each for each in letter.attachments if "csv" in str(each[2])]
    assert (str(file[1])[:10], "No GPU was booked" in letter.body) == ("at,booking", True)
    address = letter.extra_headers["List-Unsubscribe"].strip("<>")
    assert address in letter.body
    # After an outage of a month only the latest week is sent.
    with as_system():
        assert reports_send(due + timedelta(days=30)) == 1
        assert ReportSubscription.objects.get().due > due + timedelta(days=30)
    path = re.sub(r"^https?://[^/]+", "", address)
    client = Client()
    assert "End this report?" in client.get(path).content.decode()
    with as_system():
        assert ReportSubscription.objects.exists()
    # What a mail program posts, without a cookie; more than once is no error.
    for _ in range(2):
        assert client.post(path, {"List-Unsubscribe": "One-Click"}).status_code == 200
    assert client.post(f"{path[:-3]}abc").status_code == 404
    with as_system():
        assert not ReportSubscription.objects.exists()


def test_reports_are_refused_for_what_one_may_not_see_and_twice(site: Site) -> None:
    made = said(site.viewer.post("reports", WEEKLY))
    assert said(site.viewer.post("reports", WEEKLY))["code"] == "report_exists"
    assert site.viewer.post("reports", {"cadence": "weekly"}).status_code == 403
    assert site.outsider.post("reports", WEEKLY).status_code in (404, 422)
    assert site.viewer.post("reports", WEEKLY | {"at": "25:00"}).status_code == 422
    assert site.researcher.delete(f"reports/{made['id']}").status_code == 404
    assert site.viewer.delete(f"reports/{made['id']}").status_code == 204


def test_who_may_not_see_the_statement_any_more_gets_no_mail(site: Site, settings: Settings) -> None:
    settings.MAIL_ON = True
    site.viewer.post("reports", WEEKLY)
    now = timezone.now() + timedelta(days=8)
    with as_system():
        address_set(site, "viewer", "vera@example.org")
        reports_send(now)
        outbox_relay(now)
        assert Mail.objects.filter(kind="report.due").count() == 1
        Membership.objects.filter(user=site.people["viewer"]).delete()
        assert mails_send(now + timedelta(days=1)) == 0
        assert Mail.objects.get(kind="report.due").dropped
    assert outbound.outbox == []


def test_a_report_ends_with_the_token_that_made_it(site: Site, settings: Settings) -> None:
    settings.MAIL_ON = True
    address_set(site, "viewer", "vera@example.org")
    child = said(site.viewer.post("tokens", {"name": "reports", "scopes": ["read", "book", "admin"]}))
    made = said(Api(child["token"]).post("reports", WEEKLY))
    now = timezone.now() + timedelta(days=8)
    with as_system():
        reports_send(now)
        outbox_relay(now)
    assert site.viewer.delete(f"tokens/{child['id']}").status_code == 200
    with as_system():
        assert mails_send(now) == 0, "also not what was requested before"
        assert reports_send(now + timedelta(days=8)) == 0
    assert said(site.viewer.get("reports"))["items"] == []
    assert site.viewer.delete(f"reports/{made['id']}").status_code == 404
    # It is in nobody's way.
    assert site.viewer.post("reports", WEEKLY).status_code == 201
    with as_system():
        assert ReportSubscription.objects.count() == 1
    assert outbound.outbox == []


def test_the_page_adds_and_ends_reports(site: Site) -> None:
    client = Client()
    client.force_login(site.people["lead"])
    page = "/t/helix/reports"
    form = {"act": "add", "project": "folding", "cadence": "monthly", "format": "pdf", "at": "08:00"}
    refused = client.post(page, form | {"at": "noon"})
    assert refused.status_code == 422
    assert 'value="noon"' in refused.content.decode()
    assert "Write a time of day" in refused.content.decode()
    assert client.post(page, form | {"project": ""}).status_code == 403
    assert client.post(page, form).status_code == 302
    shown = client.get(page).content.decode()
    assert "Every month at 08:00" in shown
    with as_system():
        row = ReportSubscription.objects.get()
        assert row.due.astimezone(UTC) > timezone.now()
    assert client.post(page, {"act": "end", "report": str(row.id)}).status_code == 302
    with as_system():
        assert not ReportSubscription.objects.exists()
        assert not OutboxMessage.objects.filter(kind="report.due").exists()


def test_leads_and_admins_send_reports_to_others_who_may_read_them(site: Site) -> None:
    of_viewer = {**WEEKLY, "person": "vera"}
    assert site.researcher.post("reports", of_viewer).status_code == 403
    assert site.lead.post("reports", {**WEEKLY, "person": "stefan"}).status_code == 422
    whole = {"cadence": "monthly", "person": "vera"}
    assert site.admin.post("reports", whole).status_code == 422, "she is no admin"
    made = said(site.lead.post("reports", of_viewer))
    assert made["person"] == "vera"
    assert said(site.viewer.get("reports"))["items"] == [made]
    assert said(site.researcher.get("reports"))["items"] == []
    assert site.researcher.delete(f"reports/{made['id']}").status_code == 404
    client = Client()
    client.force_login(site.people["lead"])
    page = client.get("/t/helix/reports").content.decode()
    assert "Reports of others" in page
    assert client.post("/t/helix/reports", {"act": "end", "report": made["id"]}).status_code == 302
    assert said(site.viewer.get("reports"))["items"] == []


def test_admins_get_the_statement_of_a_lab(site: Site) -> None:
    site.admin.post("labs", {"slug": "physics", "name": "Physics"})
    assert site.admin.put("projects/folding", {"lab": "physics"}).status_code == 200
    charged(site, 7, 0)
    month = f"{timezone.now():%Y-%m}"
    found = said(site.admin.get("statements", month=month, lab="physics"))
    assert (found["lab"], found["project"], found["lines"]) == ("physics", None, 1)
    site.admin.post("labs", {"slug": "empty", "name": "Empty"})
    assert said(site.admin.get("statements", month=month, lab="empty"))["lines"] == 0
    assert site.lead.get("statements", month=month, lab="physics").status_code == 403
    assert site.admin.get("statements", month=month, lab="no").status_code == 422
    file = site.admin.get("statements.csv", month=month, lab="physics")
    assert f"statement-lab-physics-{month}.csv" in file["Content-Disposition"]
    assert file.getvalue().startswith(b"at,booking")
    client = Client()
    client.force_login(site.people["admin"])
    page = "/t/helix/statements"
    shown = client.get(page, {"month": month, "project": "lab:physics"}).content.decode()
    assert '<option value="lab:physics" selected>' in shown
    assert "€7.00" in shown
    assert client.get(page, {"month": month, "project": "lab:no"}).status_code in (404, 422)


ROUTES = ("statements", "statements.csv", "statements.pdf", "exports/focus", "held-use")
FOLDINGS = ({"lab": "physics"}, {"project": "folding"})
LAB_WEEKLY = {"cadence": "weekly", "format": "csv"}


def _limited(site: Site, who: str, project: str) -> Api:
    """The person with a token of one project."""
    actor, limits = site.actor(who), TokenLimits(project=project)
    with tenant_tx(actor.tenant_id):
        return Api(token_create(actor=actor, name="t", days=1, now=timezone.now(), limits=limits)[1])


def _asked(api: Api, route: str, **query: str) -> HttpResponse:
    """The answer about this month, whose file is read to its end."""
    answer = api.get(route, month=f"{timezone.now():%Y-%m}", **query)
    if answer.streaming:
        answer.getvalue()
    return answer


def _codes(api: Api, **query: str) -> set[int]:
    return {_asked(api, route, **query).status_code for route in ROUTES}


def _a_viewer_of_hidden(site: Site) -> Api:
    """Folding is in the lab physics and was charged; the person sees the project hidden only."""
    a_lab(site)
    charged(site, 7, 0)
    with as_owner():
        Membership.objects.filter(user=site.people["viewer"]).update(project=site.hidden)
    return Api(a_token(site.actor("viewer")))


def test_leads_of_a_lab_read_its_statement_its_use_and_the_files(site: Site) -> None:
    viewer = _a_viewer_of_hidden(site)
    assert [_codes(viewer, **query) for query in FOLDINGS] == [{403}, {422}]
    assert site.admin.post("labs/physics/leads", {"username": "vera"}).status_code < 300
    for query in FOLDINGS:
        assert _codes(viewer, **query) == {200}, query
        for route in ("statements", "held-use"):
            assert said(_asked(viewer, route, **query)) == said(_asked(site.admin, route, **query))
    export = {"month": f"{timezone.now():%Y-%m}", "project": "folding", "file": "csv"}
    assert viewer.post("exports", export).status_code == 202
    assert len(said(viewer.get("exports"))["items"]) == 1
    client = Client()
    client.force_login(site.people["viewer"])
    shown = client.get("/t/helix/statements", {"project": "lab:physics"}).content.decode()
    assert "€7.00" in shown
    assert '<option value="lab:physics" selected>' in shown
    # Neither other labs nor the organisation, and with a token of one project no lab.
    site.admin.post("labs", {"slug": "empty", "name": "Empty"})
    assert [_codes(viewer, lab=lab) for lab in ("empty", "nope")] == [{403}, {403}]
    limited = _limited(site, "viewer", "hidden")
    assert [_codes(limited, **query) for query in FOLDINGS] == [{403}, {422}]


def test_leads_of_a_lab_get_its_statement_by_mail_as_long_as_they_lead_it(
    site: Site, settings: Settings
) -> None:
    settings.MAIL_ON = True
    viewer = _a_viewer_of_hidden(site)
    assert [viewer.post("reports", LAB_WEEKLY | query).status_code for query in FOLDINGS] == [403, 422]
    assert site.admin.post("labs/physics/leads", {"username": "vera"}).status_code < 300
    refused = [{"lab": "nope"}, {}, {"lab": "physics", "person": "mara"}]
    codes = [viewer.post("reports", LAB_WEEKLY | body).status_code for body in refused]
    assert codes == [403, 403, 422]
    assert [viewer.post("reports", LAB_WEEKLY | query).status_code for query in FOLDINGS] == [201, 201]
    client = Client()
    client.force_login(site.people["viewer"])
    assert "Physics (lab)" in client.get("/t/helix/reports").content.decode()
    limited = _limited(site, "viewer", "hidden")
    assert all(limited.post("reports", LAB_WEEKLY | query).status_code >= 400 for query in FOLDINGS)
    with as_system():
        address_set(site, "viewer", "vera@example.org")
        due = max(ReportSubscription.objects.values_list("due", flat=True))
        for later, sent in ((timedelta(0), 2), (timedelta(days=7), 0)):
            assert reports_send(due + later) == 2
            outbox_relay(due + later)
            assert mails_send(due + later + timedelta(hours=1)) == sent
            with as_owner():
                LabLead.objects.all().delete()
    assert len(outbound.outbox) == 2


def test_held_use_is_that_of_the_lab_or_refused_as_statements_are(site: Site) -> None:
    a_lab(site)
    a_busy_booking(site, 50)
    site.admin.post("labs", {"slug": "empty", "name": "Empty"})
    names = ("lab", "project")
    of_lab = said(_asked(site.admin, "held-use", lab="physics"))
    assert [of_lab[name] for name in names] == ["physics", None]
    empty = said(_asked(site.admin, "held-use", lab="empty"))
    assert [empty["lab"], empty["held_hours"]] == ["empty", "0.000"]
    assert _codes(site.admin, lab="nope") == {422}
    assert [_codes(site.lead, lab=lab) for lab in ("nope", "physics")] == [{403}, {403}]
    # One of the two would be ignored.
    for who in (site.admin, site.lead):
        assert _codes(who, lab="physics", project="folding") == {422}


def test_admins_get_the_statement_of_a_lab_by_mail(site: Site, settings: Settings) -> None:
    settings.MAIL_ON = True
    site.admin.post("labs", {"slug": "physics", "name": "Physics"})
    client = Client()
    client.force_login(site.people["admin"])
    weekly = {"lab": "physics", "cadence": "weekly", "format": "csv"}
    assert site.lead.post("reports", weekly).status_code == 403
    assert site.admin.post("reports", {**weekly, "project": "folding"}).status_code == 422
    made = said(site.admin.post("reports", weekly))
    assert (made["lab"], made["project"]) == ("physics", None)
    assert said(site.admin.post("reports", weekly))["code"] == "report_exists"
    assert "Physics (lab)" in client.get("/t/helix/reports").content.decode()
    form = {"act": "add", "project": "lab:physics", "cadence": "monthly", "format": "pdf", "at": "08:00"}
    assert client.post("/t/helix/reports", form).status_code == 302
    due = datetime.fromisoformat(made["due"])
    with as_system():
        address_set(site, "admin", "ada@example.org")
        assert reports_send(due) >= 1
        outbox_relay(due)
        # The monthly one is due, too, if a month begins before.
        assert mails_send(due + timedelta(days=1)) in (1, 2)
    for letter in outbound.outbox:
        assert "Physics" in str(letter.body)
        assert "project=lab%3Aphysics" in str(letter.body)


def test_the_focus_export_is_parquet_by_format_or_accept(site: Site) -> None:
    parquet = "application/vnd.apache.parquet"
    query = {"month": f"{timezone.now():%Y-%m}", "project": "folding"}
    asked = site.lead.send("GET", "exports/focus", query=query, headers={"accept": parquet})
    chosen = site.lead.get("exports/focus", **query, format="parquet")
    for answer in (asked, chosen):
        assert answer["Content-Type"] == parquet
        assert answer.getvalue().startswith(b"PAR1")
    assert site.lead.get("exports/focus", **query).getvalue().startswith(b"BilledCost,")
    refused = site.lead.send("GET", "exports/focus", query=query | {"format": "exe"})
    assert refused.status_code == 422
    assert refused["Content-Type"] == "application/problem+json"
