"""Writes the policy hook of an organisation, by its admins."""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet

from tenants.access import Actor
from tenants.audit import actor_record
from tenants.models import PolicyHook, PolicyHookCall, PolicyHookHealth, Tier
from tenants.models.policy_hooks import TIMEOUT_LEAST_MS, TIMEOUT_MOST_MS
from tenants.platform.errors import Refused, denied, invalid, missing
from tenants.platform.forms.actions import number_text_read
from tenants.platform.terms import term, terms
from tenants.rules.policy_hooks import Decision
from tenants.rules.webhooks import BadTarget, target_read
from tenants.services.outgoing.secrets import salt_new, secret_of
from tenants.services.outgoing.targets import target_address
from tenants.services.policy_hooks.live import live_of
from tenants.services.policy_hooks.questions import (
    TEST,
    HookAnswer,
    HookItem,
    hook_consult,
)
from tenants.words import fault_text, refusal_text

OVERLAP = timedelta(hours=24)
"""After a rotation questions carry the signatures of both secrets for this long."""
SAMPLE = {
    "project": "sample",
    "tier": "standard",
    "name": "Test of the policy hook",
    "campaign": "",
    "labels": {},
    "external_ref": "",
    "request": "1 h100 1h",
    "ask": {"count": 1, "classes": ["h100"], "duration": 3600},
    "is_test": True,
}


def _milliseconds(text: str, *, param: str) -> int:
    number = number_text_read(text)
    if number is None:
        raise invalid("bad_timeout", refusal_text("milliseconds"), param)
    return number


@terms
class HookAddress:
    """Which address is asked, and how long."""

    url: str = term(
        "Address",
        "HTTPS on port 443 or 8443, and a public address unless your operator allows others.",
        asks="url",
        says="`https://…`, port 443 or 8443.",
        max_length=500,
    )
    timeout_ms: int = term(
        "Time limit (ms)",
        "100 to 2000. People wait for the answer, so keep it short.",
        reads=_milliseconds,
        says=f"Milliseconds that a call may take: {TIMEOUT_LEAST_MS} to {TIMEOUT_MOST_MS}.",
        default=1_000,
    )


@terms
class PolicyHookTerms(HookAddress):
    """Which address is asked, and what happens without a valid answer."""

    is_on: bool = term(default=True)
    is_fail_open: bool = term(
        says="True: a request without a valid answer is admitted. False: it is refused.", default=False
    )
    is_dry_run: bool = term(says="True: answers are logged and change nothing.", default=False)


def hook_check(actor: Actor) -> None:
    """Raises Refused `not_allowed` unless the actor administers the tenant."""
    if not actor.is_tenant_admin:
        raise denied(refusal_text("policy_hook_admins"))


def hook_of(actor: Actor) -> PolicyHook | None:
    """Returns the hook of the actor's tenant. Raises Refused `not_allowed`."""
    hook_check(actor)
    rows = PolicyHook.objects.filter(tenant_id=actor.tenant_id)
    return rows.select_related("health").first()


def hook_one(actor: Actor) -> PolicyHook:
    """As `hook_of`. Raises Refused `not_found`, too."""
    found = hook_of(actor)
    if found is None:
        raise missing("policy hook")
    return found


