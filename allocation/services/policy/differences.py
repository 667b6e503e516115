"""Differences of two versions of the policy, in words."""

from collections.abc import Iterator, Mapping
from typing import Any

from allocation.services.policy.names import COUNTS, LABELS, NO_NAMES
from allocation.services.policy.policies import PolicyValue, policy_changes, tier_seconds_text
from tenants.services import seconds_text


def difference_lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between two documents, such as `Waiting-time step: 6h to 12h`; nothing where this
    software can't read one of them any more."""
    try:
        return list(change_lines(policy_changes(dict(before), dict(after))))
    except ValueError:
        return []


def change_lines(changes: Mapping[str, Mapping[str, PolicyValue]]) -> Iterator[str]:
    """Yields the changes of `policy_changes` in words."""
    for name, after in changes["after"].items():
        before = policy_text(name, changes["before"][name])
        yield f"{LABELS.get(name, name)}: {before} to {policy_text(name, after)}"


def policy_text(name: str, value: PolicyValue) -> str:
    """Returns a value as it is shown and typed."""
    if isinstance(value, tuple):
        return ", ".join(value) or NO_NAMES
    if isinstance(value, dict):
        return tier_seconds_text(value)
    return f"{value}" if name in COUNTS else seconds_text(value)
