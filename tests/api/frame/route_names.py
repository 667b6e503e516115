"""Routes of REST and the names in them: those that belong to no tenant, and names that nobody has."""

import re
from uuid import uuid4

import pytest

MESSAGES = "jira/<uuid:tenant_id>/<uuid:connection_id>/messages"
# Agents have a one-time token, Jira a signature, and devices that sign in a code.
DEVICE = {"device/codes", "device/token"}
AGENTS = ("agents/enrol", "agents/engines", "agents/engines/hosts")
UNGUARDED = {"schema/", "docs/", "docs/start.js", "^.*$", *AGENTS, MESSAGES, *DEVICE}
# Names that belong to no tenant: everybody may read them.
OPEN = {
    *(f"{noun}/<slug:slug>" for noun in ("tiers", "workloads", "gpu-classes", "gpu-models")),
    "price-books/<int:version>",
    # Operators only: the policy is the platform's.
    "policy/versions/<int:number>",
    "policy/versions/<int:number>/preview",
    "policy/versions/<int:number>/activate",
    "policy/versions/<int:number>/approve",
    "policy/versions/<int:number>/withdraw",
    "policy/versions/<int:number>/shadow",
    "policy/versions/<int:number>/shadow/end",
    "platform-machines/<uuid:machine_id>/release",
    *(f"policy/trials/<uuid:trial_id>{act}" for act in ("", "/cancel")),
    "policy/versions/<int:number>/difference/<int:against>",
    *(f"clusters/<slug:slug>/{noun}" for noun in ("jobs", "accounts", "types")),
    "platform-zones/<slug:slug>/end",
    *(
        f"fleet/nodes/<slug:name>{act}"
        for act in ("", "/drain", "/ready", "/revoke", "/rotate-key", "/fence", "/events", "/storage")
    ),
    *(f"fleet/gpus/<uuid:gpu_id>{act}" for act in ("", "/return", "/use")),
    *(f"fleet/engines/<slug:name>{act}" for act in ("", "/approve", "/revoke", "/rotate-key")),
    "maintenance/<uuid:maintenance_id>",
    "maintenance/<uuid:maintenance_id>/preview",
    "maintenance/<uuid:maintenance_id>/end",
    "stops/<uuid:stop_id>/end",
    "platform-budgets/<uuid:budget_id>/alerts",
    "platform-budgets/<uuid:budget_id>/guardrails",
    "platform-budgets/<uuid:budget_id>/variance-rule",
    "platform-budgets/<uuid:budget_id>/guardrails/preview",
    "price-books/drafts/<uuid:draft_id>",
    *(f"price-books/drafts/<uuid:draft_id>/{act}" for act in ("effect", "rebase", "discard", "publish")),
    # A text of a class is everybody's: tests/features/requirements/test_requirements.py.
    "requirements/<uuid:requirement_id>/accept",
    "operator-access/<uuid:access_id>/end",
    *(f"operator-roles/<uuid:role_id>/{act}" for act in ("approve", "end")),
    "operator-notifications/<uuid:notification_id>",
    # Everybody may close a banner that they see.
    *(f"announcements/<uuid:announcement_id>/{act}" for act in ("dismiss", "withdraw")),
    *("disputes/<uuid:dispute_id>/answer", "platform/limit-cuts/<uuid:cut_id>/end"),
    "platform/dated-guarantees/<uuid:guarantee_id>/end",
    "platform/pause-appeals/<uuid:appeal_id>/answer",
    *(f"failed-messages/<int:failed_id>/{act}" for act in ("retry", "dismiss")),
    # Those of the platform: tests/api/frame/test_webhooks_api.py.
    "platform-webhooks/<uuid:webhook_id>",
    "platform-views/<uuid:view_id>",
    "platform-webhooks/<uuid:webhook_id>/enabled",
    "platform-webhooks/<uuid:webhook_id>/secret",
    "platform-webhooks/<uuid:webhook_id>/test",
    "platform-webhooks/<uuid:webhook_id>/deliveries",
    "platform-webhooks/<uuid:webhook_id>/resend",
    "platform-webhooks/<uuid:webhook_id>/deliveries/<int:delivery_id>/resend",
    "statements/<str:month>/dispute",  # A month is nobody's; the project is in the body.
}

NOBODYS = {
    "lab": "nothing",
    "window_id": str(uuid4()),
    "connection_id": str(uuid4()),
    "notification_id": str(uuid4()),
    "jira_key": "NONE",
    "number": "9",
    "against": "9",
    "trial_id": str(uuid4()),
    "account_id": str(uuid4()),
    "username": "nobody",
    "webhook_id": str(uuid4()),
    "channel_id": str(uuid4()),
    "delivery_id": "999999",
    "failed_id": "999999",
    "approval_id": str(uuid4()),
    "override_id": str(uuid4()),
    "rule_id": str(uuid4()),
    "stand_in_id": str(uuid4()),
    "capacity_plan_id": str(uuid4()),
    "machine_id": str(uuid4()),
    "calendar_id": str(uuid4()),
    "stop_id": str(uuid4()),
    "draft_id": str(uuid4()),
    **dict.fromkeys(("access_id", "role_id", "announcement_id", "guarantee_id"), str(uuid4())),
    "version_id": str(uuid4()),
    "requirement_id": str(uuid4()),
    "campaign_id": str(uuid4()),
    "dispute_id": str(uuid4()),
    **dict.fromkeys(("appeal_id", "cut_id", "view_id"), str(uuid4())),
    "report_id": str(uuid4()),
    "export_id": str(uuid4()),
    "month": "2026-11",
    "offer_id": str(uuid4()),
    "entry_id": str(uuid4()),
    "reference": "BK-999999",
    "slug": "nothing",
    "budget_id": str(uuid4()),
    "token_id": str(uuid4()),
    "member_id": str(uuid4()),
    "session_id": str(uuid4()),
    "invitation_id": str(uuid4()),
    "gpu_id": str(uuid4()),
    "maintenance_id": str(uuid4()),
    "series": f"sr_{uuid4().hex}",
    "array": f"ar_{uuid4().hex}",
}


def filled(route: str, names: dict[str, str]) -> str:
    """The route with its parameters replaced."""
    for name in re.findall(r"<\w+:(\w+)>", route):
        if name not in names:
            pytest.fail(f"{route}: name {name!r} in NOBODYS, and in `theirs` or the route in OPEN")
    return re.sub(r"<\w+:(\w+)>", lambda found: names[found[1]], route)
