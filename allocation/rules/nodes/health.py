"""What an error that a GPU reports means for the work on it: one table, after NVIDIA's catalogue.

Pure. What stands in no line is noted and changes nothing: most Xids are a program's own fault.
"""

from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    """How far an error reaches. Each says what becomes of the hardware and of the work on it."""

    NOTE = "note"
    """It is written down."""
    FINISH = "finish"
    """The GPU takes no new work; what runs goes on to its end."""
    INSTANCE = "instance"
    """The booking on the named slice (without one: on the GPU) starts again; the GPU serves on."""
    GPU = "gpu"
    """All work on the GPU starts again elsewhere; the GPU waits for an operator."""
    LOST = "lost"
    """As `GPU`, and the device can't be reached: nothing proves that it is empty."""
    NODE = "node"
    """As `GPU`, for every GPU of the node."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`words` finish the sentence "Xid 79: …" and name no booking and no person."""

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
"""Xid -> what follows from it."""

RECOVERIES: dict[str, Finding] = {
    "none": Finding(Action.NOTE, "the driver asks for nothing any more"),
    "reset": Finding(Action.GPU, "the driver asks for the GPU to be reset"),
    "drain": Finding(Action.FINISH, "the driver asks for the GPU to be emptied, then reset"),
    "reboot": XIDS[154],
}
"""What Xid 154 means where the driver says what it asks for."""

ECCS: dict[int, Finding] = {
    1: Finding(Action.NOTE, "corrected memory errors"),
    2: Finding(Action.FINISH, "a memory error that could not be corrected"),
}
"""Bits of a memory error -> what follows from it. What it broke is told by an Xid of its own."""

RECOVERY_CHANGED = 154
UNKNOWN = Finding(Action.NOTE, "an error of the driver or of an application")


def finding_of(kind: str, code: int, recovery: str | None = None) -> Finding:
    """What an error of `kind` ("xid" or "ecc") means; `UNKNOWN` for what stands in no line.
    `recovery` is what the driver asked for with it."""
    if (kind, code) == ("xid", RECOVERY_CHANGED) and recovery in RECOVERIES:
        return RECOVERIES[recovery]
    return {"xid": XIDS, "ecc": ECCS}.get(kind, {}).get(code, UNKNOWN)


def error_name(kind: str, code: int) -> str:
    """`Xid 79`, `ECC, 2 bits`."""
    return f"Xid {code}" if kind == "xid" else f"ECC, {code} bit{'s' * (code != 1)}"
