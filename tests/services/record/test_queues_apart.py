"""Each queue of the portal with an entry that fails: the others are handled, and it is kept."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from allocation.features.limit_cuts import enforce
from allocation.features.limit_cuts.models import LimitCut
from allocation.features.limit_cuts.services import TASK as CUTS
from allocation.features.reports import services as reports
from allocation.models import Maintenance, Node
from allocation.services.inbox import batch as inbox
from allocation.services.operate.maintenance import watch
from allocation.services.publish import publish
from portal.celery import app
from portal.integrations import relay
from portal.integrations.mail import queueing, send
from portal.integrations.notifications.delivery import people_notify
from portal.integrations.webhooks import queue as webhooks
from portal.integrations.webhooks.message import message_of
from tenants.models import (
    ApiToken,
    FailedMessage,
    Mail,
    OperatorAccess,
    OutboxMessage,
    PasswordReset,
    Webhook,
    WebhookDelivery,
)
from tenants.services.credentials import expiry
from tenants.services.members import operator_access
from tests.api.builders import Site, a_site
from tests.builders import a_user
from tests.roles import as_owner, as_system

pytestmark = pytest.mark.django_db


@pytest.fixture
def site(db: None) -> Site:
    return a_site()


def failing(real: Callable[..., Any], is_bad: Callable[..., bool]) -> Callable[..., Any]:
    """The function, but for what is bad."""

    def run(*args: Any, **named: Any) -> Any:  # noqa: ANN401 (as the function)
        if is_bad(*args, **named):
            raise KeyError("bad")
        return real(*args, **named)

    return run


def failed() -> list[tuple[str, str]]:
    return list(FailedMessage.objects.order_by("id").values_list("queue", "key"))


def test_the_outbox_sends_what_is_around_a_bad_message(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    now = timezone.now()
    with as_system():
        OutboxMessage.objects.all().delete()
        rows = [
            OutboxMessage.objects.create(
                tenant=tenant, kind="test.happened", payload={"n": number}, created=now
            )
            for number, tenant in enumerate((site.tenant, site.other_project.tenant, site.tenant))
        ]
        bad = rows[1].id
        monkeypatch.setattr(
            relay,
            "people_notify",
            failing(people_notify, lambda sent, _: bad in {each.id for each in sent}),
        )
        assert relay.outbox_relay(now) == 3
        unsent = OutboxMessage.objects.filter(sent=None).values_list("id", flat=True)
        assert list(unsent) == [bad]
        assert failed() == [("outbox", str(bad))]
        assert FailedMessage.objects.get().tenant_id == site.other_project.tenant_id
        # Later messages go with the first look, and the bad one waits.
        OutboxMessage.objects.create(tenant=site.tenant, kind="test.happened", payload={"n": 3}, created=now)
        assert relay.outbox_relay(now) == 1
        monkeypatch.undo()
        assert relay.outbox_relay(now + timedelta(minutes=1)) == 1
        assert failed() == []


def test_mails_are_sent_around_a_bad_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    now = timezone.now()
    with as_system():
        people = [a_user(name) for name in ("nina", "olga", "pia")]
        mails = [
            Mail.objects.create(user=user, kind=queueing.PASSWORD_RESET, at=now, due=now) for user in people
        ]
        bad = mails[0].id
        sent: list[int] = []

        def sending(_: object, some: Sequence[Mail], __: datetime) -> int:
            sent.extend(each.id for each in some)
            return 1

        monkeypatch.setattr(
            send,
            "_send",
            failing(sending, lambda _, some, __: bad in {each.id for each in some}),
        )
        monkeypatch.setattr(send, "get_connection", FakeServer)
        assert send.mails_send(now) == 2
        assert sent == [each.id for each in mails[1:]]
        assert failed() == [("mails", str(bad))]


class FakeServer:
    """A mail server that is not asked."""

    def __enter__(self) -> "FakeServer":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""


def test_password_resets_are_queued_around_a_bad_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    now = timezone.now()
    with as_system():
        for name in ("mara", "jonas", "vera"):
            PasswordReset.objects.create(wanted=name, at=now)
        bad = PasswordReset.objects.get(wanted="mara").pk
        monkeypatch.setattr(
            queueing, "_reset_queue", failing(queueing._reset_queue, lambda key, *_: key == bad)
        )
        queueing.resets_queue(now)
        assert [str(key) for key in PasswordReset.objects.values_list("pk", flat=True)] == [str(bad)]
        assert failed() == [("password resets", str(bad))]


def test_reports_are_requested_around_a_bad_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for cadence in ("weekly", "monthly"):
        made = site.lead.post("reports", {"project": "folding", "cadence": cadence})
        assert made.status_code == 201, made.content
    real = reports._request
    monkeypatch.setattr(reports, "_request", failing(real, lambda row, _: row.cadence == "weekly"))
    later = timezone.now() + timedelta(days=40)
    with as_system():
        assert reports.reports_send(later) == 1
        assert [queue for queue, _ in failed()] == ["reports"]


def test_webhooks_are_sent_around_a_bad_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    now = timezone.now()
    with as_system():
        webhook = Webhook.objects.create(
            tenant=site.tenant,
            name="CI",
            url="https://127.0.0.1:9/",
            events=["*"],
            created_by=site.people["admin"],
            created=now,
            salt=b"\0" * 16,
        )
        rows = [
            WebhookDelivery.objects.create(
                tenant=site.tenant,
                webhook=webhook,
                key=uuid4(),
                type="webhook.test",
                created=now,
                due=now,
            )
            for _ in range(3)
        ]
        bad = rows[0].id
        monkeypatch.setattr(webhooks, "message_of", failing(message_of, lambda row, _: row.id == bad))
        attempts = webhooks.deliveries_claim(10, now)
        assert [each.message.delivery for each in attempts] == [rows[1].id, rows[2].id]
        assert failed() == [("webhooks", str(bad))]
        rows[0].refresh_from_db()
        assert (rows[0].attempts[-1]["error"], rows[0].claimed_until) == (webhooks.FAILED, None)
        assert rows[0].due > now
        # An error of ours while a message is sent is an attempt that failed.
        monkeypatch.setattr(webhooks, "post", failing(webhooks.post, lambda *_: True))
        sender, noted = webhooks.Sender(timezone.now), list[Any]()

        async def query(*args: Any) -> None:  # noqa: ANN401 (any query)
            noted.append(args)

        monkeypatch.setattr(sender, "_query", query)
        asyncio.run(sender._send(attempts[0]))
        assert [call[0] for call in noted] == [webhooks._failure_note, webhooks.attempt_settle]
        assert noted[1][2].error == webhooks.FAILED


def test_documents_are_published_around_a_bad_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[list[Any]] = []
    real = ["a", "b", "c"]
    monkeypatch.setattr(
        publish,
        "_publish_some",
        failing(lambda ids, _: done.append(list(ids)), lambda ids, _: "b" in ids),
    )
    with as_system():
        publish._publish(real, timezone.now())  # type: ignore[arg-type] # any ids
        assert done == [["a"], ["c"]]
        assert failed() == [("documents of nodes", "b")]


def test_reports_of_nodes_are_applied_around_a_bad_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [inbox.StreamMessage(name, None) for name in ("n1", "n2", "n1")]  # type: ignore[arg-type]
    monkeypatch.setattr(
        inbox,
        "message_apply",
        failing(lambda **_: "applied", lambda node_name, **_: node_name == "n2"),
    )
    with as_system():
        assert inbox.messages_apply(said, timezone.now()) == ["applied", "refused", "applied"]
        row = FailedMessage.objects.get()
        assert (row.queue, row.key, row.next_try) == ("reports of nodes", "n2", None)


def two_tokens(site: Site) -> None:
    """Two tokens that expire tomorrow."""
    now = timezone.now()
    ApiToken.objects.update(created=now - timedelta(days=300), warned=now)
    ids = list(ApiToken.objects.order_by("id").values_list("id", flat=True)[:2])
    ApiToken.objects.filter(id__in=ids).update(expires=now + timedelta(days=1), warned=None)


def two_accesses(site: Site) -> None:
    """Two times of an operator's access that are over."""
    now = timezone.now()
    with as_owner():
        for tenant in (site.tenant, site.other_project.tenant):
            OperatorAccess.objects.create(
                operator=site.people["operator"],
                tenant=tenant,
                reason="A ticket",
                opened=now - timedelta(hours=2),
                until=now - timedelta(hours=1),
            )


