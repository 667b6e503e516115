"""Jira in and out over HTTP: signed and old messages, bookings once, comments, and its errors."""

import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_network
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from allocation.features.approval_rules.services import ApprovalRuleTerms, approval_rule_set
from allocation.features.jira.calls import COMMENT
from allocation.features.jira.dry_run import JiraDryRunTerms, dry_run
from allocation.features.jira.models import JiraConnection
from allocation.features.jira.process import messages_process
from allocation.features.jira.services import (
    JiraConnectionTerms,
    connection_change,
)
from allocation.models import Approval, Booking
from allocation.rules.approvals import Step
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.bookings.change.changes import Patch, booking_patch
from tenants.access import Actor
from tenants.features.webhooks.services import webhook_secret_rotate, webhook_test
from tenants.models import WebhookDelivery
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tenants.services import token_create, token_revoke
from tests.api.builders import row_counts, said
from tests.jira.connected import (
    DELIVERY,
    TERMS,
    Connected,
    happened,
    ms,
    processed,
    relayed,
    sent,
)
from tests.jira.stub import ACCOUNT, HTML, TOKEN, a_jira, sprint_of, webhook_of
from tests.roles import as_system

pytestmark = pytest.mark.turn


@pytest.fixture(params=[True, False], ids=["cloud", "data-center"])
def both(request: pytest.FixtureRequest, db: None, settings: Settings) -> Iterator[Connected]:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    with a_jira(is_cloud=request.param) as jira:
        yield Connected(jira)


@pytest.fixture
def cloud(db: None, settings: Settings) -> Iterator[Connected]:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    with a_jira() as jira:
        yield Connected(jira)


def test_an_issue_books_once_and_hears_what_happens(both: Connected) -> None:
    body = webhook_of("GPU-7", ms())
    taken = both.send(body)
    assert (taken.status_code, said(taken)["is_new"]) == (202, True), taken.content
    # Jira sends again what it got no answer to; another change of the issue is a new message.
    assert said(both.send(body))["is_new"] is False
    assert both.issue().status_code == 202
    assert processed() == 2
    (booking,) = both.bookings()
    assert both.answers() == [
        ("done", f"Requested {booking.label}: 1 h100 for 10m"),
        ("ignored", f"{booking.label} is open for it already."),
    ]
    issue_url = f"{both.jira.url}/browse/GPU-7"
    assert (booking.external_ref, booking.labels) == (issue_url, {"from": "jira"})
    assert (booking.name, booking.owner_id) == (
        "Train the ablation",
        both.site.people["researcher"].id,
    )
    relayed()
    happened(booking, "started", State.ACTIVE)
    assert sent() == ["201", "201", "204"]
    issue = both.jira.issues["GPU-7"]
    (link,) = issue.links.values()
    assert link["object"]["url"].endswith(f"/t/helix/bookings/{booking.label}")
    (text,) = issue.texts
    for words in (f"{booking.label} is active.", "At most €0.80 for 10 min.", "started"):
        assert words in text
    assert issue.status == "In Progress"
    happened(booking, "ended", State.ENDED)
    sent()
    assert (issue.status, len(issue.comments)) == ("Done", 2)
    assert next(iter(issue.links.values()))["object"]["status"]["resolved"] is True
    relayed()
    assert sent() == []


def test_only_jira_itself_is_heard(cloud: Connected) -> None:
    body = webhook_of("GPU-7", ms())
    raw = json.dumps(body).encode()
    wrong = hmac.digest(b"whsec_other", raw, hashlib.sha256).hex()
    for headers in (
        {"X-Hub-Signature": f"sha256={wrong}"},
        {"X-Hub-Signature": "sha1=x"},
        {"Authorization": "Bearer whsec_other"},
        {"Authorization": f"Basic {cloud.secret}"},
        {"X-None": ""},
    ):
        answer = cloud.send(body, **headers)
        assert (answer.status_code, said(answer)["code"]) == (401, "bad_token"), headers
    # Another tenant's address with the right secret is as if it were not there.
    north = cloud.site.other_project.tenant_id
    token = {"Authorization": f"Bearer {cloud.secret}"}
    assert cloud.send(body, tenant=north, **token).status_code == 401
    assert cloud.send(body, **token).status_code == 202
    with tenant_tx(cloud.admin.tenant_id):
        webhook_secret_rotate(
            actor=cloud.admin, webhook_id=cloud.row.receiver_id, now=timezone.now(), kind="jira"
        )
    # Both secrets are valid for a day.
    assert said(cloud.send(webhook_of("GPU-7", ms()), **token))["is_new"] is True
    with as_system():
        cloud.row.receiver.refresh_from_db()
        cloud.row.receiver.previous_until = timezone.now() - timedelta(minutes=1)
        cloud.row.receiver.save()
    assert cloud.send(webhook_of("GPU-7", ms()), **token).status_code == 401


