"""Which findings of `doctor` keep a node from new work until an operator has looked."""

from collections.abc import Iterable, Mapping
from typing import Any

ESSENTIAL = ("driver", "driver's version", "process ids", "state folder")
"""Without these the agent can't serve the node, or can't tell whose a program is. What fails on
one GPU is left to that GPU's own health, and all else is shown."""


def essential_failed(checks: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Returns a sentence for each essential check that fails, by its name."""
    return {
        check["name"]: f"Check of {check['name']} fails: {check['seen']}. To do: {check['do']}."
        for check in checks
        if check["state"] == "fail" and check["name"] in ESSENTIAL
    }
