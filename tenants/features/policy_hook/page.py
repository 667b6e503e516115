"""The page of the organisation's policy hook: its settings, a test, and its log."""

import json
from datetime import datetime
from typing import Any

from tenants.access import Actor
from tenants.features.policy_hook.services import (
    HookAddress,
    PolicyHookTerms,
    hook_delete,
    hook_log,
    hook_of,
    hook_one,
    hook_secret_rotate,
    hook_set,
    hook_test,
)
from tenants.models import PolicyHook, PolicyHookCall
from tenants.platform.forms.actions import number_text_read
from tenants.platform.forms.confirm import Confirmation
from tenants.platform.terms import term, terms
from tenants.services.policy_hooks.questions import HookAnswer
from tenants.web.form_page import Act, form_page

PAGE_ROWS = 50
FAILURES = [("closed", "The request is refused"), ("open", "The request is admitted")]
MODES = [("off", "Off"), ("dry", "Dry run: ask and log, change nothing"), ("on", "On")]


@terms
class HookForm(HookAddress):
    """The hook as the page asks for it."""

    mode: str = term(
        "Mode", "Start with a dry run: the log shows what the hook would have done.", default="dry"
    )
    failure: str = term(
        "Without an answer",
        "After five failures in a row this counts at once, and the hook is asked again after 30 s.",
        default="closed",
    )


def _shown(actor: Actor, now: datetime, outcome: str, before: str) -> dict[str, Any]:
    hook = hook_of(actor)
    return {"hook": hook} | ({} if hook is None else _log(hook, outcome, before))


def _log(hook: PolicyHook, outcome: str, before: str) -> dict[str, Any]:
    """Returns the rows of the log, the outcome that is chosen, and where older rows begin."""
    only = outcome if outcome in PolicyHookCall.Outcome.values else ""
    rows = hook_log(hook, only).order_by("-id")
    if (number := number_text_read(before)) is not None:
        rows = rows.filter(id__lt=number)
    found = list(rows[: PAGE_ROWS + 1])
    return {
        "log": [_row(each) for each in found[:PAGE_ROWS]],
        "older": found[PAGE_ROWS - 1].id if len(found) > PAGE_ROWS else None,
        "only": only,
        "outcomes": [("", "All"), *PolicyHookCall.Outcome.choices],
    }


def _row(call: PolicyHookCall) -> dict[str, Any]:
    """A call, what came of it, and its question as JSON."""
    question = json.dumps(call.requests, ensure_ascii=False, indent=2)
    return {"call": call, "effect": _effect(call), "question": question}


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


def _set(*, actor: Actor, terms: HookForm, now: datetime) -> tuple[PolicyHook, str]:
    hook = PolicyHookTerms(
        url=terms.url,
        timeout_ms=terms.timeout_ms,
        is_on=terms.mode in ("on", "dry"),
        is_fail_open=terms.failure == "open",
        is_dry_run=terms.mode == "dry",
    )
    return hook_set(actor=actor, terms=hook, now=now)


def _stored(actor: Actor, **_: str) -> dict[str, Any]:
    hook = hook_of(actor)
    if hook is None:
        return {}
    mode = "off" if not hook.is_on else "dry" if hook.is_dry_run else "on"
    failure = "open" if hook.is_fail_open else "closed"
    return {"url": hook.url, "timeout_ms": hook.timeout_ms, "mode": mode, "failure": failure}


def _set_words(made: tuple[PolicyHook, str]) -> str:
    if made[1]:
        return "Policy hook created. Copy its secret now; it is shown only once."
    return "Policy hook saved."


def _test_words(answer: HookAnswer) -> str:
    if answer.error:
        return f"The hook gave no valid answer: {answer.error}"
    return "The hook answered. Its answer is in the log."


def _question(actor: Actor) -> Confirmation:
    return Confirmation(
        title="Delete the policy hook?",
        lost=(
            f"{hook_one(actor).url} is not asked any more: requests are admitted without it.",
            "Its log and its secret are deleted. This can't be undone.",
        ),
        button="Delete policy hook",
        back=f"/t/{actor.tenant_slug}/settings/policy-hook",
    )


urlpatterns = [
    form_page(
        "settings/policy-hook",
        "policy-hook",
        "policy_hook/page.html",
        _shown,
        Act(
            "set",
            _set,
            _set_words,
            terms=HookForm,
            choices={"mode": lambda _: MODES, "failure": lambda _: FAILURES},
            initial=_stored,
            is_shown_once=lambda made: bool(made[1]),
        ),
        Act("test", hook_test, _test_words),
        Act(
            "rotate",
            hook_secret_rotate,
            "New secret made. The previous one stays valid for 24 hours.",
            is_shown_once=True,
        ),
        Act("delete", hook_delete, "Policy hook deleted.", asks=_question),
        queries=("outcome", "before"),
    )
]
