"""The effect of a GPU error on the work on it, in one table after NVIDIA's catalogue of Xids.

Pure. Errors that are not in the table are recorded only: most Xids are caused by programs.
"""

from dataclasses import dataclass
from enum import StrEnum


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
    """`words` complete the sentence "Xid 79: …". They name no booking and no person."""

    action: Action
    words: str


XIDS: dict[int, Finding] = {
    48: Finding(Action.GPU, "a memory error that could not be corrected; the GPU needs a reset"),
    62: Finding(Action.GPU, "a controller inside the GPU has halted; the GPU needs a reset"),
    63: Finding(Action.FINISH, "a memory row is to be replaced at the next reset"),
    64: Finding(Action.GPU, "a bad memory row could not be replaced"),
    74: Finding(Action.GPU, "an NVLink connection failed"),
    79: Finding(Action.LOST, "the GPU has fallen off the bus"),
    92: Finding(Action.FINISH, "many corrected memory errors in a short time"),
    94: Finding(Action.INSTANCE, "a memory error, contained in one slice or program"),
    95: Finding(Action.GPU, "a memory error that was not contained; the GPU needs a reset"),
    119: Finding(Action.GPU, "the GPU's firmware (GSP) does not answer; the GPU needs a reset"),
    120: Finding(Action.GPU, "the GPU's firmware (GSP) has failed; the GPU needs a reset"),
    140: Finding(Action.GPU, "a memory error that was not recovered; the GPU needs a reset"),
    143: Finding(Action.GPU, "the GPU could not be initialised; it needs a reset"),
    145: Finding(Action.GPU, "an NVLink error (RLW); the GPU needs a reset"),
    146: Finding(Action.GPU, "an NVLink error (TLW); the GPU needs a reset"),
    147: Finding(Action.GPU, "an NVLink error (TREX); the GPU needs a reset"),
    148: Finding(Action.GPU, "an NVLink error (NVLPW control); the GPU needs a reset"),
    149: Finding(Action.GPU, "an NVLink error (NETIR); the GPU needs a reset"),
    150: Finding(Action.GPU, "an NVLink error (MSE); the GPU needs a reset"),
    154: Finding(Action.NODE, "the driver asks for the node to be restarted"),
}
"""The effect of each Xid."""

RECOVERIES: dict[str, Finding] = {
    "none": Finding(Action.NOTE, "the driver asks for nothing any more"),
    "reset": Finding(Action.GPU, "the driver asks for the GPU to be reset"),
    "drain": Finding(Action.FINISH, "the driver asks for the GPU to be emptied, then reset"),
    "reboot": XIDS[154],
}
"""The effect of Xid 154 by the recovery action that the driver requests."""

ECCS: dict[int, Finding] = {
    1: Finding(Action.NOTE, "corrected memory errors"),
    2: Finding(Action.FINISH, "a memory error that could not be corrected"),
}
"""The effect of a memory error by its number of bits. Damage to work has an Xid of its own."""

RECOVERY_CHANGED = 154
UNKNOWN = Finding(Action.NOTE, "an error of the driver or of an application")


def finding_of(kind: str, code: int, recovery: str | None = None) -> Finding:
    """The effect of an error of `kind` ("xid" or "ecc"), or `UNKNOWN`. `recovery` is the action
    that the driver requests."""
    if (kind, code) == ("xid", RECOVERY_CHANGED) and recovery in RECOVERIES:
        return RECOVERIES[recovery]
    return {"xid": XIDS, "ecc": ECCS}.get(kind, {}).get(code, UNKNOWN)


def error_name(kind: str, code: int) -> str:
    """`Xid 79`, `ECC, 2 bits`."""
    return f"Xid {code}" if kind == "xid" else f"ECC, {code} bit{'s' * (code != 1)}"
