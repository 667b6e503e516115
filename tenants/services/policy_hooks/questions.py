"""Questions to a policy hook, asked outside of every transaction.

Code that needs an answer calls `hook_consult`. Without an answer it raises `HookQuestion`, which
ends the transaction with all its locks. The edge that opened the transaction asks the hook
(`calls.hook_asking`) and runs the work again, with the answers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from tenants.access import Actor
from tenants.platform.errors import Refused
from tenants.rules.policy_hooks import Decision
from tenants.services.policy_hooks.live import LiveHook, hook_live
from tenants.words import refusal_text

TEST = "test"


@dataclass(frozen=True, slots=True)
class HookItem:
    """One request of a question: what is sent, and a check that returns why a decision about it is
    not valid, or an empty text. The check runs in a transaction of the tenant."""

    data: Mapping[str, Any]
    fault: Callable[[Decision], str]


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """What counts for one request. Without a valid answer `error` says why, and the rule of the
    hook has decided."""

    decision: Decision
    tenant: str
    call: UUID
    error: str = ""


@dataclass(frozen=True, slots=True)
class HookAnswers:
    """The answers to one question; none in a dry run. `asked`: what it was about, without money,
    which others spend meanwhile."""

    act: str
    answers: tuple[HookAnswer, ...]
    is_dry_run: bool = False
    asked: tuple[Mapping[str, Any], ...] = ()


@dataclass(eq=False)
class HookQuestion(Exception):
    """Not an error: the work needs an answer, and its transaction has to end before."""

    hook: LiveHook
    actor: Actor
    act: str
    items: tuple[HookItem, ...]
    at: datetime


# None: nobody was asked yet. Empty: nobody is asked here.
_answers: ContextVar[HookAnswers | None] = ContextVar("policy_hook_answers", default=None)
_UNASKED = HookAnswers("", ())


def hook_consult(
    actor: Actor,
    act: str,
    items: Callable[[], Sequence[HookItem]],
    now: datetime,
    hook: LiveHook | None = None,
) -> tuple[HookAnswer, ...] | None:
    """Returns the answers for the items; None if the tenant has no hook that counts here.

    `hook` is asked instead of the tenant's own one that is on: for tests.

    Raises:
        HookQuestion: Nobody was asked yet.
        Refused: `policy_hook_moved`, if the items are others than those that were asked about.
    """
    known = _answers.get()
    if known is _UNASKED:
        return None
    hook = hook or hook_live(actor.tenant_id)
    if hook is None:
        return None
    found = tuple(items())
    if not found:
        return None
    if known is None:
        raise HookQuestion(hook, actor, act, found, now)
    if known.is_dry_run and act != TEST:
        return None
    if known.act != act or known.asked != asked_of(found):
        raise Refused("policy_hook_moved", refusal_text("policy_hook_moved"))
    return known.answers


def asked_of(items: Sequence[HookItem]) -> tuple[Mapping[str, Any], ...]:
    """What the items ask for, without costs and budgets."""
    return tuple(
        _without_money({**item.data, "change": _without_money(item.data.get("change", {}))}) for item in items
    )


def _without_money(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in data.items() if name not in ("cost", "budget")}


@contextmanager
def hook_answered(answers: HookAnswers) -> Iterator[None]:
    """Makes `hook_consult` return these answers inside the block."""
    before = _answers.set(answers)
    try:
        yield
    finally:
        _answers.reset(before)


@contextmanager
def hook_unasked() -> Iterator[None]:
    """Asks no hook inside the block: what happens there is undone, such as a quote."""
    with hook_answered(_UNASKED):
        yield
