"""Constants and field types of the messages. A type says which values a reader accepts."""

import re
from typing import Annotated, Literal

VERSION = 1
LEASE_EXPIRED = "its lease ran out"
"""Error of an allocation that the agent ended because its lease expired."""
NOT_ANSWERING = "the driver does not come back from a call"
"""Error of a GPU about which a driver call hangs."""
ADDED = {"later": True}
"""Metadata of fields that were added to version 1; see the package's docstring."""
CHECKS_MAX = 64
"""The number of checks in one Examination at most."""
CHECK_FACTS_MAX = 8
"""The number of facts of one check at most."""
SLOTS = 8
"""The number of memory slots of a GPU at most."""

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
Name = Annotated[str, NAME_PATTERN]
"""Safe as a part of a Redis key and of a path: no slash, no colon, no leading dot."""

HostName = Annotated[str, re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?")]
"""The name of a host, or of a set of hosts; empty for none."""

RackName = Annotated[str, re.compile(r"(?:[a-z0-9][a-z0-9-]{0,39})?")]
"""The name of a rack, empty when unknown."""

PciId = Annotated[str, re.compile(r"(?:[0-9a-f]{4}:[0-9a-f]{4})?")]
"""Vendor and device as `lspci -nn` writes them, "10de:2330"; empty when unknown."""

_UNSAFE = "\\x00-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff"
LINE_MAX_LENGTH = 300
Line = Annotated[str, re.compile(f"[^{_UNSAFE}]{{0,{LINE_MAX_LENGTH}}}")]
"""One line of text for pages, without control characters or changes of text direction."""
PROGRESS_LENGTH = 1_000
PROGRESS_MAX = 64
"""The number of lines of progress in one Telemetry at most."""
ProgressText = Annotated[str, re.compile(f"[^{_UNSAFE}]{{0,{PROGRESS_LENGTH}}}")]
"""A line of JSON that a program has written; empty: it can't be sent as it is."""
Label = Annotated[str, re.compile(f"[^{_UNSAFE}]{{0,24}}")]
"""A short Line, such as the name of a profile."""

Plain = Annotated[str, re.compile("[^\\x00\\ud800-\\udfff]*")]
"""Text of any length that PostgreSQL can hold."""

Small = Annotated[int, range(1 << 14)]
"""An index or a count that fits a column of the portal."""

SlotOffset = Annotated[int, range(-1 << 15, 1 << 15)]
"""A start slot. A placement before slot 0 is accepted here and never offered."""

Count = Annotated[int, range(1 << 31)]
"""A larger count that fits a column of the portal."""

Milliseconds = Annotated[int, range(1 << 43)]
"""Since 1970, until the year 2248."""

Mode = Literal["whole", "sliced", "shared"]
"""shared: whole in hardware, which reports it so, and used by several allocations at once."""
AllocationState = Literal["preparing", "ready", "ending", "empty", "failed"]
PciePath = Literal["board", "switch", "switches", "bridge", "numa", "system"]
"""From nearest to farthest: one board, one PCIe switch, several switches, one host bridge, one
NUMA node, across the machine."""
HostLimits = Literal["counted", "enforced"]
Engine = Literal["device", "slurm", "kubernetes", "quota", "volcano"]
"""Who gives the GPUs of a node to bookings: the agent itself, or another scheduler on its behalf."""
StepName = Literal["clear", "mode", "slice", "hand_over", "stage"]
"""Removing what was in the way, changing the GPU's mode, making the slice, giving the device to its
owner, fetching data that the booking names."""
CheckState = Literal["ok", "warn", "fail", "unknown"]
PauseMethod = Literal["stop", "signal", "suspend"]
"""stop: TERM, then KILL. signal: the owner's program ends itself, KILL at the deadline. suspend:
device memory is copied to the host's and the program waits, to resume on the same node."""
Recovery = Literal["none", "reset", "drain", "reboot"]