def test_clocks_may_differ_by_minutes_and_jira_sends_again_for_a_day(cloud: Connected) -> None:
    token = {"Authorization": f"Bearer {cloud.secret}"}
    for ago, by_token, signed in (
        (-290, 202, 202),
        (-310, 422, 422),
        (290, 202, 202),
        (310, 422, 202),
        (90_000, 422, 422),
    ):
        assert cloud.send(webhook_of("GPU-7", ms(ago)), **token).status_code == by_token, ago
        answer = cloud.issue(ago=ago)
        assert answer.status_code == signed, ago
    assert said(answer)["code"] == "old_message"
    late = cloud.send(webhook_of("GPU-8", ms()) | {"timestamp": "2026-11-23T09:00:00"})
    assert said(late)["code"] == "bad_message"


def test_older_messages_of_an_issue_and_others_issues_lead_to_nothing(cloud: Connected) -> None:
    cloud.issue(ago=10)
    processed()
    (booking,) = cloud.bookings()
    with as_system():
        Booking.objects.update(state=State.CANCELLED, ended_at=timezone.now())
    cloud.issue(ago=20)
    cloud.issue("OTHER-7")
    cloud.send(webhook_of("GPU-7", ms(), event="jira:issue_deleted"))
    processed()
    assert cloud.bookings() == [booking]
    assert [answer for state, answer in cloud.answers()[1:] if state == "ignored"] == [
        "A later message about it was acted on before.",
        "Neither its project nor its board is mapped.",
        "Only issues and sprints lead to something.",
    ]


BAD: list[tuple[bytes, int, str]] = [
    (b"", 422, "bad_message"),
    (b"{", 400, "malformed_json"),
    (b"[]", 400, "malformed_json"),
    (HTML, 400, "malformed_json"),
    (b'{"timestamp": 1e400}', 422, "bad_message"),
    (b'{"timestamp": "9999-12-31T23:59:59-14:00", "issue": {"key": "GPU-3"}}', 422, "bad_message"),
    (b'{"timestamp": "0001-01-01T00:00:00+14:00", "issue": {"key": "GPU-3"}}', 422, "bad_message"),
    (
        json.dumps(
            {
                "timestamp": ms(),
                "webhookEvent": "sprint_started",
                "sprint": {"id": 7, "name": "S", "endDate": "9999-12-31T23:59:59-14:00"},
            }
        ).encode(),
        422,
        "bad_message",
    ),
    (b'{"a": "' + b"x" * 1_100_000 + b'"}', 413, "body_too_large"),
    (json.dumps({"timestamp": ms(), "issue": {"key": "gpu 7"}}).encode(), 422, "bad_message"),
    (json.dumps({"timestamp": ms(), "issue": {"key": "GPU-7", "fields": 7}}).encode(), 422, "bad_message"),
    (json.dumps({"timestamp": ms(), "webhookEvent": "sprint_started"}).encode(), 422, "bad_message"),
]


def test_bodies_that_nobody_should_send_are_refused(cloud: Connected) -> None:
    for raw, status, code in BAD:
        answer = cloud.send(raw)
        assert (answer.status_code, said(answer)["code"]) == (status, code), raw[:80]
    assert cloud.answers() == []


def test_a_ticket_asks_and_the_rules_of_everybody_decide(cloud: Connected) -> None:
    for text in ("99 h100 for 10m", "1 b9000 1h", None, "1 h100 for 999d"):
        cloud.issue(customfield_10050=text)
        processed()
    assert cloud.bookings() == []
    assert [state for state, _ in cloud.answers()] == ["refused"] * 4
    assert cloud.answers()[2][1] == "The field customfield_10050 is missing or empty."
    assert sent() == ["201"] * 4
    texts = cloud.jira.issues["GPU-7"].texts
    assert "Not booked." in texts[0]
    assert "Not booked. “1 b9000” is not understood." in texts[1]
    # The rights of the person count as they are when the message is acted on.
    cloud.map(owner="ada", request="{customfield_10053} h100 for 10m {customfield_10052}")
    cloud.issue()
    processed()
    (booking,) = cloud.bookings()
    assert (booking.request_text, booking.tier_id) == ("2 h100 for 10m spot", "spot")
    with pytest.raises(Refused, match="can't book"):
        cloud.map(owner="vera")


