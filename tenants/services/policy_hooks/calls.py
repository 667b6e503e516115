"""Asks a policy hook: within its places and its circuit breaker, with an entry in the log."""

import asyncio
import json
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, TypeVar
from uuid import UUID, uuid4

import httpx
from django.conf import settings
from standardwebhooks import Webhook as Signer

from tenants.models import (
    PolicyHook,
    PolicyHookCall,
    PolicyHookHealth,
    Tenant,
    set_by_valid_token,
)
from tenants.outbox import outbox_add
from tenants.platform.text import without_invisible
from tenants.platform.wall import tenant_tx
from tenants.rules.policy_hooks import ADMITTED, BadAnswer, Decision, decisions_read
from tenants.rules.webhooks import BadTarget
from tenants.services.outgoing.pinned import (
    ANSWER_BYTES_MAX,
    TooLong,
    body_read,
    fault_sentence,
    pinned,
)
from tenants.services.outgoing.secrets import secrets_valid
from tenants.services.policy_hooks.questions import (
    TEST,
    HookAnswer,
    HookAnswers,
    HookQuestion,
    asked_of,
    hook_answered,
)
from tenants.words import fault_text

FAILURES_MOST = 5
BREAK = timedelta(seconds=30)
"""After so many failures in a row a hook is not asked for this long."""
CALLS_KEPT = 500
FAILING = "policy_hook.failing"
_REQUESTS_SHOWN, _ANSWER_SHOWN = 20, 2_000
TOO_MANY = "Too many calls of the hook are open at this moment."
Outcome = PolicyHookCall.Outcome
Done = TypeVar("Done")
_open: Counter[UUID] = Counter()
_open_lock = Lock()
TYPE = "policy_hook.question"


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `error` says why there is no answer to read."""

    status: int | None = None
    body: bytes = b""
    error: str = ""
    milliseconds: int = 0


def hook_asking(run: Callable[[], Done]) -> Done:
    """Runs `run`, which opens its own transaction. If it needs an answer of a hook, asks and runs
    it once more."""
    try:
        return run()
    except HookQuestion as question:
        answers = hook_ask(question)
    with hook_answered(answers):
        return run()


def hook_ask(question: HookQuestion) -> HookAnswers:
    """Asks the hook and writes the log. Call it outside of every transaction."""
    call = uuid4()
    with tenant_tx(question.actor.tenant_id):
        plan = _plan(question)
    reply = plan.problem or _called(question, plan, call)
    with tenant_tx(question.actor.tenant_id):
        said = _read(question, reply, is_skipped=plan.problem is not None)
        _log(question, reply, said, call)
        if said.outcome != Outcome.SKIPPED:
            _health_write(question, said, plan.url)
    return _answers(question, said, plan.tenant, call)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a call needs. `problem`: it is not made."""

    tenant: str
    url: str
    secrets: tuple[str, ...]
    problem: Reply | None = None


@dataclass(frozen=True, slots=True)
class _Said:
    """What the reply says; without a valid one, `error` says why. `is_readable`: its body could be
    read as decisions."""

    outcome: str
    decisions: tuple[Decision, ...] = ()
    error: str = ""
    is_readable: bool = True


def _plan(question: HookQuestion) -> _Plan:
    tenant = Tenant.objects.get(id=question.actor.tenant_id)
    rows = PolicyHook.objects.filter(set_by_valid_token(question.at), id=question.hook.id)
    hook = rows.select_related("health").first()
    if hook is None:
        return _Plan(tenant.name, "", (), Reply(error="The hook was ended meanwhile."))
    health, problem = hook.health, None
    is_open = health.not_before is not None and question.at < health.not_before
    if is_open and question.act != TEST:
        problem = Reply(
            error=f"The hook failed {health.failures} times in a row, so it is not asked for "
            f"{BREAK.seconds} s."
        )
    secrets = secrets_valid(hook.salt, hook.previous_salt, hook.previous_until, question.at)
    return _Plan(tenant.name, question.hook.url, secrets, problem)


def _called(question: HookQuestion, plan: _Plan, call: UUID) -> Reply:
    data = {
        "tenant": question.actor.tenant_slug,
        "act": question.act,
        "asker": question.actor.name,
        "is_dry_run": question.hook.is_dry_run,
        "requests": [item.data for item in question.items],
    }
    with _place(question.actor.tenant_id) as is_free:
        if not is_free:
            return Reply(error=TOO_MANY)
        return hook_post(
            plan.url,
            data=data,
            key=call,
            secrets=plan.secrets,
            timeout_ms=question.hook.timeout_ms,
            now=question.at,
        )


