"""Differences of two versions of the policy, in words."""

from collections.abc import Iterator, Mapping
from typing import Any

from allocation.models import PolicyVersion
from allocation.services.policy.names import COUNTS, LABELS, NO_NAMES
from allocation.services.policy.parts import part_names
from allocation.services.policy.policies import PolicyValue, by_name_text, policy_changes
from allocation.services.policy.scenarios import scenario_lines
from tenants.services import seconds_text


def difference_lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between two documents, such as `Waiting-time step: 6h to 12h`; nothing where this
    software can't read one of them any more."""
    try:
        return list(change_lines(policy_changes(dict(before), dict(after))))
    except ValueError:
        return []


def version_lines(before: PolicyVersion, after: PolicyVersion) -> list[str]:
    """What differs between two versions, first in the whole site and then in its parts."""
    lines = difference_lines(before.document, after.document)
    old, new = ({row["version"]: row for row in version.parts} for version in (before, after))
    for number in sorted(old.keys() | new.keys()):
        was, now = old.get(number), new.get(number)
        if was == now or number == after.number:
            continue
        if now is None:
            lines.append(f"In {part_names(old[number])}: as everywhere, instead of version {number}")
            continue
        if was is not None:
            lines.append(f"Version {number} in {part_names(now)}, before in {part_names(was)}")
            continue
        there = difference_lines(after.document, {**after.document, **now["values"]})
        lines += [f"In {part_names(now)}, as version {number}: {each}" for each in there]
    if after.scenario and after.scenario != before.scenario:
        lines += scenario_lines(after.scenario)
    return lines


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
        return by_name_text(name, value)
    return f"{value}" if name in COUNTS else seconds_text(value)
