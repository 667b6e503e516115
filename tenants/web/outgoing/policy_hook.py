"""The page of the organisation's policy hook: its settings, a test, and its log."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import path
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from tenants.access import Actor
from tenants.models import PolicyHook, PolicyHookCall
from tenants.platform.errors import invalid
from tenants.platform.forms.actions import FormAction, form_action_run
from tenants.platform.forms.confirm import CONFIRMED_FIELD, Confirmation, confirm_page
from tenants.services.policy_hooks.settings import (
    HookTerms,
    hook_delete,
    hook_log,
    hook_of,
    hook_secret_rotate,
    hook_set,
    hook_test,
)
from tenants.web.frame import tenant_page
from tenants.words import refusal_text

PAGE_ROWS = 50
USUAL_TIMEOUT_MS = 1_000
FAILURES = [("closed", "The request is refused"), ("open", "The request is admitted")]
MODES = [("off", "Off"), ("dry", "Dry run: ask and log, change nothing"), ("on", "On")]


@dataclass(frozen=True, slots=True)
class CallRow:
    """A call in the log; `question` is JSON."""

    call: PolicyHookCall
    effect: str
    question: str


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page
def policy_hook(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Shows the hook with its log, and carries out what its buttons say."""
    hook = hook_of(actor)
    secrets: list[str] = []
    refusal = None
    if request.method == "POST":
        if hook is not None and (question := _question(actor, hook, request.POST)) is not None:
            return confirm_page(request, question)
        refusal = form_action_run(request, _actions(actor, secrets))
        if refusal is None and not secrets:
            return redirect("policy-hook", tenant=actor.tenant_slug)
        hook = hook_of(actor)
    context = {
        "hook": hook,
        "secret": secrets[0] if secrets else "",
        "refusal": refusal,
        "failures": FAILURES,
        "modes": MODES,
        "typed": request.POST if refusal else _typed(hook),
        **(_log(hook, request.GET) if hook is not None else {}),
    }
    status = 422 if refusal else 200
    return render(request, "tenants/policy_hook/page.html", context, status=status)


def _actions(actor: Actor, secrets: list[str]) -> Mapping[str, FormAction]:
    return {
        "set": lambda form: _set(actor, form, secrets),
        "test": lambda _: _test(actor),
        "rotate": lambda _: _rotate(actor, secrets),
        "delete": lambda _: _delete(actor),
    }


def _set(actor: Actor, form: QueryDict, secrets: list[str]) -> str:
    milliseconds = form.get("timeout_ms", "")
    if not (milliseconds.isascii() and milliseconds.isdigit()) or len(milliseconds) > 6:
        raise invalid("bad_timeout", refusal_text("milliseconds"), "timeout_ms")
    terms = HookTerms(
        url=form.get("url", "").strip(),
        timeout_ms=int(milliseconds),
        is_on=form.get("mode") in ("on", "dry"),
        is_fail_open=form.get("failure") == "open",
        is_dry_run=form.get("mode") == "dry",
    )
    _, secret = hook_set(actor=actor, terms=terms, now=timezone.now())
    if secret:
        secrets.append(secret)
        return "Policy hook created. Copy its secret now; it is shown only once."
    return "Policy hook saved."


def _test(actor: Actor) -> str:
    answer = hook_test(actor=actor, now=timezone.now())
    if answer.error:
        return f"The hook gave no valid answer: {answer.error}"
    return "The hook answered. Its answer is in the log."


def _rotate(actor: Actor, secrets: list[str]) -> str:
    secrets.append(hook_secret_rotate(actor=actor, now=timezone.now())[1])
    return "New secret made. The previous one stays valid for 24 hours."


def _delete(actor: Actor) -> str:
    hook_delete(actor=actor, now=timezone.now())
    return "Policy hook deleted."


def _typed(hook: PolicyHook | None) -> dict[str, Any]:
    """The values of the form."""
    if hook is None:
        return {"timeout_ms": USUAL_TIMEOUT_MS, "mode": "dry", "failure": "closed"}
    mode = "off" if not hook.is_on else "dry" if hook.is_dry_run else "on"
    failure = "open" if hook.is_fail_open else "closed"
    return {"url": hook.url, "timeout_ms": hook.timeout_ms, "mode": mode, "failure": failure}


def _question(actor: Actor, hook: PolicyHook, form: QueryDict) -> Confirmation | None:
    """Returns the confirmation before the hook is deleted."""
    if form.get("act") != "delete" or CONFIRMED_FIELD in form:
        return None
    return Confirmation(
        title="Delete the policy hook?",
        lost=(
            f"{hook.url} is not asked any more: requests are admitted without it.",
            "Its log and its secret are deleted. This can't be undone.",
        ),
        button="Delete policy hook",
        back=f"/t/{actor.tenant_slug}/settings/policy-hook",
    )


def _log(hook: PolicyHook, query: QueryDict) -> dict[str, Any]:
    """Returns the rows of the log, the outcome that is chosen, and where older rows begin."""
    only = query.get("outcome", "")
    only = only if only in PolicyHookCall.Outcome.values else ""
    rows = hook_log(hook, only).order_by("-id")
    before = query.get("before", "")
    if before.isascii() and before.isdigit() and len(before) <= 18:
        rows = rows.filter(id__lt=int(before))
    found = list(rows[: PAGE_ROWS + 1])
    return {
        "log": [_row(each) for each in found[:PAGE_ROWS]],
        "older": found[PAGE_ROWS - 1].id if len(found) > PAGE_ROWS else None,
        "only": only,
        "outcomes": [("", "All"), *PolicyHookCall.Outcome.choices],
    }


def _row(call: PolicyHookCall) -> CallRow:
    question = json.dumps(call.requests, ensure_ascii=False, indent=2)
    return CallRow(call, _effect(call), question)


def _effect(call: PolicyHookCall) -> str:
    """What came of the call, or would have come in a dry run; empty for a test."""
    if call.act == "test":
        return ""
    if call.error:
        effect = "admitted without an answer" if call.is_fail_open else "refused"
    elif call.outcome == PolicyHookCall.Outcome.CHANGED:
        effect = "admitted with changes"
    else:
        effect = call.get_outcome_display().lower()
    return f"Would have been {effect}" if call.is_dry_run else effect.capitalize()


urlpatterns = [path("t/<slug:tenant>/settings/policy-hook", policy_hook, name="policy-hook")]
