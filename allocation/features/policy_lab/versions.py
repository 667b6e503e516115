"""The commands of a version of the policy, as pages and REST call them."""

from collections.abc import Sequence
from datetime import datetime

from allocation.api.fleet.policy import version_facts
from allocation.features.policy_lab.guards import GuardTerms, guard_document
from allocation.queries.decisions.policy_versions import VersionFacts
from allocation.services.policy.activations import (
    policy_activate,
    policy_approve,
    policy_rollback,
    policy_withdraw,
)
from tenants.access import PlatformActor
from tenants.platform.terms import term, terms


@terms
class ActivateTerms:
    """When a version goes into force."""

    starts: datetime | None = term(
        "From (optional)", "Empty: at once.", asks="moment", says="Null: at once.", default=None
    )
    reason: str = term("Reason (optional)", default="", max_length=300)
    waiver: str = term(
        "Why not wait for a day",
        "Only if you are the site's only operator: without it a version of yours waits for a day.",
        says="In words: why a site's only operator does not wait for a day.",
        default="",
        max_length=300,
    )
    classes: Sequence[str] = term(
        "GPU classes",
        "None: all.",
        says="Only for these GPU classes; empty: for all. A wider list later takes the place of this one.",
        default=(),
        max_length=32,
        child_kwargs={"max_length": 40},
    )
    tenants: Sequence[str] = term(
        "Organisations",
        "None: all.",
        says="Only for these organisations; empty: for all.",
        default=(),
        max_length=100,
        child_kwargs={"max_length": 60},
    )
    guard: GuardTerms | None = term(
        says="Null: none. When a figure leaves its band, the version before returns by itself.", default=None
    )


@terms
class RollbackTerms:
    """Which earlier version is in force again."""

    version: int | None = term(
        says="Null: the one that was in force before.", default=None, min_value=1, max_value=2**31 - 1
    )
    reason: str = term("Reason", says="The log keeps it.", max_length=300)


def version_activate(
    *, actor: PlatformActor, number: int, terms: ActivateTerms, now: datetime
) -> VersionFacts:
    """Puts it into force, at once or at a time. Raises Refused as `policy_activate`."""
    policy_activate(
        number=number,
        now=now,
        operator_id=actor.user_id,
        starts=terms.starts,
        reason=terms.reason.strip(),
        waiver=terms.waiver.strip(),
        guard=None if terms.guard is None else guard_document(terms.guard, number),
        classes=terms.classes,
        tenants=terms.tenants,
    )
    return version_facts(number)


def version_approve(*, actor: PlatformActor, number: int, now: datetime) -> VersionFacts:
    """Approves another operator's version. Raises Refused as `policy_approve`."""
    policy_approve(number=number, now=now, operator_id=actor.user_id)
    return version_facts(number)


def version_withdraw(*, actor: PlatformActor, number: int, now: datetime) -> VersionFacts:
    """Withdraws a version that waits. Raises Refused as `policy_withdraw`."""
    policy_withdraw(number=number, now=now, operator_id=actor.user_id)
    return version_facts(number)


def version_rollback(
    *, actor: PlatformActor, terms: RollbackTerms, now: datetime, number: int | None = None
) -> VersionFacts:
    """Puts an earlier version into force again. Raises Refused as `policy_rollback`."""
    wanted = terms.version if number is None else number
    made = policy_rollback(now=now, operator_id=actor.user_id, reason=terms.reason, number=wanted)
    return version_facts(made.version_id)