def test_a_quote_books_nothing_and_lists_options(cloud: Connected) -> None:
    cloud.map(act="quote")
    cloud.issue()
    processed()
    assert (cloud.bookings(), cloud.answers()) == ([], [("done", "Quoted.")])
    assert sent() == ["201"]
    (text,) = cloud.jira.issues["GPU-7"].texts
    assert "Options for “1 h100 for 10m”. Nothing is booked." in text
    assert "€0.80" in text


def test_sprints_book_for_their_board_and_end_their_bookings(cloud: Connected) -> None:
    cloud.map(board=3, sprint_request="1 h100 {remaining}")
    ends = (timezone.now() + timedelta(hours=5, minutes=30)).isoformat()
    started = sprint_of("sprint_started", 12, ms(30), ends)
    for _ in range(2):
        cloud.send(started)
    processed()
    (booking,) = cloud.bookings()
    assert (booking.name, booking.duration_seconds) == ("Sprint 12", 5 * 3600)
    assert booking.external_ref == f"{cloud.jira.url}/secure/GHGoToBoard.jspa?sprintId=12"
    cloud.send(sprint_of("sprint_closed", 12, ms(20), ends))
    # Its start arrives once more, later than its end: it leads to nothing.
    cloud.send(sprint_of("sprint_started", 12, ms(25), ends))
    processed()
    assert [each.state for each in cloud.bookings()] == [State.CANCELLED]
    assert cloud.answers()[1:] == [
        ("done", f"Ended {booking.label}."),
        ("ignored", "A later message about it was acted on before."),
    ]


def commented(connected: Connected) -> Booking:
    """A booking of GPU-7, with one comment to make."""
    connected.map(transitions={})
    connected.issue()
    processed()
    (booking,) = connected.bookings()
    relayed()
    sent()
    happened(booking, "started", State.ACTIVE)
    return booking


FAULTS: list[tuple[int, dict[str, str], bytes, str]] = [
    (429, {"Retry-After": "120", "Content-Type": "application/json"}, b"{}", "429 Jira answered"),
    (500, {"Content-Type": "text/html"}, HTML, "500 Jira answered 500."),
    (503, {}, b"", "503 Jira answered 503."),
    (200, {"Content-Type": "text/html"}, HTML, "200 The answer is not that of Jira's REST API."),
    (201, {"Content-Type": "application/json"}, b"[", "201 The answer is not that of Jira's"),
    (201, {"Content-Type": "application/json"}, b'{"ok": 1}', "201 The answer is not that of"),
    (302, {"Location": "http://10.0.0.1/"}, b"", "302 Redirects are not followed."),
    (401, {"Content-Type": "application/json"}, b'{"errorMessages": ["No."]}', "401 No."),
    (
        201,
        {"Content-Type": "application/json"},
        b'"' + b"x" * 1_100_000 + b'"',
        "None The answer is longer than 1 MiB.",
    ),
]


def test_a_jira_that_fails_gets_its_comment_later_and_once(cloud: Connected) -> None:
    commented(cloud)
    issue, now = cloud.jira.issues["GPU-7"], timezone.now()
    for status, headers, body, expected in FAULTS:
        cloud.jira.faults = [(status, headers, body)]
        (found,) = sent(now)
        assert found.startswith(expected), found
        with as_system():
            row = WebhookDelivery.objects.latest("id")
            assert row.state == DELIVERY.PENDING
            wait = row.due - now
            assert wait >= timedelta(seconds=120 if status == 429 else 5)
            now = row.due
    assert issue.comments == []
    # This attempt arrives, but its answer does not: the next one finds the comment.
    cloud.jira.drops = 0
    cloud.jira.faults = []
    assert sent(now) == ["201"]
    assert len(issue.comments) == 1


def test_a_comment_whose_answer_was_lost_is_not_made_twice(both: Connected) -> None:
    commented(both)
    both.jira.drops = 1
    now = timezone.now()
    assert sent(now) == ["None The answer was not HTTP."]
    assert sent(now + timedelta(seconds=6)) == ["200"]
    assert len(both.jira.issues["GPU-7"].comments) == 1