def two_maintenances(site: Site) -> None:
    """Two plans whose time has come."""
    now = timezone.now()
    node = Node.objects.order_by("name").first()
    for hours in (1, 2):
        Maintenance.objects.create(
            node=node,
            starts=now - timedelta(hours=hours),
            ends=now + timedelta(hours=1),
            drain_by=now - timedelta(hours=hours),
            reason="Fans",
            created=now - timedelta(days=1),
            created_by=site.people["operator"],
        )


def two_cuts(site: Site) -> None:
    """Two limits that were cut."""
    now = timezone.now()
    for tenant in (site.tenant, site.other_project.tenant):
        LimitCut.objects.create(
            tenant=tenant, gpu_class_id="h100", limit_units=0, answer="drain", created=now, changed=now
        )


@pytest.mark.parametrize(
    ("rows", "module", "inner", "run"),
    [
        (two_tokens, expiry, "people_message_put", expiry.tokens_expiring_notify),
        (two_accesses, operator_access, "_end", operator_access.access_sweep),
        (two_maintenances, watch, "maintenance_event", watch.maintenance_announce),
        (two_cuts, enforce, "above_now", enforce.cuts_enforce),
    ],
    ids=["tokens", "accesses", "maintenance", "cuts"],
)
def test_rows_of_a_task_are_handled_around_a_bad_one(
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    rows: Callable[[Site], None],
    module: ModuleType,
    inner: str,
    run: Callable[[datetime], int],
) -> None:
    calls: list[object] = []
    real = getattr(module, inner)
    with as_owner():
        rows(site)
    with as_system():

        def is_bad(*given: object) -> bool:
            calls.append(given)
            return len(calls) == 1

        monkeypatch.setattr(module, inner, failing(real, is_bad))
        assert run(timezone.now()) == 1
        assert len(calls) == 2
        assert len(failed()) == 1
        # A minute later the other one has its turn.
        assert run(timezone.now() + timedelta(minutes=1)) == 1
        assert failed() == []


def test_a_task_that_raises_is_shown_to_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    task = app.tasks[CUTS]
    with as_system():
        monkeypatch.setattr("allocation.features.limit_cuts.tasks.cuts_enforce", failing(int, lambda _: True))
        with pytest.raises(KeyError):
            task()
        assert failed() == [("tasks", CUTS)]
        monkeypatch.undo()
        task()
        assert failed() == []