@transaction.atomic
def hook_set(*, actor: Actor, terms: PolicyHookTerms, now: datetime) -> tuple[PolicyHook, str]:
    """Creates or changes the hook; returns it with its secret, which is empty for a changed one.

    Raises:
        Refused: `not_allowed`, `bad_url` or `bad_timeout`.
    """
    hook_check(actor)
    if not TIMEOUT_LEAST_MS <= terms.timeout_ms <= TIMEOUT_MOST_MS:
        sentence = refusal_text(
            "policy_hook_timeout",
            timeout_least_ms=TIMEOUT_LEAST_MS,
            timeout_most_ms=TIMEOUT_MOST_MS,
        )
        raise invalid("bad_timeout", sentence, "timeout_ms")
    try:
        target_address(target_read(terms.url))
    except BadTarget as fault:
        raise invalid("bad_url", fault_text(fault), "url") from None
    chosen = {name: getattr(terms, name) for name in _FIELDS}
    maker = {"created_by_id": actor.user_id, "made_with_id": actor.token_id}
    made = {**chosen, **maker, "created": now, "salt": salt_new()}
    # Two admins who create it at once get one hook.
    hook, is_new = PolicyHook.objects.select_for_update().get_or_create(
        tenant_id=actor.tenant_id, defaults=made
    )
    before = {} if is_new else _values(hook)
    if (terms.is_on and not hook.is_on) or (actor.token_id is not None and terms.url != hook.url):
        hook.made_with_id = actor.token_id
    for name, value in chosen.items():
        setattr(hook, name, value)
    hook.save()
    PolicyHookHealth.objects.update_or_create(
        hook=hook, defaults={"tenant_id": actor.tenant_id, "failures": 0, "not_before": None}
    )
    secret = (secret_of(hook.salt) or "") if is_new else ""
    _record(actor, "policy_hook.set", hook, now, {"before": before, "after": _values(hook)})
    return hook_one(actor), secret


@transaction.atomic
def hook_secret_rotate(*, actor: Actor, now: datetime) -> tuple[PolicyHook, str]:
    """Gives the hook a new secret; returns both. The previous one signs, too, for 24 hours.

    Raises:
        Refused: `not_allowed` or `not_found`.
    """
    hook = _locked(actor)
    hook.previous_salt, hook.previous_until = hook.salt, now + OVERLAP
    hook.salt = salt_new()
    hook.made_with_id = actor.token_id or hook.made_with_id
    hook.save(update_fields=["salt", "previous_salt", "previous_until", "made_with"])
    _record(actor, "policy_hook.rotated", hook, now, {})
    return hook, secret_of(hook.salt) or ""


@transaction.atomic
def hook_delete(*, actor: Actor, now: datetime) -> None:
    """Deletes the hook with its log. Raises Refused `not_allowed` or `not_found`."""
    hook = _locked(actor)
    _record(actor, "policy_hook.deleted", hook, now, {})
    hook.delete()


def hook_test(*, actor: Actor, now: datetime) -> HookAnswer:
    """Asks the hook about a sample request, whether it is on or not. Nothing is booked.

    Raises:
        HookQuestion: Nobody was asked yet.
        Refused: `not_allowed` or `not_found`.
    """
    hook = hook_one(actor)
    item = HookItem(SAMPLE, _sample_fault)
    answers = hook_consult(actor, TEST, lambda: [item], now, live_of(hook))
    if answers is None:
        raise Refused("policy_hook_busy", refusal_text("policy_hook_busy"))
    return answers[0]


def _sample_fault(said: Decision) -> str:
    if not said.tier or Tier.objects.filter(slug=said.tier).exists():
        return ""
    return f"There is no tier {said.tier!r}."


def hook_log(hook: PolicyHook, only: str) -> QuerySet[PolicyHookCall]:
    """Returns the calls of a hook, those with the outcome `only` if given."""
    rows = hook.calls.select_related("asker")
    return rows.filter(outcome=only) if only else rows


_FIELDS = ("url", "timeout_ms", "is_on", "is_fail_open", "is_dry_run")


def _locked(actor: Actor) -> PolicyHook:
    hook = hook_one(actor)
    PolicyHook.objects.select_for_update().get(id=hook.id)
    return hook


def _values(hook: PolicyHook) -> dict[str, object]:
    values = {name: getattr(hook, name) for name in _FIELDS}
    return {**values, "url": hook.url.partition("?")[0]}


def _record(actor: Actor, action: str, hook: PolicyHook, now: datetime, detail: dict[str, object]) -> None:
    about = {"url": hook.url.partition("?")[0], **detail}
    actor_record(actor, action, ("policy_hook", hook.id), now, about)