def test_an_issue_that_is_gone_or_can_t_move_holds_nobody_up(cloud: Connected) -> None:
    cloud.map(transitions={"active": "Closed forever"})
    cloud.issue()
    processed()
    relayed()
    (booking,) = cloud.bookings()
    happened(booking, "started", State.ACTIVE)
    assert sent()[-1] == "200 No transition leads from 'To Do' to 'Closed forever'."
    del cloud.jira.issues["GPU-7"]
    happened(booking, "ended", State.ENDED)
    assert sent() == ["404 Issue does not exist or you do not have permission to see it."] * 2
    assert [state for _, state in cloud.deliveries()][-3:] == [DELIVERY.FAILED] * 3
    with as_system():
        assert JiraConnection.objects.get().receiver.disabled_at is None


def test_a_person_can_t_write_into_issues_of_other_projects(cloud: Connected) -> None:
    line = {"project": "folding", "tier": "standard", "request": "1 h100 for 10m"}
    cloud.jira.issues["SECRET-1"] = type(cloud.jira.issues["GPU-7"])()
    for reference in (f"{cloud.jira.url}/browse/SECRET-1", "SECRET-1", "https://x/browse/GPU-7"):
        made = cloud.site.researcher.post("bookings", {**line, "external_ref": reference})
        assert made.status_code == 201
    relayed()
    assert cloud.deliveries() == []
    # The key of a mapped issue is enough.
    cloud.site.researcher.post("bookings", {**line, "external_ref": "GPU-7"})
    relayed()
    assert cloud.deliveries() == [("jira.link", DELIVERY.PENDING)]


def test_the_token_is_encrypted_and_never_sent_to_another_address(cloud: Connected) -> None:
    with as_system():
        stored = JiraConnection.objects.get().sealed_token
    assert TOKEN not in stored
    for changes, param in (({"url": "http://127.0.0.1:9"}, "token"), ({"account": ""}, "account")):
        changed = {"url": cloud.jira.url, "account": ACCOUNT, **changes}
        terms = JiraConnectionTerms(name="J", url=changed["url"], flavour="cloud", account=changed["account"])
        with tenant_tx(cloud.admin.tenant_id), pytest.raises(Refused) as refused:
            connection_change(actor=cloud.admin, connection_id=cloud.row.id, terms=terms, now=timezone.now())
        assert refused.value.param == param
    with tenant_tx(cloud.admin.tenant_id):
        webhook_test(actor=cloud.admin, webhook_id=cloud.row.receiver_id, now=timezone.now(), kind="jira")
    assert sent() == ["200"]
    assert cloud.jira.got[-1] == "GET /rest/api/3/myself"


ASKED: dict[str, Any] = {"customfield_10050": "1 h100 20m"}
APPROVED: dict[str, Any] = ASKED | {"status": {"name": "Approved"}}


def awaiting(cloud: Connected, *keys: str) -> None:
    """Issues whose bookings wait for a lead, whose decisions can be made in Jira."""
    rule = ApprovalRuleTerms(name="Long", steps=[Step("lead")], min_seconds=1_200)
    with tenant_tx(cloud.admin.tenant_id):
        approval_rule_set(actor=cloud.admin, terms=rule, now=timezone.now())
    with pytest.raises(Refused) as refused:
        cloud.map(approver="mara", approve_status="Approved")
    assert refused.value.code in ("own_approver", "not_found")
    cloud.map(approver="jonas", approve_status="Approved", decline_status="Rejected")
    for key in keys:
        cloud.issue(key, **ASKED)
    processed()
    assert {each.state for each in cloud.bookings()} == {State.AWAITING_APPROVAL}


def test_a_status_of_the_issue_decides_an_approval_once(cloud: Connected) -> None:
    awaiting(cloud, "GPU-7")
    before = row_counts()
    with tenant_tx(cloud.admin.tenant_id):
        tried = dry_run(
            actor=cloud.admin,
            connection_id=cloud.row.id,
            terms=JiraDryRunTerms(message=webhook_of("GPU-7", ms(), fields=APPROVED)),
            now=timezone.now(),
        )
    assert (tried.state, tried.answer) == ("done", "Approved BK-1 for jonas.")
    assert row_counts() == before
    cloud.issue("GPU-7", **APPROVED)
    processed()
    cloud.issue("GPU-7", **APPROVED)
    cloud.issue("GPU-7", **ASKED, status={"name": "Rejected"})
    processed()
    over = ("ignored", "The request of BK-1 is approved already.")
    assert cloud.answers()[1:] == [("done", "Approved BK-1 for jonas."), over, over]
    (booking,) = cloud.bookings()
    assert booking.state == State.REQUESTED
    with as_system():
        assert Approval.objects.get().decided_by == cloud.site.people["lead"]
        rows = WebhookDelivery.objects.filter(type=COMMENT)
        texts = list(rows.values_list("content__text", flat=True))
    assert "does not change that" in texts[-1]


