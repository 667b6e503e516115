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
    63: Finding(Action.FINISH, "a memory row is to be replaced at the next reset"),
    64: Finding(Action.GPU, "a bad memory row could not be replaced"),
    74: Finding(Action.GPU, "an NVLink connection failed"),
    79: Finding(Action.LOST, "the GPU has fallen off the bus"),
    92: Finding(Action.FINISH, "many corrected memory errors in a short time"),
    94: Finding(Action.INSTANCE, "a memory error, contained in one slice or program"),
    95: Finding(Action.GPU, "a memory error that was not contained; the GPU needs a reset"),
    154: Finding(Action.NODE, "the driver asks for the node to be restarted"),
}
"""Xid -> what follows from it."""

ECCS: dict[int, Finding] = {
    1: Finding(Action.NOTE, "corrected memory errors"),
    2: Finding(Action.FINISH, "a memory error that could not be corrected"),
}
"""Bits of a memory error -> what follows from it. What it broke is told by an Xid of its own."""

UNKNOWN = Finding(Action.NOTE, "an error of the driver or of an application")


def finding_of(kind: str, code: int) -> Finding:
    """What an error of `kind` ("xid" or "ecc") means; `UNKNOWN` for what stands in no line."""
    return {"xid": XIDS, "ecc": ECCS}.get(kind, {}).get(code, UNKNOWN)


def error_name(kind: str, code: int) -> str:
    """`Xid 79`, `ECC, 2 bits`."""
    return f"Xid {code}" if kind == "xid" else f"ECC, {code} bit{'s' * (code != 1)}"
