"""The effect of a GPU error on the work on it, in one table after NVIDIA's catalogue of Xids.

Also the checks of `gpu-agent doctor` whose failure quarantines a node.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

ESSENTIAL = ("driver", "driver's version", "process ids", "state folder")
"""Without these the agent can't serve the node or can't attribute processes to bookings. Failures
of one GPU affect only the health of that GPU. All other failures are shown as warnings."""


class Action(StrEnum):
    """The effect of an error on the hardware and on the work on it."""

    NOTE = "note"
    """The error is recorded."""
    FINISH = "finish"
    """The GPU takes no new work. Running bookings continue to their end."""
    INSTANCE = "instance"
    """The booking on the slice, or on the GPU, restarts. The GPU stays in service."""
    GPU = "gpu"
    """All work on the GPU restarts elsewhere. The GPU waits for an operator."""
    LOST = "lost"
    """As `GPU`, and the device is unreachable: nothing proves that it is empty."""
    NODE = "node"
    """As `GPU`, for every GPU of the node."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`cause` is the code of a sentence in `words.fleet`."""

    action: Action
    cause: str


XIDS: dict[int, Finding] = {
    48: Finding(Action.GPU, "xid_48"),
    62: Finding(Action.GPU, "xid_62"),
    63: Finding(Action.FINISH, "xid_63"),
    64: Finding(Action.GPU, "xid_64"),
    74: Finding(Action.GPU, "xid_74"),
    79: Finding(Action.LOST, "xid_79"),
    92: Finding(Action.FINISH, "xid_92"),
    94: Finding(Action.INSTANCE, "xid_94"),
    95: Finding(Action.GPU, "xid_95"),
    119: Finding(Action.GPU, "xid_119"),
    120: Finding(Action.GPU, "xid_120"),
    140: Finding(Action.GPU, "xid_140"),
    143: Finding(Action.GPU, "xid_143"),
    145: Finding(Action.GPU, "xid_145"),
    146: Finding(Action.GPU, "xid_146"),
    147: Finding(Action.GPU, "xid_147"),
    148: Finding(Action.GPU, "xid_148"),
    149: Finding(Action.GPU, "xid_149"),
    150: Finding(Action.GPU, "xid_150"),
    154: Finding(Action.NODE, "xid_154"),
}
"""The effect of each Xid."""

RECOVERIES: dict[str, Finding] = {
    "none": Finding(Action.NOTE, "driver_none"),
    "reset": Finding(Action.GPU, "driver_reset"),
    "drain": Finding(Action.FINISH, "driver_drain"),
    "reboot": XIDS[154],
}
"""The effect of Xid 154 by the recovery action that the driver requests."""

ECCS: dict[int, Finding] = {
    1: Finding(Action.NOTE, "ecc_1"),
    2: Finding(Action.FINISH, "ecc_2"),
}
"""The effect of a memory error by its number of bits. Damage to work has an Xid of its own."""

RECOVERY_CHANGED = 154
UNKNOWN = Finding(Action.NOTE, "error_unknown")


def finding_of(kind: str, code: int, recovery: str | None = None) -> Finding:
    """The effect of an error of `kind` ("xid" or "ecc"), or `UNKNOWN`. `recovery` is the action
    that the driver requests."""
    if (kind, code) == ("xid", RECOVERY_CHANGED) and recovery in RECOVERIES:
        return RECOVERIES[recovery]
    return {"xid": XIDS, "ecc": ECCS}.get(kind, {}).get(code, UNKNOWN)


def essential_failed(checks: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Returns the failed essential checks by name."""
    return {
        check["name"]: check for check in checks if check["state"] == "fail" and check["name"] in ESSENTIAL
    }