def test_a_decision_that_nobody_asked_for_says_so(cloud: Connected) -> None:
    decides: dict[str, Any] = {"approver": "jonas", "approve_status": "Approved"}
    bearer = {"authorization": f"Bearer {cloud.secret}"}

    def verdict(key: str, word: str) -> None:
        body = webhook_of(key, ms(), fields={"summary": "Train"}) | {"approval": word}
        cloud.send(body, **bearer)
        processed()

    verdict("GPU-7", "approve")
    cloud.map(**decides)
    cloud.issue("GPU-7")
    processed()
    verdict("GPU-7", "approve")
    verdict("GPU-7", "decline")
    verdict("GPU-9", "approve")
    cloud.issue("GPU-7", status={"name": "Approved"})
    processed()
    label = cloud.bookings()[0].label
    waits = ("ignored", f"{label} waits for no approval.")
    found = cloud.answers()
    assert found[0] == ("ignored", "Nobody is named who decides for GPU in Jira.")
    assert found[2:] == [waits, waits, ("ignored", "No booking of GPU-9 waits for an approval."), waits]
    assert len(cloud.bookings()) == 1


def test_a_mapping_ends_with_the_token_that_set_it(cloud: Connected) -> None:
    token_id, clear = a_token_of(cloud.admin)
    sent = {name: value for name, value in TERMS.items() if name != "key"}
    path = f"/api/v1/jira/{cloud.row.id}/projects/GPU"
    put = Client().put(
        path,
        json.dumps({**sent, "labels": {"from": "token"}}),
        content_type="application/json",
        headers={"Authorization": f"Bearer {clear}"},
    )
    assert put.status_code == 200, put.content
    cloud.issue("GPU-7")
    assert (processed(), cloud.answers()[0][0]) == (1, "done")
    (booking,) = cloud.bookings()
    happened(booking, "started", State.ACTIVE)
    relayed()
    before = cloud.deliveries()
    assert before, "a comment, as long as the token is valid"
    with tenant_tx(cloud.admin.tenant_id):
        token_revoke(actor=cloud.admin, token_id=token_id, now=timezone.now())
    happened(booking, "started", State.ACTIVE)
    relayed()
    assert cloud.deliveries() == before
    cloud.issue("GPU-8")
    processed()
    assert cloud.answers()[-1] == ("ignored", "The token that mapped GPU has ended. Map it again.")
    cloud.map()
    cloud.issue("GPU-8")
    processed()
    assert cloud.answers()[-1][0] == "done", "a browser's mapping stays"


def a_token_of(actor: Actor) -> tuple[UUID, str]:
    with tenant_tx(actor.tenant_id):
        token, clear = token_create(actor=actor, name="leaked", days=9, now=timezone.now())
    return token.id, clear


def test_an_automation_declines_and_an_old_message_decides_nothing(cloud: Connected) -> None:
    awaiting(cloud, "GPU-8", "GPU-9")
    body = webhook_of("GPU-8", ms(), fields=dict(ASKED)) | {"approval": "decline"}
    cloud.send(body | {"reason": "Too big"}, authorization=f"Bearer {cloud.secret}")
    cloud.issue("GPU-9", **APPROVED)
    nine = cloud.bookings()[1]
    patch = Patch(ask=replace(AskDocument.from_json(nine.ask), duration=1_800))
    later = timezone.now() + timedelta(seconds=2)
    with tenant_tx(cloud.admin.tenant_id):
        booking_patch(actor=cloud.site.actor(), booking=nine, patch=patch, revision=None, now=later)
    with as_system():
        messages_process(later)
        declined = Approval.objects.get(state="declined")
    states = [each.state for each in cloud.bookings()]
    assert states == [State.REJECTED, State.AWAITING_APPROVAL]
    assert (declined.reason, cloud.answers()[-1][0]) == ("Too big", "refused")