@contextmanager
def _place(tenant_id: UUID) -> Iterator[bool]:
    """Takes one of the places of this process; yields whether one was free.

    A tenant has a quarter of the threads and all hooks together three quarters, so that slow ones
    leave threads for other tenants and for everything else.
    """
    each = max(1, settings.WEB_THREADS // 4)
    with _open_lock:
        is_free = _open[tenant_id] < each and _open.total() < max(1, settings.WEB_THREADS * 3 // 4)
        _open[tenant_id] += is_free
    try:
        yield is_free
    finally:
        with _open_lock:
            _open[tenant_id] -= is_free
            if not _open[tenant_id]:
                del _open[tenant_id]


def _read(question: HookQuestion, reply: Reply, *, is_skipped: bool) -> _Said:
    """Reads and checks the decisions."""
    if reply.error:
        is_skipped = is_skipped or reply.error == TOO_MANY
        outcome = Outcome.SKIPPED if is_skipped else Outcome.FAILED
        return _Said(outcome, error=reply.error, is_readable=False)
    try:
        decisions = decisions_read(reply.body, len(question.items))
    except BadAnswer as fault:
        return _Said(Outcome.FAILED, error=str(fault), is_readable=False)
    for item, decision in zip(question.items, decisions, strict=True):
        if problem := item.fault(decision):
            return _Said(Outcome.FAILED, error=problem[:300])
    if not all(each.is_admitted for each in decisions):
        return _Said(Outcome.DENIED, decisions)
    is_change = any(each.is_change for each in decisions)
    return _Said(Outcome.CHANGED if is_change else Outcome.ADMITTED, decisions)


def _log(question: HookQuestion, reply: Reply, said: _Said, call: UUID) -> None:
    """Writes the entry of a call, and removes the oldest ones."""
    tenant_id, hook = question.actor.tenant_id, question.hook
    if not PolicyHook.objects.filter(id=hook.id).exists():
        return
    # Any other body could be that of a service which the admins may not read.
    body = reply.body[:_ANSWER_SHOWN] if said.is_readable else b""
    PolicyHookCall.objects.create(
        tenant_id=tenant_id,
        hook_id=hook.id,
        key=call,
        at=question.at,
        act=question.act,
        asker_id=question.actor.user_id,
        items=len(question.items),
        requests=[dict(item.data) for item in question.items[:_REQUESTS_SHOWN]],
        status=reply.status,
        answer=without_invisible(body.decode(errors="replace")),
        milliseconds=reply.milliseconds,
        outcome=said.outcome,
        error=said.error[:300],
        is_fail_open=hook.is_fail_open,
        is_dry_run=hook.is_dry_run,
    )
    rows = PolicyHookCall.objects.filter(tenant_id=tenant_id).order_by("-id")
    oldest = rows.values_list("id", flat=True)[CALLS_KEPT : CALLS_KEPT + 1].first()
    if oldest is not None:
        rows.filter(id__lte=oldest).delete()


def _health_write(question: HookQuestion, said: _Said, url: str) -> None:
    """Counts a failure, or forgets them. The fifth in a row notifies the admins."""
    rows = PolicyHookHealth.objects.filter(hook_id=question.hook.id)
    if not said.error:
        rows.filter(failures__gt=0).update(failures=0, not_before=None)
        return
    health = rows.select_for_update().first()
    if health is None or question.act == TEST:
        return
    health.failures += 1
    if health.failures >= FAILURES_MOST:
        health.not_before = question.at + BREAK
    health.save(update_fields=["failures", "not_before"])
    if health.failures == FAILURES_MOST:
        payload = {
            "hook": str(question.hook.id),
            "url": url.partition("?")[0],
            "failures": health.failures,
            "error": said.error,
            "is_fail_open": question.hook.is_fail_open,
        }
        tenant_id = question.actor.tenant_id
        outbox_add(tenant_id=tenant_id, kind=FAILING, payload=payload, now=question.at)


def _answers(question: HookQuestion, said: _Said, tenant: str, call: UUID) -> HookAnswers:
    decisions = said.decisions
    if said.error:
        is_admitted = question.hook.is_fail_open
        failed = ADMITTED if is_admitted else Decision(is_admitted=False)
        decisions = (failed,) * len(question.items)
    found = tuple(HookAnswer(each, tenant, call, said.error) for each in decisions)
    asked = asked_of(question.items)
    return HookAnswers(question.act, found, question.hook.is_dry_run, asked)


def hook_post(
    url: str,
    *,
    data: Mapping[str, Any],
    key: UUID,
    secrets: tuple[str, ...],
    timeout_ms: int,
    now: datetime,
) -> Reply:
    """Asks the hook. Call it outside of every transaction: it takes up to `timeout_ms`."""
    body = json.dumps(
        {"id": f"phk_{key.hex}", "type": TYPE, "timestamp": now.isoformat(), "data": data},
        ensure_ascii=False,
        separators=(",", ":"),
        sort_keys=True,
    )
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json",
        "User-Agent": "gpu-portal-policy-hook/1",
        "webhook-id": f"phk_{key.hex}",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(Signer(s).sign(f"phk_{key.hex}", now, body) for s in secrets),
    }
    if not secrets:
        return Reply(error="The secret's key is gone. Make a new secret.")
    began = time.monotonic()
    found = asyncio.run(_within(url, body.encode(), headers, timeout_ms / 1000))
    took = round((time.monotonic() - began) * 1000)
    return Reply(found.status, found.body, found.error, took)


async def _within(url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Reply:
    try:
        async with asyncio.timeout(seconds):
            return await _exchange(url, body, headers)
    except TimeoutError:
        return Reply(error=f"No answer within {seconds:g} s.")
    except httpx.TimeoutException:
        return Reply(error=f"No answer within {seconds:g} s.")
    except BadTarget as fault:
        return Reply(error=fault_text(fault))
    except TooLong:
        return Reply(error=f"The answer has more than {ANSWER_BYTES_MAX // 1024} KiB.")
    except (httpx.HTTPError, ssl.SSLError, OSError) as fault:
        return Reply(error=fault_sentence(fault))


async def _exchange(url: str, body: bytes, headers: Mapping[str, str]) -> Reply:
    async with pinned(url) as receiver:
        path = receiver.target.path
        async with receiver.send("POST", path, content=body, headers=headers) as response:
            status = response.status_code
            if response.is_redirect:
                return Reply(status, error="Redirects are not followed.")
            if response.headers.get("content-encoding", "identity") != "identity":
                return Reply(status, error="The answer is compressed.")
            found = await body_read(response)
            error = "" if status == 200 else f"The hook answered with status {status}."
            return Reply(status, found, error)
