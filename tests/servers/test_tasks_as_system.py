"""Every task with its production login, on a site on which everything that tasks look at is set."""

import hashlib
import hmac
import json
import os
import subprocess
import sys
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from allocation.features.jira.models import JiraMessage
from allocation.features.reports.models import ReportSubscription
from allocation.models import Booking
from billing.models import Budget
from billing.services import Rung, ladder_set
from portal.celery import PERIODS
from tenants.models import FailedMessage, OutboxMessage, PasswordReset
from tests.api.builders import Site, a_site, said
from tests.jira.stub import ACCOUNT, TOKEN, a_jira, webhook_of
from tests.policy_hook.hook_server import a_hook
from tests.roles import as_system
from tests.servers.servers import ROOT, Servers

pytestmark = pytest.mark.turn
RUN = """
import json, sys, traceback
import django
django.setup()
from portal.celery import app
app.loader.import_default_modules()
failed = {}
names = sorted(name for name in app.tasks if not name.startswith("celery."))
for name in names * 2:
    try:
        app.tasks[name].run()
    except Exception:
        failed[name] = traceback.format_exc()
print(json.dumps({"names": names, "failed": failed}))
"""


def every_kind(site: Site) -> None:
    """Bookings, limits, approvals, messages and files of every kind that a task works on."""
    good = {"project": "folding", "request": "1 h100 for 10m"}
    later = (timezone.now() + timedelta(days=2)).isoformat()
    for who, path, body in (
        (site.researcher, "bookings", good),
        (site.researcher, "bookings", good | {"array": 2}),
        (site.researcher, "series", good | {"request": "1 h100 1h at 9 every day 2 times"}),
        (site.researcher, "bookings", good | {"request": "4 h100 for 6h", "tier": "spot"}),
        (site.admin, "approval-rules", {"name": "Long", "min_seconds": 7200, "steps": [{"role": "lead"}]}),
        (site.lead, "reports", {"project": "folding", "cadence": "weekly"}),
        (site.lead, "exports", {"project": "folding", "month": "2026-11", "file": "pdf"}),
        (site.admin, "webhooks", {"name": "ci", "url": "http://127.0.0.1:9/", "events": ["*"]}),
        (
            site.lead,
            "chat-channels",
            {"url": "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js", "project": "folding"},
        ),
        (
            site.researcher,
            "overrides",
            {"kind": "quota", "gpu_class": "h100", "project": "folding", "amount": "1"},
        ),
        (site.admin, "invitations", {"to": "nina@example.org", "role": "viewer", "project": "folding"}),
        (
            site.admin,
            "requirements",
            {"of": "tier", "target": "spot", "kind": "training", "name": "Safety", "text": "Ask."},
        ),
        (site.operator, "stops", {"scope": "tenant", "name": "northlab", "reason": "Audit"}),
        (site.operator, "announcements", {"text": "Hello.", "level": "info", "until": later}),
    ):
        answer = who.post(path, body)
        assert answer.status_code < 300, (path, answer.content)
    with as_system():
        # A rung that stops, and one that asks, on budgets that are used: the task marks the first.
        ladder_set(
            actor_id=None,
            budget=site.budget,
            now=timezone.now(),
            rungs=[
                Rung("committed", 1, "notify"),
                Rung("committed", 90, "no_bookings"),
                Rung("committed", 50, "approval"),
            ],
        )
        Budget.objects.update(repeat_amount=100, rolls_over=True)
        ReportSubscription.objects.update(due=timezone.now() - timedelta(minutes=1))
        PasswordReset.objects.create(wanted="mara", at=timezone.now())


def jira_connected(site: Site, url: str) -> None:
    """A connection with a message that waits: its worker books under the ladder and the hook."""
    terms = {"name": "J", "url": url, "flavour": "cloud", "account": ACCOUNT, "token": TOKEN}
    made = said(site.admin.post("jira", terms))
    mapping = {
        "project": "folding",
        "owner": "mara",
        "tier": "standard",
        "act": "book",
        "request": "{customfield_10050}",
    }
    assert site.admin.put(f"jira/{made['id']}/projects/GPU", mapping).status_code == 200
    for key in ("GPU-7", "GPU-8"):
        raw = json.dumps(webhook_of(key, int(timezone.now().timestamp() * 1000))).encode()
        digest = hmac.digest(made["secret"].encode(), raw, hashlib.sha256).hex()
        address = f"/api/v1/jira/{site.tenant.id}/{made['id']}/messages"
        taken = Client().post(
            address, raw, content_type="application/json", headers={"X-Hub-Signature": f"sha256={digest}"}
        )
        assert taken.status_code == 202, taken.content


def run_all(servers: Servers) -> dict[str, Any]:
    """What a worker's process reports that ran each task twice."""
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        env={
            **os.environ,
            "DATABASE_URL": servers.dsn("portal_system"),
            "WEBHOOK_ALLOW": "127.0.0.0/8",
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_no_task_fails_with_its_login(real_db: Servers, settings: Settings) -> None:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    with a_jira() as jira, a_hook() as hook:
        site = a_site()
        hooked = site.admin.put("policy-hook", {"url": hook.url, "timeout_ms": 1000})
        assert hooked.status_code == 200, hooked.content
        every_kind(site)
        jira_connected(site, jira.url)
        found = run_all(real_db)
    assert found["failed"] == {}
    assert set(PERIODS) <= set(found["names"])
    with as_system():
        assert list(FailedMessage.objects.values_list("queue", "key", "error")) == []
        # Both messages led to bookings: the worker may ask for reached rungs.
        states = JiraMessage.objects.order_by("id").values_list("state", "answer")
        assert [state for state, _ in states] == ["done", "done"], list(states)
        assert Booking.objects.filter(state="scheduled", project__slug="folding").exists()
        assert not OutboxMessage.objects.filter(sent=None).exists()
        assert not ReportSubscription.objects.filter(due__lte=timezone.now()).exists()
        assert not PasswordReset.objects.exists()
