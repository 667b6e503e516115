"""The checks of `gpu-agent doctor` whose failure quarantines a node."""

from collections.abc import Iterable, Mapping
from typing import Any

ESSENTIAL = ("driver", "driver's version", "process ids", "state folder")
"""Without these the agent can't serve the node or can't attribute processes to bookings. Failures
of one GPU affect only the health of that GPU. All other failures are shown as warnings."""


def essential_failed(checks: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Returns the failed essential checks by name."""
    return {
        check["name"]: check
        for check in checks
        if check["state"] == "fail" and check["name"] in ESSENTIAL
    }
